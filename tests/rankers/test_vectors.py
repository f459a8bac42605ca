import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias.core.cache_key import cache_key
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.rankers.vectors import Vectors, dots, rounding, top_k


def sorted_in_full(query, documents, names, k):
    """What top_k has to find: every score in float64, a full sort, ties to the larger name."""
    scores = (documents.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    order = sorted(range(len(names)), key=lambda i: (scores[i], names[i]), reverse=True)[:k]
    return order, scores[order]


def longest(documents):
    return float(np.linalg.norm(documents.astype(np.float64), axis=1).max())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    k=st.integers(1, 30),
    blocks=st.integers(1, 50),
    query_rows=st.integers(1, 4),
    kind=st.sampled_from(["smooth", "tied", "same", "close"]),
)
def test_top_k_is_a_full_sort_whatever_the_blocks(seed, n, k, blocks, query_rows, kind):
    rng = np.random.default_rng(seed)
    documents = rng.normal(size=(n, 24)).astype(np.float32)
    if kind == "tied":
        documents = documents[rng.integers(0, max(n // 4, 1), size=n)]
    elif kind == "same":
        documents[:] = documents[0]
    elif kind == "close":  # scores differ by less than float32 can tell
        documents = (documents[:1] + 1e-7 * documents).astype(np.float32)
    queries = rng.normal(size=(5, 24)).astype(np.float32)
    names = np.array([f"d{i}" for i in rng.permutation(n)], dtype=np.bytes_)
    found = list(
        top_k(queries, documents, names, k, longest=longest(documents), query_rows=query_rows, block_rows=blocks)
    )
    assert len(found) == 5
    for query, (rows, scores) in zip(queries, found):
        expected, values = sorted_in_full(query, documents, names, k)
        np.testing.assert_allclose(scores, values, atol=1e-12)
        if kind != "close":  # there the order of summation in float64 may decide
            assert rows.tolist() == expected
        assert np.array_equal(scores, dots(query, documents[rows]))


def test_same_result_for_every_block_size_and_batch_of_queries():
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(500, 64)).astype(np.float32)
    documents[250:] = documents[:250]
    names = np.array([f"{i:03}" for i in range(500)], dtype=np.bytes_)
    queries = rng.normal(size=(9, 64)).astype(np.float32)
    reference = [rows.tolist() for rows, _ in top_k(queries, documents, names, 7, longest=longest(documents))]
    for block_rows, query_rows in [(1, 1), (7, 2), (64, 9), (499, 3)]:
        again = top_k(
            queries, documents, names, 7, longest=longest(documents), block_rows=block_rows, query_rows=query_rows
        )
        assert [rows.tolist() for rows, _ in again] == reference


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), d=st.sampled_from([1, 8, 384, 1024]))
def test_float32_products_stay_within_the_bound(seed, d):
    rng = np.random.default_rng(seed)
    documents, queries = rng.normal(size=(40, d)).astype(np.float32), rng.normal(size=(3, d)).astype(np.float32)
    exact = queries.astype(np.float64) @ documents.astype(np.float64).T
    assert (np.abs(queries @ documents.T - exact) <= rounding(queries, longest(documents))[:, None]).all()


def batches_of(n, d=4, size=3):
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, d)).astype(np.float32)
    names = [f"dö{i}" for i in range(n)]
    return matrix, names, [(names[i : i + size], matrix[i : i + size]) for i in range(0, n, size)]


def test_a_folder_holds_what_was_written(tmp_path):
    matrix, names, batches = batches_of(10)
    written = Vectors.write(tmp_path / "v", iter(batches), probe=np.array([0.5, 2.0]))
    assert isinstance(written.matrix, np.memmap)
    for vectors in (written, Vectors.load(tmp_path / "v"), pickle.loads(pickle.dumps(written))):
        assert np.array_equal(vectors.matrix, matrix)
        assert [name.decode() for name in vectors.docnos] == names
        assert (len(vectors), vectors.dimensions, vectors.probe) == (10, 4, (0.5, 2.0))
        assert vectors.longest == pytest.approx(longest(matrix))
        assert vectors == written and hash(vectors) == hash(written)
    assert np.array_equal(np.load(tmp_path / "v" / "vectors.npy"), matrix)
    assert len(pickle.dumps(written)) < 500


def test_a_folder_that_was_written_anew_is_another_one(tmp_path):
    """Although the number of documents, the longest vector and the probe stay."""
    _, names, batches = batches_of(10)
    first = Vectors.write(tmp_path / "v", batches, probe=[1.0])
    pickled, key = pickle.dumps(first), cache_key(first, exact=True)
    assert Vectors.write(tmp_path / "v", batches, probe=[1.0], overwrite=True) == first
    for turned in ([(list(reversed(names)), batches_of(10)[0])], [(names, batches_of(10)[0][::-1])]):
        second = Vectors.write(tmp_path / "v", turned, probe=[1.0], overwrite=True)
        assert second.longest == first.longest and second != first and second == Vectors.load(tmp_path / "v")
        assert cache_key(second, exact=True) != key
        with pytest.raises(InputError, match=r"BiEncoder: \S+v holds other vectors now than when they were pickled; .* of its"):
            pickle.loads(pickled)
    assert pickle.loads(pickle.dumps(second)) == second
    (tmp_path / "v" / MANIFEST).unlink()
    assert Vectors.load(tmp_path / "v") == second and pickle.loads(pickle.dumps(second)) == second
    older = Vectors.__new__(Vectors)
    older.__setstate__({"folder": second.folder})  # as pickled by an older version
    assert older == second


def test_vectors_in_memory_pickle_with_their_content():
    matrix, _, batches = batches_of(5)
    vectors = Vectors.gather(batches)
    again = pickle.loads(pickle.dumps(vectors))
    assert np.array_equal(again.matrix, matrix) and vectors != again and vectors == vectors


def test_header_leaves_room_for_many_documents(tmp_path):
    # Ten documents and a hundred thousand have headers of one length.
    rows = ((([f"{i}-{j}" for j in range(10_000)]), np.full((10_000, 1), i, np.float32)) for i in range(11))
    assert len(Vectors.write(tmp_path / "v", rows)) == 110_000
    assert np.load(tmp_path / "v" / "vectors.npy")[[0, -1], 0].tolist() == [0, 10]


def test_nothing_is_left_of_a_folder_that_was_not_finished(tmp_path):
    def broken():
        yield ["d1"], np.ones((1, 2))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Vectors.write(tmp_path / "v", broken())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "holds no documents"),
        ([(["d1"], [[1.0]]), (["d1"], [[2.0]])], "'d1' occurs twice"),
        ([(["d1", "d2"], [[1.0], [np.nan]])], "'d2' is not finite"),
        ([(["d1"], [[1j]])], "holds complex numbers"),
        ([(["d1", "d2"], np.eye(3))], r"a batch of 2 documents has representations of shape \(3, 3\); give one row for each"),
        ([(["d1", "d2"], np.eye(1))], r"a batch of 2 documents has representations of shape \(1, 1\)"),
        ([(["d1"], [1.0])], r"a batch of 1 documents has representations of shape \(1,\)"),
        ([(["d1"], [[1.0]]), (["d2"], [[1.0, 2.0]])], r"1 documents has representations of shape \(1, 2\).*equal length"),
    ],
)
def test_bad_batches(tmp_path, batches, message):
    for make in (Vectors.gather, lambda b: Vectors.write(tmp_path / "v", b)):
        with pytest.raises(InputError, match=message):
            make([(names, np.array(rows)) for names, rows in batches])
    assert not (tmp_path / "v").exists()


def test_bad_folders(tmp_path):
    _, _, batches = batches_of(3)
    Vectors.write(tmp_path / "v", batches)
    with pytest.raises(InputError, match="exists already"):
        Vectors.write(tmp_path / "v", batches)
    Vectors.write(tmp_path / "v", batches[:1], overwrite=True)
    with pytest.raises(InputError, match="not a folder of vectors"):
        Vectors.load(tmp_path / "nowhere")
    np.save(tmp_path / "v" / "docnos.npy", np.array([b"one"]))
    with pytest.raises(InputError, match=r"v is damaged: docnos.npy has changed since it was written"):
        Vectors.load(tmp_path / "v")
    (tmp_path / "v" / MANIFEST).unlink()  # as of an older version
    with pytest.raises(InputError, match="do not belong together"):
        Vectors.load(tmp_path / "v")
    (tmp_path / "v" / "vectors.npy").write_bytes(b"cut off")
    with pytest.raises(InputError, match="not a folder of vectors"):
        Vectors.load(tmp_path / "v")
