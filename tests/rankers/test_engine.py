"""The scoring engine against Hugging Face's own encoding, and its promises about batches."""

from __future__ import annotations

import copy
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyterrier as pt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias.rankers import engine
from pyterrier_debias.rankers.engine import (
    Cuts,
    DistinctTexts,
    Gathered,
    Sequences,
    Template,
    ahead,
    batches,
    cut_lengths,
    gather,
    in_chunks,
    moved,
    on_their_way,
    plan,
    report_cuts,
    token_ids,
)
from tests import tiny_models

TOKENIZERS = {
    "bert": tiny_models.wordpiece_tokenizer(),
    "roberta": tiny_models.byte_tokenizer(),
    "t5": tiny_models.unigram_tokenizer(),
}

texts = st.lists(st.sampled_from([*tiny_models.WORDS, "Zürich", "e=mc2", "[SEP]", "…", "don't", "  "]), max_size=30).map(" ".join)
lengths = st.lists(st.integers(1, 60), max_size=40).map(lambda values: np.array(values, dtype=np.int64))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("truncation", ["longest_first", "only_second"])
@settings(max_examples=60)
@given(query=texts, doc=texts, window=st.integers(8, 40))
def test_pairs_are_encoded_as_the_tokenizer_encodes_them(name, truncation, query, doc, window):
    tokenizer = TOKENIZERS[name]
    ids = token_ids(tokenizer, [query, doc])
    ours = Sequences(Template.pair(tokenizer), window, ids[:1], ids[1:], truncation=truncation)
    if truncation == "only_second" and len(ids[0]) + Template.pair(tokenizer).special >= window:
        assert ours.lengths[0] <= window  # The tokenizer itself gives up here.
        return
    theirs = tokenizer([query], [doc], truncation=truncation, max_length=window)
    assert ours.ids(0).tolist() == theirs["input_ids"][0]
    assert ours.types(0).tolist() == theirs.get("token_type_ids", [[0] * len(theirs["input_ids"][0])])[0]
    assert ours.lengths[0] == len(theirs["input_ids"][0])
    assert ours.cut[0] == len(tokenizer([query], [doc])["input_ids"][0]) - ours.lengths[0]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(text=texts, window=st.integers(4, 40))
def test_single_texts_are_encoded_as_the_tokenizer_encodes_them(name, text, window):
    tokenizer = TOKENIZERS[name]
    ours = Sequences(Template.single(tokenizer), window, token_ids(tokenizer, [text]))
    assert ours.ids(0).tolist() == tokenizer(text, truncation=True, max_length=window)["input_ids"]


def test_texts_are_cut_on_the_side_that_the_tokenizer_cuts():
    tokenizer = tiny_models.wordpiece_tokenizer()
    tokenizer.truncation_side = "left"
    query, doc = "who built the bridge", "the old river city and the new harbour market"
    ids = token_ids(tokenizer, [query, doc])
    ours = Sequences(Template.pair(tokenizer), 10, ids[:1], ids[1:], side="left")
    assert ours.ids(0).tolist() == tokenizer(query, doc, truncation=True, max_length=10)["input_ids"]


@given(first=st.integers(0, 50), second=st.integers(0, 50), room=st.integers(0, 60))
def test_cut_pairs_fill_the_room_and_grow_nowhere(first, second, room):
    kept = cut_lengths(np.array([first]), np.array([second]), room)
    assert kept[0][0] <= first and kept[1][0] <= second
    assert kept[0][0] + kept[1][0] == min(first + second, room)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_padded_batch_is_the_tokenizers_own(name):
    tokenizer = TOKENIZERS[name]
    queries, docs = ["who built it", "what", "where is the river"], ["the king built the bridge", "", "north"]
    ours = Sequences(Template.pair(tokenizer), 128, token_ids(tokenizer, queries), token_ids(tokenizer, docs))
    theirs = tokenizer(queries, docs, padding=True, return_tensors="pt")
    padded = ours.padded(np.arange(3), tokenizer)
    assert padded.keys() == theirs.keys()
    for key in padded:
        assert torch.equal(padded[key], theirs[key])


def test_equal_texts_are_tokenised_once():
    calls = []

    class Counting:
        def __call__(self, batch, **options):
            calls.extend(batch)
            return TOKENIZERS["bert"](batch, **options)

    ids = token_ids(Counting(), ["a b", "c", "a b", "c", "a b"])
    assert calls == ["a b", "c"]
    assert ids[0] is ids[2] is ids[4]


def test_a_tokenizer_that_changes_texts_is_called_itself():
    class Shouting(type(TOKENIZERS["bert"])):
        def __call__(self, text, **options):
            return super().__call__([f"{one} !" for one in text], **options)

    own = copy.copy(TOKENIZERS["bert"])
    own.__class__ = Shouting
    once, other = token_ids(TOKENIZERS["bert"], ["a !", "b !"])
    assert [ids.tolist() for ids in token_ids(own, ["a", "b"])] == [once.tolist(), other.tolist()]


def test_a_tokenizer_that_cuts_or_pads_does_not_here():
    tokenizer = copy.deepcopy(TOKENIZERS["bert"])
    tokenizer(["a b"], truncation=True, max_length=4, padding="max_length")  # leaves both switched on in the Rust tokenizer
    assert [len(ids) for ids in token_ids(tokenizer, ["the king " * 9, "the river " * 20, "a"])] == [18, 40, 1]


def test_what_is_cut_is_reported_once_with_numbers(caplog):
    tokenizer = TOKENIZERS["bert"]
    ids = token_ids(tokenizer, ["the king", "the river " * 20, "the old bridge " * 10])
    sequences = Sequences(Template.single(tokenizer), 12, ids)
    with caplog.at_level(logging.WARNING):
        report_cuts("Stage", 12, sequences.cut, sequences.lengths)
    # 40 and 30 words stand in a room of 10.
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "Stage: 2 of 3 texts were cut to the window of 12 tokens and lost 50 of 78 tokens"
    ]
    caplog.clear()
    whole = Sequences(Template.single(tokenizer), 128, ids)
    report_cuts("Stage", 128, whole.cut, whole.lengths)
    assert not caplog.records


@given(lengths=lengths, budget=st.integers(1, 200), padded=st.booleans())
def test_a_plan_holds_everything_once_within_its_budget(lengths, budget, padded):
    found = plan(lengths, budget, padded=padded)
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        cost = len(batch) * lengths[batch].max() if padded else lengths[batch].sum()
        assert cost <= budget or len(batch) == 1
    in_order = np.concatenate([lengths[batch] for batch in found]) if found else np.array([])
    assert np.all(np.diff(in_order) <= 0)


@given(lengths=lengths, budget=st.integers(60, 400), memory=st.integers(60, 400), padded=st.booleans())
def test_out_of_memory_halves_the_budget_and_goes_on(lengths, budget, memory, padded):
    def compute(indices):
        if lengths[indices].sum() > memory:
            raise torch.OutOfMemoryError("fake")
        return torch.from_numpy(lengths[indices]).double() * 2

    found = gather(len(lengths), batches(lengths, compute, batch_tokens=budget, padded=padded))
    assert found.tolist() == (lengths * 2).tolist()


@pytest.mark.parametrize("padded", [True, False])
def test_the_budget_is_halved_once_for_all_batches_that_are_too_large(padded):
    """Batches that were made before are not tried at their old size: each would halve the budget again."""
    lengths, tried = np.full(400, 10), []

    def compute(indices):
        tried.append(len(indices) * 10)
        if tried[-1] > 700:
            raise torch.OutOfMemoryError("fake")
        return torch.zeros(len(indices))

    assert len(gather(400, batches(lengths, compute, batch_tokens=1000, padded=padded))) == 400
    assert max(tried[1:]) <= 500 and tried.count(500) == 8 and len(tried) == 9


def test_out_of_memory_for_one_text_alone_is_an_error_and_so_is_any_other():
    def full(indices):
        raise torch.OutOfMemoryError("fake")

    def broken(indices):
        raise RuntimeError("shapes differ")

    with pytest.raises(torch.OutOfMemoryError):
        list(batches(np.array([5, 5]), full, batch_tokens=100))
    with pytest.raises(RuntimeError, match="shapes differ"):
        list(batches(np.array([5, 5]), broken, batch_tokens=100))


def test_nothing_is_recorded_for_gradients():
    weights = torch.ones(3, requires_grad=True)
    [(_, result)] = batches(np.array([1, 1, 1]), lambda indices: weights[indices] * 2, batch_tokens=10)
    assert result.is_inference()
    assert torch.is_grad_enabled()


def test_progress_is_shown_on_request_only(monkeypatch):
    shown = []

    class Bar:
        def __init__(self, *args, disable, total, **options):
            self.disable, self.total, self.seen = disable, total, 0
            shown.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, n):
            self.seen += n

    monkeypatch.setattr(pt, "tqdm", Bar)
    for verbose in (True, False):
        list(batches(np.array([3, 1, 2]), lambda indices: torch.zeros(len(indices)), batch_tokens=3, verbose=verbose))
    assert [(bar.disable, bar.total, bar.seen) for bar in shown] == [(False, 3, 3), (True, 3, 3)]


def test_threads_may_tokenise_at_the_same_time():
    tokenizer = TOKENIZERS["bert"]
    batch = [f"{word} the river {i}" for i, word in enumerate(tiny_models.WORDS)]
    expected = [ids.tolist() for ids in token_ids(tokenizer, batch)]

    def work(i):
        tokenizer_template = Template.pair(tokenizer)
        return [ids.tolist() for ids in token_ids(tokenizer, batch)], tokenizer_template

    with ThreadPoolExecutor(8) as pool:
        for found, template in pool.map(work, range(32)):
            assert found == expected
            assert template == Template.pair(tokenizer)


def test_no_sequences_give_no_results():
    assert gather(0, batches(np.array([], dtype=np.int64), lambda indices: None, batch_tokens=10)).shape == (0,)


# Ahead of the device


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pyterrier_debias-ahead")]


def test_items_are_made_ahead_in_another_thread_and_come_in_order():
    made, seen = [], threading.Semaphore(0)

    def items():
        for i in range(6):
            made.append((i, threading.current_thread().name))
            seen.release()
            yield i

    found = ahead(items(), depth=2)
    assert next(found) == 0
    for _ in range(3):  # the first one, and two more that nobody has asked for
        assert seen.acquire(timeout=60)
    assert not seen.acquire(timeout=0.2)  # and no others
    assert list(found) == [1, 2, 3, 4, 5]
    assert [i for i, _ in made] == list(range(6))
    assert all(name.startswith("pyterrier_debias-ahead") for _, name in made)
    assert not threads()


def test_an_exception_in_the_thread_reaches_the_reader_in_its_place():
    def items():
        yield 1
        yield 2
        raise KeyError("third")

    found = ahead(items())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(KeyError, match="third"):
        next(found)
    assert not threads()


@pytest.mark.parametrize("leave", ["close", "raise"])
def test_no_thread_is_left_behind_by_a_reader_that_stops(leave):
    found = ahead(iter(range(1000)))
    assert next(found) == 0 and threads()
    if leave == "close":
        found.close()
    else:
        with pytest.raises(ZeroDivisionError):
            for _ in found:
                _ = 1 / 0
        del found
    assert not threads()


def test_tokenising_and_batches_are_made_in_the_thread_and_computed_in_the_callers():
    here, seen = threading.current_thread(), {"begin": set(), "prepare": set(), "compute": set()}
    values = np.arange(100.0)

    def begin(rows):
        seen["begin"].add(threading.current_thread())
        own = values[rows]

        def prepare(indices):
            seen["prepare"].add(threading.current_thread())
            return torch.from_numpy(own[indices])

        return np.ones(len(own), dtype=np.int64), prepare

    def compute(batch):
        seen["compute"].add(threading.current_thread())
        return batch * 2

    found = gather(100, in_chunks(100, begin, compute, batch_tokens=7, chunk=30))
    assert found.tolist() == (values * 2).tolist()
    assert seen["compute"] == {here} and here not in seen["begin"] | seen["prepare"]
    assert not threads()


def test_few_texts_start_no_thread():
    names = []
    list(batches(np.ones(8, dtype=int), lambda i: names.append(threading.current_thread().name) or 0, batch_tokens=3,
                 prepare=lambda indices: names.append(threading.current_thread().name)))  # fmt: skip
    assert set(names) == {threading.current_thread().name}


@settings(max_examples=40)
@given(lengths=lengths, budget=st.integers(60, 400), memory=st.integers(60, 400), chunk=st.integers(1, 50), padded=st.booleans())
def test_chunks_change_no_result_even_where_memory_is_full(lengths, budget, memory, chunk, padded):
    def begin(rows):
        own = lengths[rows]
        return own, lambda indices: own[indices]

    def compute(batch):
        if batch.sum() > memory:
            raise torch.OutOfMemoryError("fake")
        return torch.from_numpy(batch).double() * 2

    many = np.tile(lengths, 4)
    lengths = many
    found = gather(len(many), in_chunks(len(many), begin, compute, batch_tokens=budget, padded=padded, chunk=chunk))
    assert found.tolist() == (many * 2).tolist()


def test_an_exception_while_tokenising_is_the_callers():
    def begin(rows):
        raise ValueError(f"text {rows.start} has no tokens")

    with pytest.raises(ValueError, match="text 0 has no tokens"):
        list(in_chunks(500, begin, lambda batch: batch, batch_tokens=10))
    assert not threads()


def test_results_wait_on_the_device_and_come_in_one_copy(monkeypatch):
    copies, cat = [], torch.cat
    monkeypatch.setattr(engine, "_waits", lambda rows: True)
    monkeypatch.setattr(torch, "cat", lambda parts: copies.append(len(parts)) or cat(parts))
    values = torch.arange(12.0)[:, None] * torch.ones(1, 3)
    parts = [np.array([5, 1, 3]), np.array([0, 2, 4]), np.arange(6, 12)]
    assert gather(12, ((rows, values[rows]) for rows in parts)).tolist() == values.tolist()
    assert copies == [3]
    monkeypatch.setattr(engine, "_HELD", 10)  # more than 10 numbers do not wait
    assert gather(12, ((rows, values[rows]) for rows in parts)).tolist() == values.tolist()
    assert copies == [3, 2, 1]


def test_gathered_takes_arrays_in_double_precision():
    gathered = Gathered(3, dtype=np.float64)
    gathered.add(np.array([2, 0]), np.array([1 / 3, 2 / 3]))
    gathered.add(np.array([1]), torch.tensor([0.5]))
    assert gathered.array().tolist() == [2 / 3, 0.5, 1 / 3]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("vwxyz")), min_size=1), st.randoms(use_true_random=False))
def test_each_document_has_its_own_pairs(pairs, draw):
    distinct, seen = DistinctTexts(*zip(*pairs)), []
    order = list(range(len(distinct.docs)))
    draw.shuffle(order)
    for indices in filter(len, np.array_split(order, 2)):
        rows, query_rows, doc_rows = distinct.of(indices)
        found = [(distinct.queries[q], distinct.docs[indices[d]]) for q, d in zip(query_rows, doc_rows)]
        assert found == [pairs[row] for row in rows]
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(pairs)))
    assert [distinct.queries, distinct.docs] == [list(dict.fromkeys(texts)) for texts in zip(*pairs)]


def test_a_result_is_handed_out_after_the_next_one_was_computed():
    order = []

    def found():
        for i in range(3):
            order.append(f"computed {i}")
            yield np.array([i]), torch.tensor([float(i)])

    for indices, rows in on_their_way(found()):
        order.append(f"read {indices[0]}")
        assert isinstance(rows, np.ndarray) and rows.tolist() == [float(indices[0])]
    assert order == ["computed 0", "computed 1", "read 0", "computed 2", "read 1", "read 2"]


def test_copies_to_cuda_are_pinned_and_not_waited_for():
    calls = []

    class OnProcessor:
        device = torch.device("cpu")

        def pin_memory(self):
            calls.append("pinned")
            return self

        def to(self, device, non_blocking=False):
            calls.append((device.type, non_blocking))
            return self

    moved(OnProcessor(), torch.device("cuda"))
    moved(OnProcessor(), torch.device("mps"))
    assert calls == ["pinned", ("cuda", True), ("mps", False)]
    array = np.arange(3)
    assert moved(array, torch.device("cpu")).data_ptr() == array.ctypes.data


def test_what_was_cut_is_reported_over_all_chunks(caplog):
    cuts = Cuts()
    assert [part.tolist() for part in cuts.all()] == [[], []]
    cuts.add(np.array([0, 4]), np.array([3, 8]))
    cuts.add(np.array([2]), np.array([8]))
    with caplog.at_level(logging.WARNING):
        report_cuts("Stage", 8, *cuts.all())
    assert "2 of 3 texts were cut to the window of 8 tokens and lost 6 of 25 tokens" in caplog.text


def test_tf32_is_for_the_batches_that_ask_for_it_and_float32_for_all_others(monkeypatch):
    """torch's switch is there without a GPU, too; it is put back as it was found."""
    from pyterrier_debias.training.precision import tf32

    def allowed():
        switch = torch.backends.cuda.matmul
        return switch.fp32_precision == "tf32" if hasattr(switch, "fp32_precision") else switch.allow_tf32

    def seen(asked):
        return {result for _, result in batches_with(asked)}

    def batches_with(asked):
        return in_chunks(40, lambda rows: (np.ones(40, int), lambda i: i), lambda i: allowed(), batch_tokens=9, tf32=asked)

    assert seen(True) == {False}  # no device that multiplies in TF32 is in use
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert seen(True) == {True} and not allowed()
    assert seen(False) == {False}
    with tf32(True):
        assert allowed() and seen(False) == {False} and allowed()
        with pytest.raises(ZeroDivisionError), tf32(False):
            _ = 1 / 0
        assert allowed()
    assert not allowed()
