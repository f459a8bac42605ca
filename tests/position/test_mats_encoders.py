"""Word vectors of Hugging Face encoders against the model itself, run on one text at a time."""

import logging
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import BiEncoder, CrossEncoder, MATSProbe
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.word_vectors import HuggingFaceWords, WordEncoder, bare_encoder, pieces_of, regex_spans
from tests import tiny_models

TEXTS = [
    "The river was built (found) early, the harbour late.",
    "a question",
    "",
    "... !",
    "Who lives on the bridge? The old doctor's nurse, and zyx42-b: naïve café İstanbul",
    "relevant  answer\tof the\nlong document of the queen",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``folder('bert')`` gives a model folder; each is built once."""
    made = {}

    def get(architecture):
        if architecture not in made:
            place = tmp_path_factory.mktemp("models") / architecture
            if architecture == "t5":
                tiny_models.build_t5(place)
            else:
                tiny_models.build(place, architecture=architecture, labels=None)
            made[architecture] = str(place)
        return made[architecture]

    return get


def by_hand(folder, text, piece, layer):
    """Each word's pieces by looking at every pair of a word and a piece; the model sees one text, without padding."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt", return_special_tokens_mask=True)
    offsets, special = encoded.pop("offset_mapping")[0].tolist(), encoded.pop("special_tokens_mask")[0].tolist()
    with torch.inference_mode():
        states = model(**encoded, output_hidden_states=True).hidden_states[layer][0].numpy()
    words, vectors = [], []
    for word, start, end in regex_spans(text):
        own = [i for i, (a, b) in enumerate(offsets) if not special[i] and a < b and a < end and start < b]
        words.append(word)
        vectors.append((states[own[0]] if piece == "first" else states[own].mean(axis=0)) if own else 0 * states[0])
    return words, np.array(vectors)


CASES = [
    ("bert", "first", -1),
    ("bert", "mean", -1),
    ("bert", "mean", 1),
    ("bert", "first", 0),
    ("distilbert", "first", -1),
    ("electra", "mean", -1),
    ("roberta", "first", -1),
    ("roberta", "mean", -2),
    ("t5", "first", -1),
    ("t5", "mean", 1),
]


@pytest.mark.parametrize(("architecture", "piece", "layer"), CASES)
def test_equal_to_the_model_on_one_text(folder, architecture, piece, layer):
    encoder = HuggingFaceWords(folder(architecture), piece=piece, layer=layer, device="cpu", batch_tokens=64)
    assert isinstance(encoder, WordEncoder)
    several = 0
    for text, (words, vectors) in zip(TEXTS, encoder.word_vectors(TEXTS), strict=True):
        expected_words, expected = by_hand(folder(architecture), text, piece, layer)
        assert words == expected_words
        assert vectors.dtype == np.float32
        if words:
            assert vectors == pytest.approx(expected, abs=2e-5)
            several += len(words)
    assert several > 25


def test_first_and_mean_differ_for_words_of_several_pieces(folder):
    encoders = [HuggingFaceWords(folder("bert"), piece=piece, device="cpu") for piece in ("first", "mean")]
    (words, first), (_, mean) = (encoder.word_vectors(["the zyx river"])[0] for encoder in encoders)
    assert words == ["the", "zyx", "river"]
    same = np.abs(first - mean).max(axis=1) < 1e-6
    assert same.tolist() == [True, False, True]


def test_a_way_to_multiply_is_no_format_to_load_a_model_in(folder):
    with pytest.raises(InputError, match="dtype='tf32' is not known; use one of 'float32', 'bfloat16', 'float16'"):
        HuggingFaceWords(folder("bert"), dtype="tf32", device="cpu").word_vectors(["the river"])


def test_a_ranker_is_read_no_further_than_it_reads(folder):
    """Its own limit holds where no other is given."""
    ranker = CrossEncoder(folder("bert"), max_length=6)
    texts = ["the old queen lives here and the king lives there"]
    [(words, vectors)] = HuggingFaceWords(ranker).word_vectors(texts)
    [(same, _)] = HuggingFaceWords(folder("bert"), max_length=6).word_vectors(texts)
    [(more, _)] = HuggingFaceWords(ranker, max_length=30).word_vectors(texts)
    assert words == same == more[: len(words)] and len(more) > len(words) == len(vectors)
    docs = pd.DataFrame({"docno": ["d"], "text": texts})
    assert MATSProbe(ranker).result(docs).occurrences == len(words)


@pytest.mark.parametrize("side", ["right", "left"])
def test_words_that_are_cut_are_left_out_and_reported(folder, side, tmp_path, caplog):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder("bert"), truncation_side=side)
    model = InMemory(AutoModel.from_pretrained(folder("bert")), tokenizer)
    # [CLS] and [SEP] leave room for four pieces; "zyx" has three.
    with caplog.at_level(logging.WARNING):
        [(words, vectors)] = HuggingFaceWords(model, max_length=6).word_vectors(["the old zyx queen lives"])
    assert "1 of 1 texts were cut to the window of 6 tokens" in caplog.text
    assert words == (["the", "old"] if side == "right" else ["queen", "lives"])
    assert len(vectors) == 2


def test_padding_at_the_left(folder):
    from transformers import AutoModel, AutoTokenizer

    left = AutoTokenizer.from_pretrained(folder("t5"), padding_side="left")
    model = InMemory(AutoModel.from_pretrained(folder("t5")), left)
    expected = HuggingFaceWords(folder("t5"), device="cpu").word_vectors(TEXTS)
    for (words, vectors), (other_words, others) in zip(HuggingFaceWords(model).word_vectors(TEXTS), expected, strict=True):
        assert words == other_words
        assert vectors == pytest.approx(others, abs=2e-5)


def test_rankers_are_read_as_they_are(folder, tmp_path):
    import torch

    tiny_models.build_sentence_transformer(tmp_path / "st")
    plain = HuggingFaceWords(str(tmp_path / "st"), device="cpu").word_vectors(TEXTS[:1])[0][1]
    ranker = BiEncoder(str(tmp_path / "st"), device="cpu")
    assert HuggingFaceWords(ranker).word_vectors(TEXTS[:1])[0][1] == pytest.approx(plain, abs=1e-6)
    cross = CrossEncoder(folder("bert"), head="mean", device="cpu")
    words = HuggingFaceWords(cross)
    before = words.word_vectors(TEXTS[:1])[0][1]
    assert before == pytest.approx(HuggingFaceWords(folder("bert"), device="cpu").word_vectors(TEXTS[:1])[0][1], abs=1e-6)
    with torch.no_grad():
        next(bare_encoder(cross.module).parameters()).mul_(-2.0)
    assert np.abs(words.word_vectors(TEXTS[:1])[0][1] - before).max() > 0.01


def test_sentence_transformers_folder_with_its_encoder_in_a_subfolder(folder, tmp_path):
    shutil.copytree(folder("bert"), tmp_path / "old" / "0_Transformer")
    (tmp_path / "old" / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "0_Transformer", "type": "any"}]')
    [(words, _)] = HuggingFaceWords(str(tmp_path / "old"), device="cpu").word_vectors(["the queen"])
    assert words == ["the", "queen"]


def test_pickles_without_weights(folder):
    encoder = HuggingFaceWords(folder("bert"), device="cpu")
    vectors = encoder.word_vectors(["the queen"])[0][1]
    copy = pickle.dumps(encoder)
    assert len(copy) < 2000
    assert pickle.loads(copy).word_vectors(["the queen"])[0][1] == pytest.approx(vectors)


def test_pieces_without_characters_touch_nothing():
    first, last = pieces_of(np.array([[0, 2], [3, 5]]), np.array([[0, 0], [0, 2], [2, 2]]))
    assert (last - first).tolist() == [1, 0]
    assert first[0] == 1
    assert [part.tolist() for part in pieces_of(np.array([[0, 2]]), np.empty((0, 2), np.int64))] == [[0], [0]]


BAD = [
    ({"layer": 7}, "layers 0 .embeddings. to 2, or -3 to -1"),
    ({"layer": -4}, "layers 0"),
    ({"piece": "last"}, "piece='last' is not known"),
    ({"dtype": "int8"}, "dtype='int8' is not known"),
    ({"max_length": 0}, "max_length=0"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(folder, options, message):
    with pytest.raises(InputError, match=f"^MATSProbe: .*{message}"):
        HuggingFaceWords(folder("bert"), device="cpu", stage="MATSProbe", **options).word_vectors(["the queen"])


@pytest.mark.parametrize(("encoder", "kind"), [(None, "None"), (3, "an int"), (["a"], "a list")])
def test_no_encoder_at_all(encoder, kind):
    with pytest.raises(InputError, match=f"the encoder is {kind}; give"):
        MATSProbe(encoder)(pd.DataFrame({"docno": ["d1"], "text": ["one text"]}))


def test_options_that_would_do_nothing_are_refused(folder):
    with pytest.raises(InputError, match="device and dtype cannot be set for a model that is in memory already"):
        HuggingFaceWords(CrossEncoder(folder("bert")), dtype="bfloat16").word_vectors(["the queen"])


def test_modules_without_an_encoder():
    import torch

    with pytest.raises(InputError, match="holds no Hugging Face encoder"):
        bare_encoder(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_missing_model(tmp_path):
    with pytest.raises(InputError, match="MATSProbe: there is no model folder"):
        MATSProbe(str(tmp_path / "nowhere"))(pd.DataFrame({"docno": ["d1"], "text": ["one text"]}))
