"""ATS and MATS: how much a word's vector depends on its position. The code works on arrays, without frames or a neural library.

Symbols of Hofstätter et al. 2021, section 5: T is the set of terms, r_a^t the vector of an occurrence of term t at position a,
D a distance between positions, C_{t,D} the pairs of occurrences of t whose positions a and b differ by D, and::

    ATS(D) = 1/|T| sum_t 1/|C_{t,D}| sum_{pairs in C_{t,D}} cos(r_a^t, r_b^t)
    MATS   = 1/(max D - 1) sum_{i=1..max D} (ATS(0) - ATS(i))

There are quadratically many pairs, but the mean does not require visiting them: with u the unit vector of r, and S_{t,a} the sum
of u over the occurrences of t at position a, the pairs of t at distance D > 0 sum to ``sum_a S_{t,a}.S_{t,a+D}``, those at
distance 0 to half of ``sum_a (S_{t,a}.S_{t,a} - n_{t,a})``. Pairs within one passage are few; they are counted separately and
subtracted where they do not belong. The squares of the cosines sum in the same way over second moments, since ``(u.v)^2 = <u u',
v v'>``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, check_number, one_line
from pyterrier_debias.core.files import read_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.core.vectors import real_array
from pyterrier_debias.position.formulas.mats_kept import Grown, Kept, KeyedSums, Ordered
from pyterrier_debias.position.formulas.mats_pairs import BLOCK, LOOK_UP, inner_pairs, key_of, pair_sums, units_of
from pyterrier_debias.position.formulas.mats_result import PAIR_SCOPES, ROUNDING, DeltaSums, MATSResult

#: Words of one passage, and one vector each: shape [n, d].
Passage = tuple[Sequence[str], np.ndarray]

#: The most multiplications for one word's squared cosines; beyond, they are estimated from a sample of its occurrences.
_WORK = 10**11

_FORMAT = 2

#: Pickles of earlier versions look for these names in this module.
_Grown, _KeyedSums, _Kept = Grown, KeyedSums, Kept

logger = logging.getLogger(__name__)


def _text_key(text: str) -> int:
    return keyed_hash(0, "mats text", text)


class MATSAccumulator(Saved):
    """The sums that ATS and MATS need, over passages that come in any order and in any number of pieces.

    Give each passage once. Shards that are accumulated separately and merged in any order give the same result as one pass.

    The sums take d + 1 float64 numbers in memory for each word and position that were seen together (at most words x positions).
    For the spread over pairs, the vectors themselves are also kept, unchanged, up to ``memory`` bytes. Beyond that limit, or if
    ``sample`` is set, each word keeps the k occurrences whose keyed hash of (seed, docno, position) is smallest, where k is the
    largest power of two that fits. This is a uniform sample that does not depend on the order of passages. The spread within
    words is then estimated by the mean squared deviation of the sampled pairs' cosines from the word's mean; this mean, like all
    means, is exact. The same is done if one word alone would take minutes, such as a word that one passage repeats tens of
    thousands of times.

    Passages with equal texts: :meth:`fresh` shows which to leave out. A shard knows only its own texts, so put equal texts into
    one shard.

    When not to use it: on documents of many thousand words, whose positions are too many to compare word by word.

    Args:
        sample: None: exact while it fits into ``memory``. k >= 2: at most k occurrences of a word are kept for the spread over
            pairs; 0: no spread over pairs.
        memory: Bytes for the vectors that are kept for the spread over pairs.
        seed: Seed of the sample.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> passages = [("the cat saw the dog".split(), rng.normal(size=(5, 8))) for _ in range(4)]
        >>> one = MATSAccumulator().update(list("abcd"), passages)
        >>> parts = [MATSAccumulator().update(["a"], passages[:1]), MATSAccumulator().update(list("bcd"), passages[1:])]
        >>> two = parts[1].merge(parts[0])
        >>> bool(np.allclose(one.result().curve()["ats"], two.result().curve()["ats"]))
        True
    """

    ARTIFACT_TYPE = "attributions"

    def __init__(self, *, sample: int | None = None, memory: int = 2 * 2**30, seed: int = 0):
        if sample is not None:
            check_number("MATS", "sample", sample, least=0, whole=True)
        if sample == 1:
            raise InputError(f"MATS: sample={sample} is not possible; use 0 (no spread over pairs), 2 or more, or None (all)")
        self.sample = sample
        self.memory = memory
        self.seed = seed
        self.passages = 0
        self.skipped = 0
        self.duplicates = 0
        self.dimensions: int | None = None
        self._terms: dict[str, int] = {}
        self.occurrences = 0
        self._cells = KeyedSums()
        self._within = KeyedSums()
        self._kept = Kept(sample, memory)
        self._texts: set[int] = set()

    def fresh(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are new: neither earlier in ``texts`` nor remembered. This call remembers nothing.

        Args:
            texts: The passages' texts.

        Returns:
            True or False for each text.

        Example:
            >>> words = MATSAccumulator()
            >>> before = words.fresh(["a b", "c", "a b"])
            >>> words.remember(["a b", "c"])
            >>> before, words.fresh(["c"])
            ([True, True, False], [False])
        """
        own: set[int] = set()
        found = []
        for key in map(_text_key, texts):
            found.append(key not in self._texts and key not in own)
            own.add(key)
        return found

    def remember(self, texts: Sequence[str]) -> None:
        """Remember texts as seen; give only those of passages that were added, since adding a passage may fail.

        Args:
            texts: The texts of passages that were added.
        """
        self._texts.update(map(_text_key, texts))

    def update(self, docnos: Sequence[str], passages: Sequence[Passage]) -> MATSAccumulator:
        """Add passages.

        Args:
            docnos: One name per passage.
            passages: For each passage its words and their vectors, shape [n, d]; a word's position is its index.

        Returns:
            The accumulator itself.

        Raises:
            InputError: If words and vectors do not match in number, or vectors are not real, finite numbers, or not all of the
                same length.
        """
        if len(set(docnos)) != len(passages):
            raise InputError(
                f"MATS: {len(passages)} passages have {len(set(docnos))} different docnos; give each passage its own docno"
            )
        matrices = [self._checked(docno, words, vectors) for docno, (words, vectors) in zip(docnos, passages)]
        self.passages += len(passages)
        matrices = [matrix for matrix in matrices if len(matrix)]
        if not matrices:
            return self
        ids = self._terms
        terms = np.fromiter((ids.setdefault(w, len(ids)) for words, _ in passages for w in words), dtype=np.int64)
        lengths = np.array([len(words) for words, _ in passages])
        positions = np.concatenate([np.arange(n) for n in lengths])
        passage = np.repeat(np.arange(len(passages)), lengths)
        raw = np.concatenate(matrices)
        units, real = units_of(raw)
        if not real.all():
            self.skipped += int(len(real) - real.sum())
            terms, positions, passage, raw, units = (part[real] for part in (terms, positions, passage, raw, units))
        self.occurrences += len(terms)
        self._cells.add(key_of(terms, positions), units)
        for keys, sums in inner_pairs(passage << 32 | terms, terms, positions, units[:, :-1], squares=False):
            self._within.add(keys, sums[:, ::-1])
        if self.sample != 0:
            names = np.array([keyed_hash(self.seed, "mats", docno) for docno in docnos], dtype=np.uint64)
            self._kept.add(terms, positions, names[passage], raw)
        return self

    def _checked(self, docno: str, words: Sequence[str], vectors: Any) -> np.ndarray:
        matrix = np.asarray(vectors)
        if not len(words) and not matrix.size:
            return np.empty((0, 0), dtype=np.float32)  # what encoders give for an empty text, in whatever shape
        matrix = real_array(matrix, f"MATS: the matrix of passage {docno!r}", None)
        if matrix.dtype.kind not in "fiu":
            raise InputError(
                f"MATS: the vectors of passage {docno!r} are of type {matrix.dtype}; the encoder must return numbers"
            )
        if matrix.ndim != 2 or len(matrix) != len(words):
            raise InputError(
                f"MATS: passage {docno!r} has {len(words)} words and vectors of shape {matrix.shape}; the encoder must return "
                f"one vector per word, shape [words, dimensions]"
            )
        if self.dimensions is None:
            self.dimensions = matrix.shape[1]
        if matrix.shape[1] != self.dimensions:
            raise InputError(
                f"MATS: passage {docno!r} has vectors of {matrix.shape[1]} dimensions, but earlier passages have "
                f"{self.dimensions}; use one encoder and one layer for all passages"
            )
        if not np.isfinite(matrix).all():
            raise InputError(f"MATS: the vectors of passage {docno!r} contain NaN or infinity; check the encoder and its dtype")
        return matrix if matrix.dtype == np.float64 else matrix.astype(np.float32, copy=False)

    def merge(self, other: MATSAccumulator) -> MATSAccumulator:
        """Add the sums of another accumulator, made from other passages; the other accumulator is not changed.

        Args:
            other: Made with the same options, and with vectors of the same length.

        Returns:
            The accumulator itself.

        Raises:
            InputError: If options or vectors differ.
        """
        mine, theirs = (self.sample, self.memory, self.seed), (other.sample, other.memory, other.seed)
        if mine != theirs:
            raise InputError(
                f"MATS: accumulators with (sample, memory, seed) {mine} and {theirs} cannot be merged; make both with the same "
                f"options"
            )
        if None not in (self.dimensions, other.dimensions) and self.dimensions != other.dimensions:
            raise InputError(
                f"MATS: vectors of {self.dimensions} and of {other.dimensions} dimensions cannot be merged; use one encoder and "
                f"one layer for both"
            )
        self.dimensions = self.dimensions or other.dimensions
        both = len(self._texts & other._texts)
        if both:
            logger.warning(
                "MATS: %d texts are in both accumulators and count twice after merging; put equal texts in one shard", both
            )
        self._texts |= other._texts
        self.duplicates += other.duplicates
        self.passages += other.passages
        self.skipped += other.skipped
        self.occurrences += other.occurrences
        ids = self._terms
        mapped = np.fromiter((ids.setdefault(w, len(ids)) for w in list(other._terms)), dtype=np.int64, count=len(other._terms))
        for own, foreign in ((self._cells, other._cells), (self._within, other._within)):
            keys = foreign.keys()
            own.add(key_of(mapped[keys >> 32], keys & 0xFFFFFFFF), foreign.values)
        self._kept.merge(other._kept, mapped)
        return self

    def result(
        self,
        *,
        min_pairs: int = 1,
        pair_scope: str = "cross_passage",
        normaliser: str = "paper",
        term_average: str = "present",
        std: str = "deltas",
        max_delta: int | None = None,
        ddof: int = 0,
    ) -> MATSResult:
        """ATS and MATS of the passages added so far; more may be added afterwards.

        Args:
            min_pairs: The fewest pairs with which a word counts at a distance; at least 1.
            pair_scope: Convention of the result, see :class:`MATSProbe`.
            normaliser: Likewise.
            term_average: Likewise.
            std: Likewise.
            max_delta: Likewise.
            ddof: Likewise.

        Returns:
            The result. Time is linear in the number of (word, position) cells. For the spread, it is also proportional to the
            kept occurrences times the smaller of d and the occurrences kept per word.
        """
        cells = self._cells.ordered()
        limit, kept = self._kept.by_term(self._affordable(cells))
        size = int((cells.keys & 0xFFFFFFFF).max()) + 1 if len(cells.keys) else 1
        sums = {scope: DeltaSums.zeros(size) for scope in PAIR_SCOPES}
        inner = self._within.ordered()
        known = np.unique(cells.keys >> 32)
        step = max(1, BLOCK // (size * max(16, (self.dimensions or 0) + 1)))
        for first in range(0, len(known), step):
            ids = known[first : first + step]
            keys, values = cells.of_terms(ids)
            positions, starts = keys & 0xFFFFFFFF, np.searchsorted(keys >> 32, ids)
            pairs, cosines = np.zeros((2, len(ids), size))
            for row, (start, end) in enumerate(pairwise([*starts, len(keys)])):
                if end - start > 1 or values[start, -1] > 1:
                    part = slice(start, end)
                    pairs[row], cosines[row] = pair_sums(positions[part], values[part, :-1], values[part, -1], size)
            inner_cosines, inner_pairs = inner.block(ids, size, width=2)
            sampled = kept.block(ids, size, pairs, cosines) if kept else None
            _reduce(sums["all"], pairs, cosines, sampled and sampled[0], min_pairs)
            _reduce(sums["cross_passage"], pairs - inner_pairs, cosines - inner_cosines, sampled and sampled[1], min_pairs)
        return MATSResult(
            sums=sums,
            vocabulary=len(known),
            passages=self.passages,
            occurrences=self.occurrences,
            skipped=self.skipped,
            kept=limit,
            min_pairs=min_pairs,
            pair_scope=pair_scope,
            normaliser=normaliser,
            term_average=term_average,
            std=std,
            max_delta=max_delta,
            ddof=ddof,
            duplicates=self.duplicates,
        )

    def _affordable(self, cells: Ordered) -> int | None:
        """How many occurrences of a word may be looked at for the spread over pairs; None for all.

        The limit depends on all occurrences, not on those that are kept, so that shards and their order make no difference.
        """
        if not len(cells.keys) or self.sample == 0:
            return None
        starts = np.unique(cells.keys >> 32, return_index=True)[1]
        places = np.diff([*starts, len(cells.keys)]).astype(np.float64)
        occurrences = np.add.reduceat(cells.counts(), starts)
        d = self.dimensions or 1
        work = np.minimum(occurrences**2 * (d + LOOK_UP), places**2 * (d * d + LOOK_UP))
        return 1 << int(np.log2(_WORK / (d + LOOK_UP)) / 2) if work.max() > _WORK else None

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the sums to a folder, completely or not at all.

        Args:
            folder: The folder to make: arrays as ``.npy``, words and options as JSON.
            overwrite: Whether what was saved there before may be replaced; files that the package did not write stay.

        Raises:
            InputError: If the folder exists and may not be replaced, or cannot be written.
        """
        self._kept.settle()
        meta = {
            "format": _FORMAT,
            "sample": self.sample,
            "memory": self.memory,
            "seed": self.seed,
            "passages": self.passages,
            "skipped": self.skipped,
            "duplicates": self.duplicates,
            "occurrences": self.occurrences,
            "dimensions": self.dimensions,
            "limit": self._kept.limit,
        }
        with self.saving(folder, holds="MATS sums", overwrite=overwrite) as scratch:
            for name, sums in (("cells", self._cells), ("within", self._within)):
                np.save(scratch / f"{name}_keys.npy", sums.keys())
                np.save(scratch / f"{name}.npy", sums.values)
            for name, part in self._kept.parts.items():
                np.save(scratch / f"kept_{name}.npy", part.values)
            np.save(scratch / "texts.npy", np.array(sorted(self._texts), dtype=np.uint64))
            (scratch / "words.json").write_text(json.dumps(list(self._terms)), encoding="utf-8")
            (scratch / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    def saved_state(self) -> Any:
        """The counts of what was added, and the sums."""
        counts = (self.passages, self.skipped, self.duplicates, self.occurrences, self.sample, self.memory, self.seed)
        return counts, list(self._terms), self._cells.keys(), self._cells.values

    @classmethod
    def load(cls, folder: str | Path) -> MATSAccumulator:  # type: ignore[override]  # PyTerrier calls it path
        """Read what :meth:`save` wrote.

        Args:
            folder: The folder.

        Returns:
            An accumulator to which more can be added.

        Raises:
            InputError: If the folder does not exist, holds something else, or was changed.
        """
        return read_whole(folder, lambda: cls._read(Path(folder).expanduser()))

    @classmethod
    def _read(cls, folder: Path) -> MATSAccumulator:
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["format"] != _FORMAT:
                raise InputError(
                    f"MATS: folder {folder} has format {meta['format']}, but this version reads format {_FORMAT}; compute and "
                    f"save the sums again"
                )
            words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
            made = cls(sample=meta["sample"], memory=meta["memory"], seed=meta["seed"])
            for name in ("passages", "skipped", "duplicates", "occurrences", "dimensions"):
                setattr(made, name, meta[name])
            made._terms = {word: i for i, word in enumerate(words)}
            for name, sums in (("cells", made._cells), ("within", made._within)):
                sums.add(np.load(folder / f"{name}_keys.npy"), np.load(folder / f"{name}.npy"))
            made._texts = set(np.load(folder / "texts.npy").tolist())
            parts = {name: np.load(folder / f"kept_{name}.npy") for name in made._kept.parts}
        except Exception as error:  # numpy's reader raises whatever its parts do
            if isinstance(error, InputError):
                raise
            raise InputError(f"MATS: {folder} holds no saved MATS sums ({one_line(error)}); check the path") from error
        made._kept.limit = meta["limit"]
        made._kept.add(**parts)
        made.kept_in(folder)
        return made


def _reduce(into: DeltaSums, pairs: np.ndarray, cosines: np.ndarray, kept: tuple[np.ndarray, ...] | None, min_pairs: int) -> None:
    """Add a block of terms, shape [terms, distances], to the sums over terms; ``kept`` holds pairs, cosines and squares."""
    counts = (pairs >= min_pairs) & (pairs > 0)
    mean = np.divide(cosines, pairs, out=np.zeros_like(cosines), where=counts)
    into.terms[:] += counts.sum(axis=0)
    into.pairs[:] += np.where(counts, pairs, 0).sum(axis=0)
    into.means[:] += mean.sum(axis=0)
    into.squares[:] += np.square(mean).sum(axis=0)
    into.cosines[:] += np.where(counts, cosines, 0.0).sum(axis=0)
    into.weighted[:] += (np.square(mean) * np.where(counts, pairs, 0)).sum(axis=0)
    into.first[:] += np.bincount(counts.argmax(axis=1)[counts.any(axis=1)], minlength=counts.shape[1])
    paired = counts & counts[:, :1]
    into.falls[:] += np.where(paired, mean[:, :1] - mean, 0.0).sum(axis=0)
    into.paired_terms[:] += paired.sum(axis=0)
    into.paired_pairs[:] += np.where(paired, pairs, 0).sum(axis=0)
    if kept is None:
        return
    n, first, second = kept
    known = counts & (n > 0)
    # The mean square around the exact mean of all pairs, so that a sample of them is enough.
    around = np.divide(second - 2 * mean * first, n, out=np.zeros_like(mean), where=known) + np.square(mean) * known
    noise = ROUNDING * np.divide(second, n, out=np.zeros_like(mean), where=known)
    around = np.where(around > noise, around, 0)
    into.weighted_within[:] += (around * np.where(known, pairs, 0)).sum(axis=0)
    into.weighted_pairs[:] += np.where(known, pairs, 0).sum(axis=0)
    into.within[:] += around.sum(axis=0)
    into.within_terms[:] += known.sum(axis=0)
