"""Rank-filtered training sets: the training data that a ranker would have if fewer queries had survived.

Gupta (2021) leaves training on such subsets to future work; Gupta and MacAvaney (SIGIR 2022) did it and found rankers that are up
to 9.9 % worse on fuller judgements. The subsets shrink with k, so a ranker fitted on one has also seen *less* data: each subset
comes with one of equal size drawn from all answered queries.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.frames import reads_frames
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.survivorship.data.ranks import NEVER
from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset

#: Which queries an arm trains on.
FILTERED, DRAWN, LATER = "first k", "as many, drawn", "later than k"


@dataclass(frozen=True)
class TrainingSubset:
    """The training set of one arm.

    Attributes:
        k: The threshold in documents; infinite for all answered queries.
        kind: ``'first k'``: the queries answered within k documents; ``'as many, drawn'``: equally many of all answered ones,
            drawn by a seed; ``'later than k'``: the answered ones that are left out.
        queries: How many queries there are.
        frame: The rows of these queries.
    """

    k: float
    kind: str
    queries: int
    frame: pd.DataFrame


@reads_frames
def training_subsets(
    frame: pd.DataFrame,
    subset: SurvivorshipSubset,
    ranks: Sequence[int | None],
    *,
    seed: int = 0,
    drawn: bool = True,
    later: bool = False,
    size: int | None = None,
) -> Iterator[TrainingSubset]:
    """Training frames for several thresholds, each with a frame of equal size that was not filtered by rank.

    Args:
        frame: Training candidates or topics, with ``qid``.
        subset: The stage that knows the first relevant ranks; its own ``rank`` is not used.
        ranks: List of thresholds, in which None means all answered queries.
        seed: Seed of the draws, which depend on the qid and are nested: a smaller set is part of a larger one.
        drawn: Whether to return sets of equal size too.
        later: Whether to also return the queries that a threshold leaves out. They are the opposite selection: if training on
            them makes no difference either, training on survivors could hardly make one.
        size: The maximum number of queries per set, drawn by the seed, so that the sets of several thresholds are equally large;
            None for all.

    Yields:
        One :class:`TrainingSubset` per threshold and kind; all answered queries have only one kind, and so has a set that is
        already drawn from all of them.

    Raises:
        InputError: If there are no thresholds, no query of the frame was answered, or the size is below 1.

    Example:
        >>> shown = pd.DataFrame({"qid": list("aabbcc"), "docno": ["1", "2"] * 3, "rank": [0, 1] * 3})
        >>> qrels = pd.DataFrame({"qid": list("abc"), "docno": ["1", "2", "2"], "label": 1})
        >>> topics = pd.DataFrame({"qid": list("abc"), "query": ["x", "y", "z"]})
        >>> [(s.k, s.kind, s.queries) for s in training_subsets(topics, SurvivorshipSubset(shown, qrels), [1, None])]
        [(1.0, 'first k', 1), (1.0, 'as many, drawn', 1), (inf, 'first k', 3)]
    """
    if isinstance(ranks, (str, numbers.Number)):
        raise InputError(f"training_subsets: ranks={ranks!r} must be a list of thresholds, such as [1, 3, 10]")
    ranks = list(ranks)
    if not ranks:
        raise InputError("training_subsets: ranks is empty; name thresholds, such as [1, 3, 10]")
    if size is not None:
        check_number("training_subsets", "size", size, least=1, whole=True)
    subset.ranks()  # once: its copies with other thresholds share them
    known = subset.apply_attributes(rank=None)(frame)
    if not len(known):
        raise InputError("training_subsets: no query of the frame was answered; check that qids and candidates belong together")
    by_qid = known.drop_duplicates("qid").set_index("qid")["first_relevant_rank"]
    order = sorted(by_qid.index, key=lambda qid: (keyed_hash(seed, "training subset", qid), qid))
    def limited(qids: Sequence[str]) -> tuple[int, pd.DataFrame]:
        taken = set(qids[:size])
        return len(taken), known[known["qid"].isin(taken)].reset_index(drop=True)

    for rank in ranks:
        # Filtered by the stage itself, so that options are checked in one place.
        within = set(subset.apply_attributes(rank=rank)(known)["qid"])
        n, chosen = limited([qid for qid in order if qid in within])
        k = NEVER if rank is None else float(rank)
        yield TrainingSubset(k, FILTERED, n, chosen)
        if drawn and 0 < n < len(by_qid) and len(within) < len(by_qid):
            yield TrainingSubset(k, DRAWN, *limited(order[:n]))
        if later and len(within) < len(by_qid):
            yield TrainingSubset(k, LATER, *limited([qid for qid in order if qid not in within]))
