"""The order bias in an audit: does a reranker's result depend on the order of the list that it is given?

Null hypothesis of the primary test: the slope of a document's place in the result on its place in the given list is 0 on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.decomposition import without_cutoff
from pyterrier_debias.core.errors import check_choice, check_number
from pyterrier_debias.core.evaluation import judged_qids, per_query
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.statistics import bootstrap_interval, exchange_test, inverted_interval
from pyterrier_debias.core.systems import Context, System, check_run, named_where_it_raises
from pyterrier_debias.core.text import keyed_generator
from pyterrier_debias.further.shared import MEASURE, TESTED, UNCHANGED, SystemBias, check_complete, effectiveness, mean_test


class OrderBias(SystemBias):
    """Does a reranker's result depend on the order of the list that it is given?

    The reranker gets the same candidates in their own order, in their own order again, reversed, and shuffled several times.
    The first document of each list gets the list's highest score and the rank 0, whether the reranker goes by score or rank. A
    cut-off at the end of the reranker (``ranker % 10``) is left out, so that the places of all documents are known. A
    query's value is the slope, over these lists, of a document's place in the result on its place in the given list, each less
    its own mean: 1 for a reranker that returns lists as given, 0 for one that scores documents one by one, -1 for one that
    reverses lists.

    Also reported: Kendall's tau between the result for the candidates' own order and those for other orders (for the repeated
    list, it shows how much is not due to the order), and the loss of ``nDCG@10`` from shuffling and reversal. If no result
    changes, nothing is tested, because a pointwise ranker could not have come out otherwise. The slope is 0 for effects without a
    direction, such as a preference for both ends of a list; tau is not, and if it is low, the verdict is not "no".

    Sources: for listwise prompts, Sun et al. 2023 (RankGPT) and Tang et al. 2024 (permutation self-consistency) use shuffled and
    reversed lists and compare ``nDCG@10``; the slope is this package's own measure.

    Example:
        ``audit(systems, dataset, biases=["order"])``

    When not to use it: if every call costs money, because a reranker gets shuffles + 3 lists per query; for a reranker that is
    meant to follow the given order, such as one that adds the candidates' scores to its own; to test an effect without a
    direction, because only the slope is tested.
    """

    name = "order"
    axis = "places in the result for each place in the given list"

    def __init__(self, *, shuffles: int = 3) -> None:
        """
        Args:
            shuffles: The number of shuffles of each list, at least 1; ``draws`` of an audit takes precedence.

        Raises:
            InputError: If it is not such a number.
        """
        check_number("OrderBias", "shuffles", shuffles, least=1, whole=True)
        self.shuffles = shuffles

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: a reranker."""
        return "it is not given a list: only rerankers are" if system is not None and system.ranker is None else None

    def look(self, system: System, context: Context) -> Iterator[Finding]:
        """See :meth:`SystemBias.look`."""
        shuffles = self.shuffles if context.draws is None else context.draws
        found = _results(system, context, shuffles)
        values = pd.Series({
            qid: slope(*(np.delete(places, arms.index("again"), axis=0) for places in (given, result)))
            for qid, arms, given, result in _places(found)
        })  # fmt: skip
        interval, p, told = mean_test(values, context.seed)
        lists = f"own order, reversed and {shuffles} shuffle{'s' * (shuffles > 1)}"
        convention = f"{lists}, seed {context.seed}; depth {context.depth}"
        yield self.finding(
            system.name, "places", "result by given list", interval,
            f"for each place that a document moves up in the given list, it moves up in the result by {interval.estimate:+.3f} "
            f"{told}.",
            p=p, values=values, primary=True, beside=effectiveness(system, context),
            convention=f"{convention}; {TESTED}",
        )  # fmt: skip
        agreed = _agreement(found)
        shuffled = bootstrap_interval(agreed["shuffled"].to_numpy(), seed=context.seed)
        again = agreed["again"].mean()
        yield self.finding(
            system.name, "Kendall's tau", "own order, shuffled", shuffled,
            f"its results for shuffled lists agree with those for the own order with a tau of {shuffled.estimate:.3f}; those for "
            f"reversed lists with {agreed['reversed'].mean():.3f}, and those for the same list given again with {again:.3f}.",
            values=agreed["shuffled"], null_value=again, convention=f"{convention}; not tested",
            beside={("Kendall's tau", "own order, reversed"): agreed["reversed"]},
        )  # fmt: skip
        quality = _quality(found, context)
        for what in ("shuffled", "reversed"):
            table = quality[["own", *(name for name in quality if name.startswith(what))]]
            change = (table.drop(columns="own").sub(table["own"], axis=0)).mean(axis=1)
            interval = inverted_interval(table.to_numpy(), seed=context.seed, least=-1, most=1)
            p = exchange_test(table.to_numpy(), seed=context.seed).p
            moved = f"changes by {interval.estimate:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"
            told = moved if change.any() else UNCHANGED
            yield self.finding(
                system.name, MEASURE, f"{what} - own order", interval, f"{MEASURE} of {what} lists: {told}.", p=p, values=change,
                beside={(MEASURE, what): table["own"] + change}, convention=f"{convention}; p by exchange randomisation",
            )  # fmt: skip


def _results(system: System, context: Context, shuffles: int) -> pd.DataFrame:
    """Results for all lists, sorted by docno: ``qid``, ``docno``, ``arm``, ``given`` and ``rank`` (places from 0), ``score``."""
    candidates = context.candidates(system)
    candidates = candidates[candidates["qid"].isin(judged_qids(context.topics, context.qrels))].reset_index(drop=True)
    arms = ["own", "again", "reversed", *(f"shuffled {draw}" for draw in range(shuffles))]
    places = candidates.groupby("qid", sort=False).indices
    rows, numbers = np.concatenate(list(places.values())), np.concatenate([np.arange(len(own)) for own in places.values()])
    # Scores and ranks belong to the place in the list, not to the document.
    scores = {"score": candidates["score"].to_numpy()[rows]} if "score" in candidates.columns else {}
    assert system.ranker is not None
    whole = replace(system, ranker=without_cutoff(system.ranker)[0])
    ranker, anew = (named_where_it_raises(one).ranker for one in (whole, replace(whole, memory=None, kept=None)))
    assert ranker is not None and anew is not None
    parts = []
    for arm in arms:  # one call for each: a query keeps its qid, which a ranker may look up
        documents = np.concatenate([own[given_order(arm, len(own), context.seed, str(qid))] for qid, own in places.items()])
        given = candidates.iloc[documents].reset_index(drop=True).assign(rank=numbers, **scores)
        ask = anew if arm == "again" else ranker  # remembered scores would not show whether the ranker repeats itself
        found = ranked(check_run(ask(given), system.name), system.name)[["qid", "docno", "score", "rank"]]
        check_complete(found, given, system.name)
        parts.append(given[["qid", "docno"]].assign(arm=arm, given=numbers).merge(found, on=["qid", "docno"]))
    found = pd.concat(parts, ignore_index=True)
    return found.sort_values(["qid", "arm", "docno"], ignore_index=True)


def given_order(arm: str, n: int, seed: int, qid: str) -> np.ndarray:
    """The order in which the documents of a list are given to the reranker.

    Args:
        arm: ``'own'``, ``'again'``, ``'reversed'``, or ``'shuffled'`` with a number.
        n: The number of documents in the list.
        seed: Seed of the shuffles.
        qid: The query, on which a shuffle also depends.

    Returns:
        Shape [n]: positions in the original list.

    Raises:
        InputError: If the arm has another name.

    Example:
        >>> given_order("reversed", 3, 0, "q1").tolist(), sorted(given_order("shuffled 1", 3, 0, "q1").tolist())
        ([2, 1, 0], [0, 1, 2])
    """
    check_choice("given_order", "arm", arm.partition(" ")[0], ("own", "again", "reversed", "shuffled"))
    order = np.arange(n)
    if arm.startswith("shuffled"):
        return keyed_generator(seed, "order", qid, arm).permutation(order)
    return order[::-1] if arm == "reversed" else order


def _places(found: pd.DataFrame) -> Iterator[tuple[str, list[str], np.ndarray, np.ndarray]]:
    """For each query with at least two candidates: its lists, and the given and resulting places, shape [lists, documents]."""
    arms = sorted(set(found["arm"]))
    for qid, own in found.groupby("qid"):
        if len(own) > len(arms):
            yield str(qid), arms, *(own[name].to_numpy(dtype=float).reshape(len(arms), -1) for name in ("given", "rank"))


def slope(given: np.ndarray, result: np.ndarray) -> float:
    """The slope of places in the result on places in the given list, each less its document's mean.

    Args:
        given: Shape [lists, documents]: the place of each document in each given list.
        result: Shape [lists, documents]: the place of each document in each result.

    Returns:
        1 if results are the lists as given, exactly 0 if they never change, -1 if they are reversed; NaN if all given lists are
        the same.

    Example:
        >>> given = np.array([[0, 1, 2], [2, 1, 0]])
        >>> slope(given, given), slope(given, given[::-1]), slope(given, given[:1].repeat(2, axis=0))
        (1.0, -1.0, 0.0)
    """
    given, result = given - given.mean(axis=0), result - result.mean(axis=0)
    spread = float((given**2).sum())
    return float((given * result).sum()) / spread if spread else float("nan")


def kendall(first: np.ndarray, second: np.ndarray) -> float:
    """Kendall's tau of two rankings without ties, computed by counting, so that equal rankings have exactly 1.

    Args:
        first: Shape [n], n at least 2: the rank of each document.
        second: Shape [n]: the rank of each document in the other ranking.

    Returns:
        The share of pairs in the same order less the share of pairs in the opposite order.

    Example:
        >>> kendall(np.array([0, 1, 2]), np.array([0, 1, 2])), round(kendall(np.array([0, 1, 2]), np.array([1, 0, 2])), 3)
        (1.0, 0.333)
    """
    same = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
    return float(same.sum() / (len(first) * (len(first) - 1)))


def _agreement(found: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau of each query with the result for its own order: columns ``again``, ``reversed`` and ``shuffled``."""
    rows = {}
    for qid, arms, _, ranks in _places(found):
        own = ranks[arms.index("own")]
        taus = {arm: kendall(own, ranks[number]) for number, arm in enumerate(arms)}
        shuffled = [tau for arm, tau in taus.items() if arm.startswith("shuffled")]
        rows[qid] = {"again": taus["again"], "reversed": taus["reversed"], "shuffled": np.mean(shuffled)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["again", "reversed", "shuffled"])


def _quality(found: pd.DataFrame, context: Context) -> pd.DataFrame:
    """nDCG@10 of each judged query's results, one column per list; queries without candidates are left out."""
    qids = [qid for qid in judged_qids(context.topics, context.qrels) if qid in set(found["qid"])]
    lists = found.groupby("arm", sort=False)
    return pd.DataFrame({arm: per_query(own, context.qrels, [MEASURE], qids)[MEASURE] for arm, own in lists}, index=qids)
