"""fit, save and load of rankers, in pipelines and alone."""

import errno
import json
import pickle
import re
import signal
from functools import partial

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import (
    TK,
    AddJudged,
    BiasAwareReranker,
    BiEncoder,
    CrossEncoder,
    EqualizeReranker,
    InputError,
    MultiVector,
    RotatePassages,
    SparseEncoder,
    T5Reranker,
)
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.data.answers import read_squad
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.linguistic.training.baselines import GroupDROReranker
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.pooling.training.negatives import RankWindow
from pyterrier_debias.rankers.word_vectors import bare_encoder
from pyterrier_debias.training.report import ABOUT
from pyterrier_debias.training.weights import ColumnWeights
from tests.training.toy import candidates, no_dropout, qrels, training

PAIR = ["where is the king"] * 3, ["the king found relevant red works", "short", "the queen found short blue bridge"]


def states_equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left.module.state_dict().values(), right.module.state_dict().values()))


def first_stage(*prefixes):
    """A retriever that knows its answers, and has no text."""
    results = pd.concat([candidates(prefix) for prefix in prefixes])
    return pt.Transformer.from_df(results.drop(columns="text"))


def topics(prefix):
    return candidates(prefix)[["qid", "query"]].drop_duplicates()


LOADER = TextLoader(candidates()[["docno", "text"]])


def test_a_pipeline_is_fitted(tiny):
    options = training(max_steps=3, evaluate_every=3)
    ranker = CrossEncoder(tiny(), training=options)
    (first_stage("q", "v") >> LOADER >> ranker).fit(topics("q"), qrels("q"), topics("v"), qrels("v"))
    alone = CrossEncoder(tiny(), training=options).fit(candidates("q"), qrels("q"), candidates("v"), qrels("v"))
    assert states_equal(ranker, alone)
    assert ranker.training_report.validation == alone.training_report.validation
    assert ranker.training_report.data == alone.training_report.data


TREATMENTS = [
    CETReranker,
    partial(CETReranker, selection="same"),
    EqualizeReranker,
    GroupDROReranker,
    BiasAwareReranker,
    partial(KernelWhiteningReranker, landmarks=12, sample=40),
]


@pytest.mark.parametrize("treatment", TREATMENTS)
def test_a_treatment_trains_what_the_ranker_would(tiny, treatment):
    """Frozen weights stay, and dropout stays off."""
    ranker = no_dropout(CrossEncoder(tiny(labels=None), training=training(max_steps=2)))
    ranker.module.bert.requires_grad_(False)
    frame = candidates().assign(complexity=lambda f: f["qid"].str[1:].astype(float))
    stage = treatment(ranker).fit(frame, qrels())
    for one in [stage.relevance, *([stage.selection_model] if getattr(stage, "selection", "") == "same" else [])]:
        assert not any(part.p for part in one.module.modules() if isinstance(part, torch.nn.Dropout))
        encoder = bare_encoder(one.module)
        for value, before in zip(encoder.parameters(), ranker.module.bert.parameters(), strict=True):
            assert not value.requires_grad and torch.equal(value, before)
        assert any(value.requires_grad for value in one.module.parameters())


def test_added_judgements_and_a_fixed_rotation_in_a_pipeline(tiny):
    """The first stage misses all relevant passages of training topics; validation topics are not helped."""
    found = candidates("q")[lambda f: f["rank"] < 4]
    missing = pt.Transformer.from_df(pd.concat([found, candidates("v")]).drop(columns="text"))
    rotate = RotatePassages(seed=3)
    ranker = CrossEncoder(tiny(), training=training(max_steps=2, evaluate_every=2))
    pipeline = missing >> AddJudged(qrels("q")) >> LOADER >> rotate >> ranker
    with pytest.raises(InputError, match="put AddJudged"):
        (missing >> LOADER >> CrossEncoder(tiny())).fit(topics("q"), qrels("q"))
    pipeline.fit(topics("q"), qrels("q"), topics("v"), qrels("v"))
    alone = CrossEncoder(tiny(), training=ranker.training)
    alone.fit(rotate(candidates("q")), qrels("q"), rotate(candidates("v")), qrels("v"))
    assert states_equal(ranker, alone)


def test_real_questions_in_a_pipeline(tiny, shared_data):
    """A first stage that never finds the answer's paragraph: AddJudged brings it, with its text, rotated."""
    squad = read_squad(shared_data / "squad" / "xquad.en.json.gz")
    questions, judged = squad.get_topics().iloc[::40], squad.get_qrels()
    docnos = [document["docno"] for document in squad.get_corpus_iter()]
    rows = []
    for place, qid in enumerate(questions["qid"]):
        right = set(judged[judged["qid"] == qid]["docno"])
        wrong = [docno for docno in docnos[place : place + 8] if docno not in right][:6]
        rows += [(qid, docno, float(-rank), rank) for rank, docno in enumerate(wrong)]
    found = pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"]).merge(questions, on="qid")
    ranker = CrossEncoder(tiny(), training=training(max_steps=2, epochs=1))
    stages = pt.Transformer.from_df(found) >> AddJudged(judged) >> squad.text_loader() >> RotatePassages(seed=1) >> ranker
    stages.fit(questions, judged)
    counts = ranker.training_report.counts
    assert counts["trained on"] == counts["queries"] == len(questions) > 20
    ranked = stages(questions)
    assert len(ranked) == len(found) + len(questions)


def test_queries_that_are_left_out_are_told(tiny, caplog):
    few = qrels()[lambda f: f["qid"] < "q6"]
    CrossEncoder(tiny(), training=training(max_steps=1)).fit(candidates(), few)
    assert "CrossEncoder: trains on 6 of 8 queries; 2 are without a positive" in caplog.text


def test_training_reads_the_first_passage_as_scoring_does(tiny):
    options = training(max_steps=3, evaluate_every=3)
    whole = CrossEncoder(tiny(), long="firstp", passage_length=4, training=options)
    whole.fit(candidates(), qrels(), candidates("v"), qrels("v"))
    first = {split: candidates(split).assign(text=lambda f: f["text"].str.split().str[:4].str.join(" ")) for split in "qv"}
    cut = CrossEncoder(tiny(), training=options).fit(first["q"], qrels(), first["v"], qrels("v"))
    assert states_equal(whole, cut)
    assert whole.training_report.validation == cut.training_report.validation
    assert not states_equal(whole, CrossEncoder(tiny(), training=options).fit(candidates(), qrels()))


@pytest.mark.parametrize(
    ("make", "builder", "options"),
    [
        (CrossEncoder, "build", {"max_length": 12}),
        (BiEncoder, "build_sentence_transformer", {"max_length": 6}),
        (MultiVector, "build_multi_vector", {"max_length": 6}),
        (SparseEncoder, "build_sparse", {"max_length": 6}),
        (T5Reranker, "build_t5", {"max_length": 14}),
    ],
)
def test_what_training_does_not_read_is_told_once(make, builder, options, tiny, caplog):
    make(tiny(builder), training=training(max_steps=2), **options).fit(candidates(), qrels())
    [line] = [record.getMessage() for record in caplog.records if "texts" in record.getMessage()]
    assert line.startswith(f"{make.__name__}: 48 of 48 training texts are longer than the window")
    caplog.clear()
    make(tiny(builder), training=training(max_steps=2)).fit(candidates(), qrels())
    assert "training texts" not in caplog.text


def test_what_is_nearly_nothing_is_not_told_as_nothing(tiny, caplog):
    longer = candidates().assign(text=lambda f: f["text"].where(f.index > 0, "the " * 60))
    CrossEncoder(tiny(), training=training(max_steps=1)).fit(longer, qrels())
    told = "1 of 48 training texts are longer than the window of 64 tokens, and training does not read less than 1 %"
    assert told in caplog.text


@pytest.mark.parametrize("options", [{"long": "maxp"}, {"long": "sentences"}, {"long": "sentences", "head": "parade-max"}])
def test_that_training_knows_no_best_passage_is_told(options, tiny, caplog):
    CrossEncoder(tiny(), **options, training=training(max_steps=1)).fit(candidates(), qrels())
    told = f"CrossEncoder: long='{options['long']}' is for scoring; training reads each text from its start" in caplog.text
    assert told != ("head" in options)


def test_of_many_texts_some_are_looked_at(tiny, caplog):
    tk = TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1}, max_length=5, training=training(max_steps=1))
    rows = pd.concat([candidates()] + [candidates().assign(docno=lambda f, n=n: f["docno"] + f"-{n}") for n in range(29)])
    tk.fit(rows, qrels())
    assert "TK: 1000 of 1000 (of 1440) training texts are longer than the window of 5 tokens" in caplog.text


def test_fitting_twice_goes_on_from_the_weights_held(tiny, tmp_path):
    options = training(max_steps=2)
    twice = CrossEncoder(tiny(), training=options).fit(candidates(), qrels())
    once = twice.training_report
    twice.save(tmp_path / "once")
    other = candidates().assign(text=lambda f: f["text"] + " again")
    twice.fit(other, qrels())
    after = CrossEncoder(str(tmp_path / "once"), training=options).fit(other, qrels())
    assert states_equal(twice, after)
    assert not states_equal(twice, CrossEncoder(tiny(), training=options).fit(other, qrels()))
    assert twice.training_report.started_from not in (once.started_from, tiny())


def test_a_fitted_ranker_is_another_ranker(tiny):
    plain, fitted = CrossEncoder(tiny()), CrossEncoder(tiny(), training=training(max_steps=1))
    assert plain == fitted
    fitted.fit(candidates(), qrels())
    assert plain != fitted
    copied, taken = pickle.loads(pickle.dumps(fitted)), CrossEncoder(fitted)
    assert copied == fitted
    for other in (copied, taken):
        np.testing.assert_allclose(other.score(*PAIR), fitted.score(*PAIR), atol=1e-6)
    assert copied.training_report == fitted.training_report
    taken.training = training(max_steps=1)
    taken.fit(candidates(), qrels())
    assert not states_equal(taken, fitted)


def test_scores_are_computed_without_dropout_after_training(tiny):
    ranker = CrossEncoder(tiny(), training=training(max_steps=1)).fit(candidates(), qrels())
    assert not ranker.module.training
    np.testing.assert_array_equal(ranker.score(*PAIR), ranker.score(*PAIR))


def test_a_fit_that_fails_leaves_the_ranker_as_it_was(tiny):
    """Refused before a step, diverged, or interrupted: weights, equality and report are those of before."""
    ranker, fresh = CrossEncoder(tiny(), training=training(max_steps=4)), CrossEncoder(tiny())
    ranker.warm_up()
    ranker.training = training(learning_rate={"other": 1e-3})
    with pytest.raises(InputError, match="learning_rate names other"):
        ranker.fit(candidates(), qrels())
    assert ranker == fresh and ranker.fingerprint() == CrossEncoder(tiny()).fingerprint()

    class Stops:
        """A loss that stops at the third step."""

        def __init__(self, how):
            self.how, self.calls = how, 0

        def __call__(self, scores, *, labels=None, mask=None, weights=None):
            self.calls += 1
            if self.calls == 3 and isinstance(self.how, BaseException):
                raise self.how
            return scores.mean() * (float("nan") if self.calls == 3 else 1e3)

    for how, error in ((None, InputError), (KeyboardInterrupt(), KeyboardInterrupt), (MemoryError(), MemoryError)):
        ranker.training = training(loss=Stops(how), max_steps=9)
        with pytest.raises(error):
            ranker.fit(candidates(), qrels())
        assert ranker.training.loss.calls == 3
        assert states_equal(ranker, fresh)
        assert ranker.training_report is None
    ranker.training = training(max_steps=1)
    ranker.fit(candidates(), qrels())
    held = {name: value.clone() for name, value in ranker.module.state_dict().items()}
    report, print_of = ranker.training_report, ranker.fingerprint()
    ranker.training = training(loss=Stops(None), max_steps=9)
    with pytest.raises(InputError, match="the loss became nan at step 2"):
        ranker.fit(candidates(), qrels())
    assert all(torch.equal(value, held[name]) for name, value in ranker.module.state_dict().items())
    assert ranker.training_report is report and ranker.fingerprint() == print_of


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, which Python leaves out in a process that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_was_interrupted_goes_on_in_the_same_process(tiny, tmp_path, monkeypatch):
    from pyterrier_debias.training import trainer

    save = trainer._Trainer._save_checkpoint
    ranker = CrossEncoder(tiny(), training=training(max_steps=4, evaluate_every=2, checkpoints=tmp_path))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trainer._Trainer, "_save_checkpoint", lambda *args: (save(*args), signal.raise_signal(signal.SIGINT)))
        ranker.fit(candidates(), qrels())
    assert states_equal(ranker, CrossEncoder(tiny()))
    ranker.training = training(max_steps=4, evaluate_every=2, checkpoints=tmp_path, resume=True)
    ranker.fit(candidates(), qrels())
    assert states_equal(ranker, CrossEncoder(tiny(), training=training(max_steps=4)).fit(candidates(), qrels()))


# The saved folder


def by_sentence_transformers(folder):
    from sentence_transformers import CrossEncoder as Theirs

    return Theirs(str(folder), device="cpu").predict(list(zip(*PAIR)), activation_fn=torch.nn.Identity())


def by_auto_model(folder):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return model(**tokenizer(*PAIR, padding=True, truncation=True, return_tensors="pt")).logits[:, 0].detach()


def by_sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return (model.encode_query(PAIR[0]) * model.encode_document(PAIR[1])).sum(axis=1)


def by_multi_vector_encoder(folder):
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(str(folder), device="cpu")
    return model.similarity_pairwise(model.encode_query(PAIR[0]), model.encode_document(PAIR[1])).cpu()


def by_sparse_encoder(folder):
    from sentence_transformers import SparseEncoder as Theirs

    model = Theirs(str(folder), device="cpu")
    return model.similarity_pairwise(model.encode_query(PAIR[0]), model.encode_document(PAIR[1])).cpu()


def by_auto_seq2seq(folder):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    answers = [tokenizer.convert_tokens_to_ids(f"▁{word}") for word in ("true", "false")]
    scores = []
    for query, text in zip(*PAIR):
        read = tokenizer(f"Query: {query} Document: {text} Relevant:", return_tensors="pt")
        start = torch.tensor([[model.config.decoder_start_token_id]])
        scores.append(model(**read, decoder_input_ids=start).logits[0, 0, answers].log_softmax(0)[0].detach())
    return torch.stack(scores)


@pytest.mark.parametrize(
    ("make", "builder", "options", "read"),
    [
        (CrossEncoder, "build", {}, by_sentence_transformers),
        (CrossEncoder, "build", {"max_length": 10}, by_sentence_transformers),
        (CrossEncoder, "build", {"max_length": 10}, by_auto_model),
        (BiEncoder, "build_sentence_transformer", {"max_length": 6}, by_sentence_transformer),
        (MultiVector, "build_multi_vector", {}, by_multi_vector_encoder),
        (SparseEncoder, "build_sparse", {"max_length": 6}, by_sparse_encoder),
        (T5Reranker, "build_t5", {}, by_auto_seq2seq),
    ],
)
def test_other_libraries_open_the_folder_and_score_the_same(make, builder, options, read, tiny, tmp_path):
    ranker = make(tiny(builder), training=training(max_steps=2), **options).fit(candidates(), qrels())
    expected = ranker.score(*PAIR)
    ranker.save(tmp_path / "saved")
    np.testing.assert_allclose(read(tmp_path / "saved"), expected, atol=1e-4, rtol=1e-5)
    again = make(str(tmp_path / "saved"))
    np.testing.assert_allclose(again.score(*PAIR), expected, atol=1e-5)
    np.testing.assert_allclose(ranker.score(*PAIR), expected, atol=1e-6)  # saving changes nothing


@pytest.mark.parametrize("options", [{}, {"max_length": 10}])
def test_a_head_on_the_mean_is_an_ordinary_model_too(options, tiny, tmp_path):
    from transformers import AutoModel

    ranker = CrossEncoder(tiny(labels=None), head="mean", training=training(max_steps=2), **options)
    ranker.fit(candidates(), qrels()).save(tmp_path / "saved")
    np.testing.assert_allclose(by_sentence_transformers(tmp_path / "saved"), ranker.score(*PAIR), atol=1e-5)
    np.testing.assert_allclose(CrossEncoder(str(tmp_path / "saved")).score(*PAIR), ranker.score(*PAIR), atol=1e-5)
    encoder = AutoModel.from_pretrained(tmp_path / "saved")
    ours = ranker.module.encoder.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in encoder.state_dict().items())


def test_the_file_beside_the_model_tells_how_it_was_trained(tiny, tmp_path):
    ranker = CrossEncoder(tiny(), max_length=20, training=training(max_steps=2, evaluate_every=1, augment=RotatePassages()))
    ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
    ranker.save(tmp_path / "saved")
    about = json.loads((tmp_path / "saved" / ABOUT).read_text())
    assert about["ranker"] == "CrossEncoder"
    assert about["options"]["max_length"] == 20
    told = about["training"]
    assert told["data"] == ranker.training_report.data
    assert told["started_from"].startswith("folder:")
    assert told["options"]["augment"] == "RotatePassages()"
    assert told["counts"]["trained on"] == 8
    assert told["metric"] == "nDCG@10"
    assert told["best"] == max(entry["eval_ndcg_10"] for entry in told["history"] if "eval_ndcg_10" in entry)
    assert told["best"] == pytest.approx(np.mean(list(told["validation"].values())))
    assert {"torch", "transformers", "python"} <= set(told["versions"]) and told["versions"]["pyterrier"] == pt.__version__


def test_load_brings_the_options_back(tiny, tmp_path):
    ranker = BiEncoder(tiny("build_sentence_transformer"), similarity="cosine", fields=["title", "text"], long="firstp")
    ranker.save(tmp_path / "saved")
    loaded = BiEncoder.load(tmp_path / "saved")
    assert (loaded.similarity, list(loaded.fields), loaded.long) == ("cosine", ["title", "text"], "firstp")
    assert loaded.training_report is None
    assert BiEncoder.load(tmp_path / "saved", long="maxp").long == "maxp"
    plain = BiEncoder(tiny(labels=None), pooling="cls")
    plain.save(tmp_path / "plain")
    np.testing.assert_allclose(BiEncoder.load(tmp_path / "plain").score(*PAIR), plain.score(*PAIR), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "builder", "options"),
    [
        (BiEncoder, "build_sentence_transformer", {"similarity": "cosine"}),
        (T5Reranker, "build_t5", {"max_length": 20, "tokens": ("false", "true")}),
        (MultiVector, "build_multi_vector", {"max_length": 6, "device": "cpu"}),
        (SparseEncoder, "build_sparse", {"max_length": 6, "document_flops": 0.1, "flops_warmup": 9, "seed": 4}),
        (CrossEncoder, "build", {"fields": ["query", "text"]}),
        (CrossEncoder, "build", {"long": "firstp", "passage_length": 3}),
        (CrossEncoder, "build", {"max_length": 10, "passage_length": 3, "seed": 4, "batch_tokens": 9}),
        (BiEncoder, "build_sentence_transformer", {"max_length": 6, "dtype": "bfloat16"}),
    ],
)
def test_the_class_and_load_open_a_folder_alike(make, builder, options, tiny, tmp_path):
    ranker = make(tiny(builder), **options)
    ranker.save(tmp_path / "saved")
    folder = str(tmp_path / "saved")
    opened, loaded = make(folder), make.load(folder)
    assert opened == loaded and pickle.loads(pickle.dumps(opened)) == opened
    np.testing.assert_allclose(opened.score(*PAIR), ranker.score(*PAIR), rtol=1e-5, atol=1e-6)
    assert (opened.score(*PAIR) == loaded.score(*PAIR)).all()
    default = {name: getattr(make("any"), name) for name in options}
    for other in (make(folder, **default), make.load(folder, **default)):  # what is named is meant
        assert {name: getattr(other, name) for name in options} == default


@pytest.mark.parametrize(
    ("make", "builder", "options"),
    [
        (CrossEncoder, "build", {"max_length": np.int64(32), "seed": np.int64(1), "passage_length": np.int32(9)}),
        (CrossEncoder, "build", {"long": "sentences", "sentence_weights": np.array([1.0, 0.5])}),
        (CrossEncoder, "build", {"head": "parade-max", "max_passages": np.int64(2), "seed": np.int64(1)}),
        (BiEncoder, "build_sentence_transformer", {"max_length": np.int64(6)}),
        (SparseEncoder, "build_sparse", {"document_flops": np.float32(0.1), "flops_warmup": np.int64(9)}),
        (T5Reranker, "build_t5", {"max_length": np.int64(20)}),
    ],
)
def test_numbers_of_numpy_are_saved_as_pythons_own(make, builder, options, tiny, tmp_path):
    ranker = make(tiny(builder))
    for name, value in options.items():
        setattr(ranker, name, value)
    assert ranker == make(tiny(builder), **options)
    ranker.save(tmp_path / "saved")
    loaded = make.load(tmp_path / "saved")
    for name, value in options.items():
        assert np.array_equal(getattr(loaded, name), value) and type(getattr(loaded, name)) in (int, float, str, list)
    np.testing.assert_allclose(loaded.score(*PAIR), ranker.score(*PAIR), rtol=1e-5, atol=1e-6)
    assert loaded.saved_state() == ranker.saved_state()
    assert loaded.record() == ranker.record()


def test_a_stage_saves_numbers_of_numpy_as_pythons_own(tiny, tmp_path):
    stage = GroupDROReranker(tiny(), group="kind", step=np.float32(0.25), bins=np.int64(3))
    stage.keep(CrossEncoder(tiny()))
    stage.save(tmp_path / "saved")
    loaded = GroupDROReranker.load(tmp_path / "saved")
    assert (loaded.step, loaded.bins) == (0.25, 3) and loaded.saved_state() == stage.saved_state()


def test_options_that_json_does_not_know_are_not_saved_as_something_else(tiny, tmp_path):
    class Own(CrossEncoder):
        def options(self):
            return {**super().options(), "own": object()}

    with pytest.raises(TypeError, match="not JSON serializable"):
        Own(tiny()).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(TypeError, match="not JSON serializable"):
        Own(tiny(), training=training(max_steps=1, checkpoints=tmp_path / "run")).fit(candidates(), qrels())
    assert not list(tmp_path.glob("run/*"))


def test_folders_that_cannot_be_loaded(tiny, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        CrossEncoder.load(tmp_path / "none")
    CrossEncoder(tiny()).save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"holds a CrossEncoder; open it with CrossEncoder.load"):
        T5Reranker.load(tmp_path / "saved")
    assert T5Reranker(str(tmp_path / "saved")).max_length is None  # the options of another class are none of its own
    (tmp_path / "saved" / ABOUT).write_text("{")
    for opens in (CrossEncoder, CrossEncoder.load):
        told = r"saved is damaged: pyterrier_debias_training.json has changed since it was written"
        with pytest.raises(InputError, match=told):
            opens(str(tmp_path / "saved"))
    (tmp_path / "saved" / ABOUT).unlink()
    with pytest.raises(InputError, match=r"saved is damaged: pyterrier_debias_training.json is missing"):
        CrossEncoder.load(tmp_path / "saved").warm_up()
    (tmp_path / "saved" / MANIFEST).unlink()
    assert CrossEncoder.load(tmp_path / "saved").score(*PAIR).shape == (3,)


@pytest.mark.parametrize("name", ["CrossEncoder", "BiEncoder", "T5Reranker", "TK", "GroupDROReranker"])
def test_a_full_disk_leaves_the_saved_ranker_as_it_was(name, tiny, tmp_path, monkeypatch):
    ranker = {
        "CrossEncoder": lambda: CrossEncoder(tiny()),
        "BiEncoder": lambda: BiEncoder(tiny("build_sentence_transformer")),
        "T5Reranker": lambda: T5Reranker(tiny("build_t5")),
        "TK": lambda: TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1}),
        "GroupDROReranker": lambda: GroupDROReranker(
            CrossEncoder(tiny()), group="query", bins=None, training=training(max_steps=1)
        ).fit(candidates(), qrels()),
    }[name]()
    ranker.save(tmp_path / "saved")
    before = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir() if path.is_file()}
    ranker.training = training(max_steps=1)
    ranker.fit(candidates(), qrels())
    with pytest.raises(InputError, match="exists already"):
        ranker.save(tmp_path / "saved")

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full)
    told = f"{tmp_path / 'saved'} cannot be written: No space left on device; nothing was changed"
    with pytest.raises(InputError, match=f"^{re.escape(told)}"):
        ranker.save(tmp_path / "saved", overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir() if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


# What cannot be fitted: told before a model is looked for


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qrels_tr": qrels().assign(label=0)}, "nothing to train on in 8 queries: no candidate is judged 1 or higher"),
        ({"qrels_tr": qrels().assign(label=50)}, "column 'label' of the judgements is 50"),
        ({"qrels_tr": qrels("other")}, "no qid is in both"),
        ({"res_tr": candidates().assign(text=" ")}, "the text of all 48 candidates is empty"),
        ({"res_tr": candidates().iloc[:0]}, "there are no candidates"),
        ({"qrels_tr": None}, "needs a pandas DataFrame, not None; give judgements with the columns qid, docno and label"),
        ({"res_va": candidates("v"), "qrels_va": qrels("v").assign(label=0)}, "is 0 in any order, so validation cannot choose"),
        ({"res_va": candidates("v")}, "both validation candidates and their judgements, or neither"),
        ({"qrels_va": qrels("v")}, "both validation candidates and their judgements, or neither"),
        ({"res_va": candidates("v").iloc[:0], "qrels_va": qrels("v")}, "there are no validation candidates"),
        ({"res_va": candidates("v"), "qrels_va": qrels("other")}, "no qid is in both"),
        ({"res_va": candidates("v").assign(text=None), "qrels_va": qrels("v")}, "column 'text' has no value"),
        ({"res_va": candidates("v"), "qrels_va": qrels("v").assign(label=-9)}, "is -9"),
    ],
)
def test_frames_that_cannot_be_used(change, message):
    given = {"res_tr": candidates(), "qrels_tr": qrels(), "res_va": None, "qrels_va": None, **change}
    with pytest.raises(InputError, match=f"CrossEncoder.*: .*{message}"):
        CrossEncoder("no-such-model").fit(**given)


def test_candidates_that_are_no_frame():
    with pytest.raises(InputError, match="CrossEncoder, candidates: needs a pandas DataFrame, not None"):
        CrossEncoder("no-such-model").fit(None, qrels())


def test_options_that_cannot_be_used():
    frames = candidates(), qrels()
    with pytest.raises(InputError, match=r"patience=2\) needs validation"):
        CrossEncoder("no-such-model", training=training(patience=2)).fit(*frames)
    with pytest.raises(InputError, match=r"rerank_depth=\[2, 4\]\) needs validation"):
        CrossEncoder("no-such-model", training=training(rerank_depth=[2, 4])).fit(*frames)
    with pytest.raises(InputError, match="dtype='bfloat16' cannot be trained"):
        CrossEncoder("no-such-model", dtype="bfloat16").fit(*frames)
    with pytest.raises(InputError, match="rerank_depth needs the first stage's column 'rank'"):
        ranker = CrossEncoder("no-such-model", training=training(rerank_depth=5))
        ranker.fit(*frames, candidates("v").drop(columns="rank"), qrels("v"))
    with pytest.raises(InputError, match="long='minp'"):
        CrossEncoder("no-such-model", long="minp").fit(*frames)
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        CrossEncoder("no-such-model").fit(candidates().drop(columns="text"), qrels())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": ColumnWeights("ease")}, "query 'q7' the weight nan; weights must be finite"),
        ({"weights": ColumnWeights("ease", per="document")}, "query 'q7' the weight nan; weights must be finite"),
        ({"weights": ColumnWeights("lacking")}, "the candidates have no column 'lacking'"),
        ({"negatives": RankWindow("lacking")}, "the candidates have no column 'lacking'"),
        ({"augment": RotatePassages(text_field="body")}, "changes column 'body', but the ranker reads text"),
        ({"precision": "tf32"}, "precision='tf32'.* needs CUDA"),
    ],
)
def test_options_that_these_candidates_cannot_be_used_with(options, message):
    """However late in the order of examples; and before a model is looked for."""
    frame = candidates().assign(ease=lambda f: f["qid"].map({f"q{n}": 1.0 for n in range(7)}))
    with pytest.raises(InputError, match=message):
        CrossEncoder("no-such-model", device="cpu", training=training(**options)).fit(frame, qrels())


def test_weights_of_documents_that_are_no_positives_may_be_missing(tiny):
    """A sampler may never draw them."""
    frame = candidates().assign(ease=lambda f: f["rank"].where(f["rank"] != 0))
    options = training(weights=ColumnWeights("ease", per="document"), negatives=RankWindow("rank", first=1), max_steps=2)
    assert CrossEncoder(tiny(), training=options).fit(frame, qrels()).training_report.steps == 2


def test_a_checkpoint_of_another_architecture(tiny):
    with pytest.raises(InputError, match=r"T5Reranker: .* is a bert model"):
        T5Reranker(tiny()).fit(candidates(), qrels())
    with pytest.raises(InputError, match="use T5Reranker for T5"):
        CrossEncoder(tiny("build_t5")).fit(candidates(), qrels())


def test_one_word_passages_train(tiny):
    one_word = candidates().assign(text=lambda f: f["docno"].str[-1].map({"4": "red", "5": "relevant"}).fillna("blue"))
    options = training(max_steps=2, augment=RotatePassages())
    report = CrossEncoder(tiny(), training=options).fit(one_word, qrels()).training_report
    assert np.isfinite([entry["loss"] for entry in report.history if "loss" in entry]).all()


def test_a_ranker_is_fitted_behind_passages(tiny):
    """As the documentation advises for long documents; the added positive is cut, too, and validation counts documents."""
    sliding = pt.text.sliding(text_attr="text", length=4, stride=2, prepend_attr=None)
    own = candidates("q").query("docno != 'd0-4'")
    retrieve = pt.Transformer.from_df(pd.concat([own, candidates("v")]).drop(columns="text").assign(docid=7))
    ranker = CrossEncoder(tiny(), training=training(max_steps=2, evaluate_every=2, min_label=1))
    pipeline = retrieve >> AddJudged(qrels("q")) >> LOADER >> sliding >> ranker
    pipeline.fit(topics("q"), qrels("q"), topics("v"), qrels("v"))
    report = ranker.training_report
    assert report.counts["trained on"] == 8
    # Seven words, in windows of four with steps of two: at 0 and 2 for each of the 16 relevant documents.
    assert report.counts["positives"] == 32
    run = (retrieve >> LOADER >> sliding >> ranker >> pt.text.max_passage())(topics("v"))
    values = per_query(run, qrels("v"), [report.metric], list(topics("v")["qid"]))[report.metric]
    assert report.validation == pytest.approx(values.to_dict())


def test_one_query_alone_has_no_negatives_in_its_batch(tiny):
    options = {"loss": "infonce", "in_batch_negatives": True, "negatives_per_positive": 0, "max_steps": 1}
    ranker = BiEncoder(tiny("build_sentence_transformer"), training=training(**options))
    frame = candidates()
    with pytest.raises(InputError, match="the only query with a positive, and with negatives_per_positive=0 all negatives come"):
        ranker.fit(frame[frame["qid"] == frame["qid"].iloc[0]], qrels())
