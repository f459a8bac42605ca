"""augment_balanced and choose_ratio: add balanced pairs to training data, and choose how many."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.statistics import bootstrap_interval, equivalence_test, paired_t
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.data.balanced_pairs import without_labels
from pyterrier_debias.training.groups import grades

if TYPE_CHECKING:
    from matplotlib.axes import Axes


logger = logging.getLogger(__name__)


@frames.reads_frames
def augment_balanced(
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    pairs: pd.DataFrame,
    ratio: float,
    *,
    seed: int = 0,
    prefix: str = "balanced-",
    keep_labels: bool = False,
    on_short: str = "raise",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add matched pairs of query and document to training data, equally many of each group.

    With n relevant pairs of query and document in the original data, ``ratio`` times n are added, half of them of each group. The
    number is rounded to whole matches of two (halves upwards: 10 pairs and ratios of .3 and .5 add 4 and 6). Whole matches are
    drawn, by seed and names; a larger ratio adds to the matches that a smaller one drew. Negatives of the new queries are drawn
    like all others: by the sampler of the training, from the candidates of the first stage.

    Args:
        topics: ``qid``, ``query`` and any others.
        qrels: ``qid``, ``docno``, ``label``.
        pairs: The output of :class:`~pyterrier_debias.gender.data.balanced_pairs.BalancedPairs`, with ``query``: ``match``,
            ``qid``, ``docno``, ``query``.
        ratio: Pairs to add per original pair, at least 0; the paper tries .05, .15, .25 and .35, and chooses .25.
        seed: Seed of the draw of matches.
        prefix: Prefix of the new qids, which makes them unique.
        keep_labels: Whether the new topics keep the pairs' ``gender``; by default it is dropped, as a predicted label.
        on_short: What to do if there are too few matches: ``'raise'``, or ``'all'``: add all of them, and log the ratio reached.

    Returns:
        Topics and judgements, the original ones first.

    Raises:
        InputError: For a ratio below 0, or, unless ``on_short='all'``, too large for the number of pairs; an unknown choice; a
            new qid that already exists; matches that are incomplete.

    Example:
        >>> topics = pd.DataFrame({"qid": ["1", "2"], "query": ["sea", "tea"]})
        >>> qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d1", "d2"], "label": [1, 1]})
        >>> pairs = pd.DataFrame({"match": [0, 0], "qid": ["7", "8"], "docno": ["d7", "d8"], "query": ["her age", "his age"],
        ...                       "gender": ["female", "male"]})
        >>> more, judged = augment_balanced(topics, qrels, pairs, 1.0)
        >>> more["qid"].tolist(), judged["docno"].tolist()
        (['1', '2', 'balanced-7', 'balanced-8'], ['d1', 'd2', 'd7', 'd8'])

    When not to use it: with matches made with replacement, because repeated pairs count once here, which makes the halves
    unequal; with pairs from the test data.
    """
    name = "augment_balanced"
    context: Any = name  # printed only
    pt.validate.columns(topics, includes=["qid", "query"], context=context)
    pt.validate.columns(pairs, includes=["match", "qid", "docno", "query"], context=context)
    check_number(name, "ratio", ratio, least=0, hint="such as 0.25")
    check_choice(name, "on_short", on_short, ("raise", "all"))
    topics, pairs = frames.with_string_ids(topics, name), frames.with_string_ids(pairs, name)
    judged = grades(qrels, name)
    frames.check_text(pairs, "query", name)
    frames.check_names(pairs[pairs["match"].notna()], ["match"], name)
    relevant = int((judged["label"].gt(0) & judged["qid"].isin(set(topics["qid"]))).sum())
    sizes = pairs.groupby("match").size()
    if not sizes.eq(2).all():
        raise InputError(
            f"{name}: match {sizes.index[sizes != 2][0]} has {sizes[sizes != 2].iloc[0]} rows; each match must have two"
        )
    # The rounding error of binary fractions must not round a half down.
    wanted = int(np.floor(float(ratio) * relevant / 2 + 0.5 + 1e-9))
    if wanted > len(sizes) and on_short == "all":
        logger.warning(
            "%s: ratio=%g of %d pairs needs %d matches, but there are only %d; all are added, which is a ratio of %.3g",
            name, ratio, relevant, wanted, len(sizes), 2 * len(sizes) / relevant,
        )  # fmt: skip
        wanted = len(sizes)
    if wanted > len(sizes):
        raise InputError(
            f"{name}: ratio={ratio:g} of {relevant:,} pairs needs {wanted:,} matches, but there are only {len(sizes):,}; use a "
            f"ratio of at most {np.floor(2000 * len(sizes) / max(1, relevant)) / 1000:g}, more pairs, or on_short='all'"
        )
    codes, _ = pd.factorize(pairs["match"], sort=True)
    names = [f"{qid}\0{docno}" for qid, docno in zip(pairs["qid"], pairs["docno"])]
    # Two rows each, match by match; those of no match, which come first, are left out.
    rows = np.argsort(codes, kind="stable")[(codes < 0).sum() :].reshape(-1, 2)
    keys = [keyed_hash(seed, "match", *sorted((names[one], names[other]))) for one, other in rows.tolist()]
    chosen = sorted(range(len(keys)), key=lambda number: (keys[number], number))[:wanted]
    added = pairs[np.isin(codes, chosen)]
    texts = added.groupby("qid")["query"].nunique()
    if (texts > 1).any():
        raise InputError(f"{name}: qid {texts.index[texts > 1][0]!r} of the pairs has more than one query text; keep one")
    added = added.assign(qid=prefix + added["qid"])
    taken = set(added["qid"]) & (set(topics["qid"]) | set(judged["qid"]))
    if taken:
        raise InputError(f"{name}: qid {min(taken)!r} is already among the topics; give another prefix")
    about = added.drop_duplicates("qid")
    about = about if keep_labels else without_labels(about, False)
    columns = [column for column in about.columns if column in topics.columns or (keep_labels and column == "gender")]
    new_qrels = added[["qid", "docno"]].drop_duplicates().assign(label=1)
    return (
        pd.concat([topics, about[columns]], ignore_index=True),
        pd.concat([judged, new_qrels], ignore_index=True),
    )


@dataclass(frozen=True)
class RatioChoice:
    """A chosen ratio of balanced pairs, with the tests behind it (Table 1 of the paper).

    Attributes:
        table: One row per ratio, ascending, the original data first: ``ratio``, ``n`` (queries), the ``effectiveness`` with its
            ``low`` and ``high`` (95 %), the ``difference`` from the original with its limits, ``t`` and ``p`` (two-tailed paired
            t-test), ``loss`` (whether it is significantly worse), ``p_noninferior`` (one-sided: it is not worse by ``margin``),
            ``p_equivalent`` (two one-sided tests), and a column for each measure of bias.
        chosen: By the paper's rule: the largest ratio before the first one with a loss; 0 if the first one has a loss.
        noninferior: The largest ratio such that it and all smaller ones are shown not to be worse than the original by the
            margin; 0 if there is none.
        margin: The largest loss that does not matter.
        level: Significance level of the tests.
    """

    table: pd.DataFrame
    chosen: float
    noninferior: float
    margin: float
    level: float

    def plot(self, ax: Axes | None = None, *, measure: str = "effectiveness") -> Axes:
        """Plot effectiveness over the ratio and, if given, bias in a panel below.

        Args:
            ax: Matplotlib axes; None makes new ones. The bias is drawn in a separate panel beneath them.
            measure: The name of the effectiveness measure in the plot.

        Returns:
            The axes of the effectiveness; ``child_axes`` holds the panel beneath.
        """
        from pyterrier_debias.core import plots

        table, biases = self.table, self._biases()
        axes = plots.new_axes(height=5.8 if biases else 3.4) if ax is None else ax
        with plots.style():
            bars = plots.ends(table["effectiveness"], table["low"], table["high"])
            axes.errorbar(table["ratio"], table["effectiveness"], yerr=bars, marker="o", color=plots.colour(0))
            axes.axhline(table["effectiveness"].iloc[0], color=plots.GREY, linestyle="--", linewidth=1)
            axes.axvline(self.chosen, color=plots.colour(1), linestyle=":", label=f"chosen by the paper's rule: {self.chosen:g}")
            axes.legend(loc="best")
            plots.label_axes(axes, x="" if biases else "ratio of balanced pairs", y=measure, title="Effectiveness over the ratio")
            if biases:
                axes.tick_params(labelbottom=False)
                below = axes.inset_axes((0, -1.1, 1, 1), sharex=axes)
                for number, name in enumerate(biases):
                    label = plots.legend_label(name)
                    below.plot(table["ratio"], table[name], marker="o", color=plots.colour(number), label=label)
                below.axhline(0, color=plots.GREY, linewidth=1)
                below.legend(loc="best")
                plots.label_axes(below, x="ratio of balanced pairs", y="bias", n=int(table["n"].iloc[0]))
        return axes

    def _biases(self) -> list[str]:
        return [str(name) for name in self.table.columns if name not in _COLUMNS]


_COLUMNS = (
    "ratio", "n", "effectiveness", "low", "high", "difference", "difference_low", "difference_high", "t", "p", "loss",
    "p_noninferior", "p_equivalent",
)  # fmt: skip


def choose_ratio(
    effectiveness: Mapping[float, Sequence[float] | pd.Series],
    bias: Mapping[float, Mapping[str, float]] | None = None,
    *,
    margin: float = 0.01,
    level: float = 0.05,
) -> RatioChoice:
    """Choose how many balanced pairs to add without losing effectiveness: by the paper's rule, and by a sounder one.

    The paper raises the ratio until a two-tailed paired t-test shows a loss of effectiveness, and chooses the ratio before. With
    few queries this test finds nothing, and the rule chooses a ratio that may cost a lot: no evidence of a loss is not evidence
    of no loss. The non-inferiority test asks the opposite question: is it shown that the loss is below ``margin``?

    Args:
        effectiveness: For each ratio, the values of the same queries in the same order (or Series by qid); 0 is the original
            data.
        bias: For each ratio, measures of bias by name, which the table also shows.
        margin: The largest loss that does not matter, in units of the measure, above 0.
        level: Significance level of the tests, not corrected for the number of ratios, as in the paper.

    Returns:
        The choice with its table.

    Raises:
        InputError: If the original (ratio 0) is missing, or the values are not for the same queries.

    Example:
        >>> values = {0: [0.5, 0.4, 0.6, 0.3], 0.1: [0.5, 0.41, 0.59, 0.3], 0.2: [0.3, 0.2, 0.41, 0.1]}
        >>> choice = choose_ratio(values)
        >>> choice.chosen, choice.table["loss"].tolist()
        (0.1, [False, False, True])

    When not to use it: with fewer than about fifty queries; to choose a ratio on the test queries and then report it on them.

    References:
        Bigdeli, Arabzadeh, Seyedsalehi, Mitra, Zihayat and Bagheri, ECIR 2023, Section 4 and Table 1.
    """
    if 0 not in effectiveness:
        raise InputError("choose_ratio: the original data is missing; give its values as ratio 0")
    check_number("choose_ratio", "level", level, above=0, most=0.9999)
    check_number("choose_ratio", "margin", margin, above=0, hint="such as 0.01")
    ratios = sorted(float(ratio) for ratio in effectiveness)
    if ratios[0] < 0:
        raise InputError(f"choose_ratio: ratio {ratios[0]:g} is below 0; give ratios of at least 0")
    values = {float(ratio): _aligned(given, effectiveness[0], ratio) for ratio, given in effectiveness.items()}
    original, rows = values[0.0], []
    for ratio in ratios:
        own = values[ratio]
        interval, apart = bootstrap_interval(own), bootstrap_interval(own - original)
        test, shifted = paired_t(original, own), paired_t(original - margin, own)
        loss = bool(test.p < level and own.mean() < original.mean())
        one_sided = float(shifted.p / 2 if shifted.statistic > 0 else 1 - shifted.p / 2)
        rows.append(
            (ratio, len(own), own.mean(), interval.low, interval.high, apart.estimate, apart.low, apart.high,
             test.statistic, test.p, loss, one_sided, equivalence_test(original, own, margin).p)
        )  # fmt: skip
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    more = {} if bias is None else {float(ratio): dict(of_one) for ratio, of_one in bias.items()}
    for name in dict.fromkeys(name for of_one in more.values() for name in of_one):
        table[name] = [more.get(ratio, {}).get(name, np.nan) for ratio in ratios]
    return RatioChoice(
        table,
        chosen=_last_before(ratios[1:], table["loss"].tolist()[1:]),
        noninferior=_last_before(ratios[1:], [not p < level for p in table["p_noninferior"].tolist()[1:]]),
        margin=margin,
        level=level,
    )


def _aligned(given: Any, original: Any, ratio: float) -> np.ndarray:
    if isinstance(given, pd.Series) and isinstance(original, pd.Series):
        if set(given.index) != set(original.index):
            raise InputError(
                f"choose_ratio: ratio {ratio:g} and the original were not measured on the same queries; give values for the same "
                f"queries"
            )
        given = given.reindex(original.index)
    values = np.asarray(given, dtype=np.float64)
    if values.shape != np.shape(original) or values.ndim != 1 or np.isnan(values).any():
        raise InputError(f"choose_ratio: ratio {ratio:g} needs one number for each of the original's {len(original)} queries")
    return values


def _last_before(ratios: Sequence[float], bad: Sequence[bool]) -> float:
    """The last ratio before the first bad one; 0 if the first one is bad."""
    chosen = 0.0
    for ratio, is_bad in zip(ratios, bad):
        if is_bad:
            break
        chosen = ratio
    return chosen
