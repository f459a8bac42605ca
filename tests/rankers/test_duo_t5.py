import pickle
import shutil
from itertools import permutations

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Context, InputError, System
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.further.order import OrderBias
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from pyterrier_debias.report.models import find_model
from tests.rankers.t5_models import log_probability, with_positions
from tests.tiny_models import build_t5

TEXTS = ["the red king", "a long river and a bridge and a market " * 2, "", "blue harbour", "who works"]
PAIRS = pd.DataFrame(
    [
        {"qid": qid, "query": query, "docno": f"d{i}", "text": text}
        for qid, query, texts in (("q1", "what is the red king", TEXTS), ("q2", "where is the harbour", TEXTS[:3]))
        for i, text in enumerate(texts)
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Without ``n_positions``, as transformers writes configurations today."""
    return str(build_t5(tmp_path_factory.mktemp("duo") / "my-duot5"))


def scores(out):
    return out.set_index(["qid", "docno"])["score"].sort_index()


def theirs(folder, batch_size, n_positions=512):
    from pyterrier_t5 import DuoT5ReRanker

    folder = with_positions(folder)
    found = DuoT5ReRanker(tok_model=folder, model=folder, batch_size=batch_size, device="cpu", verbose=False)
    found.model.config.n_positions = n_positions
    return found


def test_a_score_is_the_sum_of_comparisons_each_computed_alone(folder):
    from transformers import T5ForConditionalGeneration, T5TokenizerFast

    module, tokenizer = T5ForConditionalGeneration.from_pretrained(folder).eval(), T5TokenizerFast.from_pretrained(folder)
    expected = dict.fromkeys(zip(PAIRS["qid"], PAIRS["docno"]), 0.0)
    for qid, of_query in PAIRS.groupby("qid"):
        for one, other in permutations(of_query.itertuples(), 2):
            prompt = f"Query: {one.query} Document0: {one.text} Document1: {other.text} Relevant:"
            true = log_probability(module, tokenizer, prompt)
            expected[qid, one.docno] += true
            expected[qid, other.docno] += 1 - true
    found = scores(DuoT5Reranker(folder, device="cpu")(PAIRS))
    np.testing.assert_allclose(found, [expected[key] for key in found.index], atol=1e-4)
    assert found.std() > 1e-2


def test_batches_change_pyterrier_t5s_scores_and_not_these(folder, tmp_path):
    again = build_t5(tmp_path / "same")
    alone, beside = (scores(theirs(again, size)(PAIRS)) for size in (1, 4))
    assert (beside - alone).abs().max() > 1e-2
    pd.testing.assert_series_equal(scores(DuoT5Reranker(folder, device="cpu")(PAIRS)), alone, atol=1e-6)


def test_neither_other_queries_nor_the_order_of_rows_change_a_score(folder):
    model = DuoT5Reranker(folder, device="cpu")
    frame = PAIRS.assign(kept=range(len(PAIRS)))
    whole, shuffled = (
        model(one).sort_values(["qid", "rank"], ignore_index=True) for one in (frame, frame.sample(frac=1, random_state=1))
    )
    pd.testing.assert_frame_equal(whole, shuffled, check_exact=True)
    single = pd.concat([model(of_query) for _, of_query in PAIRS.groupby("qid")])
    pd.testing.assert_series_equal(scores(whole), scores(single), check_exact=True)
    assert list(whole.columns) == [*PAIRS.columns, "kept", "score", "rank"]
    assert scores(model(PAIRS.iloc[[0]])).tolist() == [0.0]  # nothing to be compared with


def test_what_it_is_known_by(folder, tmp_path):
    model = DuoT5Reranker(folder, device="cpu")
    expected = scores(model(PAIRS))
    copy = pickle.loads(pickle.dumps(model))
    assert copy == model == DuoT5Reranker(folder, device="cpu", verbose=True)
    assert model != DuoT5Reranker(str(build_t5(tmp_path / "other", seed=1)), device="cpu")
    pd.testing.assert_series_equal(scores(copy(PAIRS)), expected)


def test_it_is_opened_by_name(folder):
    found = find_model(folder)  # its name says duot5, its files only T5
    assert found.kind == "duot5" and find_model(f"t5:{folder}").kind == "t5"
    made = found.ranker(device="cpu", dtype="float32", verbose=False)
    assert made == DuoT5Reranker(folder, device="cpu")


def test_another_column_of_texts(folder):
    model = DuoT5Reranker(folder, device="cpu", text_field="my body")
    found = model(PAIRS.rename(columns={"text": "my body"}))
    pd.testing.assert_series_equal(scores(found), scores(DuoT5Reranker(folder, device="cpu")(PAIRS)))


def test_what_cannot_be_used_is_refused(folder):
    with pytest.raises(InputError, match=r"DuoT5Reranker: dtype='bfloat16' is not known; use one of 'float32'"):
        DuoT5Reranker(folder, dtype="bfloat16")(PAIRS)
    with pytest.raises(InputError, match="DuoT5Reranker: there is no model folder"):
        DuoT5Reranker("/no/such/folder")(PAIRS)
    with pytest.raises(InputError, match="column 'text' has no value at row 0"):
        DuoT5Reranker(folder)(PAIRS.assign(text=None))
    with pytest.raises(InputError, match=r"DuoT5Reranker.*d0"):
        DuoT5Reranker(folder)(PAIRS.iloc[[0, 0]])
    assert list(DuoT5Reranker("no/such-model")(PAIRS.iloc[:0]).columns) == [*PAIRS.columns, "score", "rank"]


def test_an_audit_finds_that_the_order_of_the_list_does_not_matter(folder):
    """Documents are compared in the order of their names, so that sums are rounded alike."""
    listed = ranked(PAIRS[PAIRS["qid"] == "q2"].assign(score=[3.0, 2.0, 1.0]))
    duo = System("duo", pt.Transformer.from_df(listed), DuoT5Reranker(folder, device="cpu"))
    context = Context([duo], None, listed[["qid", "query"]].head(1), listed[["qid", "docno"]].assign(label=1))
    primary = next(OrderBias(shuffles=1).look(duo, context))
    assert primary.value == 0 and np.isnan(primary.p) and "no query changed" in primary.text


def test_a_folder_without_a_tokenizer_is_refused(folder, tmp_path):
    alone = shutil.copytree(folder, tmp_path / "alone", ignore=lambda at, names: [n for n in names if n.startswith("tokenizer")])
    with pytest.raises(InputError, match=r"DuoT5Reranker: model .*alone' has no tokenizer"):
        DuoT5Reranker(alone)(PAIRS)


def test_long_texts_do_not_take_the_place_of_short_ones(folder, caplog):
    """pyterrier_t5 cuts as much from the short document of a pair as from the long one, until nothing of it is left."""
    model, read = DuoT5Reranker(folder, device="cpu"), []
    long = "the river and the market " * 300
    frame = PAIRS.head(3).assign(text=["the red king", long, "who works"], docno=["d0", "d1", "d2"])
    model(PAIRS)
    assert "window" not in caplog.text

    def note(module, given, named):
        read.append(named["input_ids"][0].tolist())

    theirs = model._theirs()
    theirs.model.encoder.register_forward_pre_hook(note, with_kwargs=True)
    model(frame)
    assert "DuoT5Reranker: 1 of 3 documents and 0 of 1 queries" in caplog.text
    model(frame.assign(query=long))
    assert "DuoT5Reranker: 1 of 3 documents and 1 of 1 queries" in caplog.text
    assert [500 < len(ids) <= 512 for ids in read] == 2 * [True, False, True, True, False, True]
    for ids, (one, other) in zip(read, 2 * list(permutations(("the red king", "the river and", "who works"), 2))):
        first, second = theirs.tokenizer.decode(ids).split("Document0:")[1].split("Document1:")
        assert first.strip().startswith(one) and second.strip().startswith(other) and second.endswith("Relevant:</s>")
