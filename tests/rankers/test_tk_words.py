"""GloVe text files and word tokenizers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyterrier_debias import TK, InputError
from pyterrier_debias.rankers.word_tokenizer import read_glove, without_special_tokens, word_tokenizer

LINES = [
    "the 0.1 0.2 0.3 0.4 0.5 0.6",
    ", 1 2 3 4 5 6",
    "river -1e-2 2.5 0 1 -1 0.25",
    "n't 1 1 1 1 1 2",
    ". . . 3 1 4 1 5 9",
    "über 1 0 1 0 1 0",
    "old 2 0 1 0 1 0",
]
SMALL = {"num_attention_heads": 2, "head_dim": 4, "intermediate_size": 8}


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.6d.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_words_and_vectors_are_those_of_the_file(glove):
    words, vectors = read_glove(glove)
    assert words == ["the", ",", "river", "n't", ". . .", "über", "old"]
    expected = [[float(value) for value in line.split()[-6:]] for line in LINES]
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)
    assert vectors.dtype == np.float32


def test_parts_of_a_file(glove):
    assert read_glove(glove, words={"river", "old", "unheard"})[0] == ["river", "old"]
    assert read_glove(glove, limit=2)[0] == ["the", ","]
    words, vectors = read_glove(glove, words=["old"], limit=5)
    assert words == ["old"]
    assert vectors.tolist() == [[2, 0, 1, 0, 1, 0]]


def test_other_forms_of_the_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"2 4\r\nthe 1 2 3 4 \r\nsea\xa0side 5 6 7 8\r\nthe 9 9 9 9\r\n")
    words, vectors = read_glove(path)
    assert words[0] == "the"
    assert vectors.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 1 2 3\nsea 1 2\n", "line 2: expected a word and 3 numbers"),
        ("the 1 2 3\nsea 1 x 2\n", "line 2: expected a word and 3 numbers"),
        ("the 1 2 3\nsea 1 nan 2\n", "line 2: expected a word and 3 numbers"),
        ("the\n", "line 1: expected a word"),
        ("", "holds no word vectors"),
    ],
)
def test_files_that_hold_something_else(tmp_path, content, message):
    path = tmp_path / "bad.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_glove(path)


def test_files_that_cannot_be_read(glove, tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_glove(tmp_path / "missing.txt")
    with pytest.raises(InputError, match="cannot be read"):
        TK.from_glove(tmp_path)
    with pytest.raises(InputError, match="for the requested words"):
        read_glove(glove, words=["unheard"])


def test_the_tokenizer_reads_words(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = word_tokenizer(["the", "river", ",", "über"])
    ids = [2, 3, 4, 1, 5]
    assert tokenizer("The river, Seine über")["input_ids"] == ids
    assert tokenizer("u\u0308ber")["input_ids"] == [5]  # composed, however it was typed
    assert word_tokenizer(["the"], lower_case=False)("The the")["input_ids"] == [1, 2]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("The river, Seine über")["input_ids"] == ids
    assert tokenizer("", return_attention_mask=False)["input_ids"] == []


def test_slow_tokenizers_are_refused():
    with pytest.raises(InputError, match="is not a fast tokenizer"):
        without_special_tokens(object())


def test_a_tk_over_glove(glove, tmp_path):
    tk = TK.from_glove(glove, config=SMALL, seed=2)
    table = tk.module.terms.embeddings.weight
    assert table.shape == (9, 6)
    torch.testing.assert_close(table[4], torch.tensor([-1e-2, 2.5, 0, 1, -1, 0.25]))
    assert table[:2].abs().sum() == 0
    docs = ["The old river.", "Unheard of, the Seine", "", "Nothing known"]
    scores = tk.score(["the river"] * 4, docs)
    assert np.isfinite(scores).all()
    assert scores[2] == pytest.approx(scores[3])  # unknown words match nothing
    assert scores[0] != pytest.approx(scores[1])
    none = TK.from_glove(glove, config=SMALL, positional="none")
    found = none.score(["the river", "the unheard river"] * 2, ["old , the"] * 2 + ["unheard old , the"] * 2)
    np.testing.assert_allclose(found, found[0], atol=1e-5)  # nor do they change what is around them, but for its place
    tk.save(tmp_path / "tk")
    again = TK(tmp_path / "tk")
    np.testing.assert_array_equal(again.score(["the river"] * 4, docs), scores)
    assert again.module.config.mask_unknown
    assert tk == TK.from_glove(glove, config=SMALL, seed=2)
    # The same weights read texts otherwise.
    assert tk != TK.from_glove(glove, config=SMALL, seed=2, lower_case=False)
    assert tk != TK.from_glove(glove, config={**SMALL, "max_position_embeddings": 3}, seed=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": {"convention": "paper"}}, r"config sets 'convention', which .*; write .*convention=\.\.\.\)"),
        ({"config": {"positional": "none"}}, "config sets 'positional', which is a separate argument"),
        ({"config": {"hidden_size": 9}}, "config sets 'hidden_size', which the embeddings and .* determine; leave it out"),
        ({"config": {"mask_unknown": False}}, "config sets 'mask_unknown', which the embeddings and their tokenizer determine"),
        ({"seed": -1}, "TK.from_glove: seed=-1 must be a whole number of at least 0"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        TK.from_glove("no such file", **options)
    if "mask_unknown" not in options.get("config", {}):
        with pytest.raises(InputError, match=message.replace("from_glove", "from_embeddings")):
            TK.from_embeddings("no such folder", **options)


def test_unknown_words_have_no_vector_but_a_place(glove):
    [(words, vectors)] = TK.from_glove(glove, config=SMALL).encode_documents(["The unheard river"])
    assert words == ["the", "unheard", "river"]
    assert (vectors[1] == 0).all()
    assert (vectors[[0, 2]] != 0).any(axis=1).all()
