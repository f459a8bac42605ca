"""BalancedPairs: matches female and male pairs of query and document that are similar in everything else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.frames import numbers, reads_frames
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.data.query_gender import LABELS, label_of
from pyterrier_debias.gender.formulas.matching import DIRECTIONS, METHODS, match, standardised_differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

#: Columns of labels, which saved and augmented data leave out by default.
LABEL_COLUMNS = ("gender", "gender_female", "gender_male", "gender_neutral", "gender_other")


class BalancedPairs(Stage):
    """Matches female with male pairs of query and document whose documents have similar profiles.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, the group (``gender``) and the profile (``profile.*``); any others
    columns out      the same, two rows per match, the first group's row first; ``match``: the number of the match, 0 for the most
                     similar one; ``similarity``: the cosine of the two profiles
    ===============  ==========================================================================

    Rows of other groups, or without a label, are left out. ``female`` and ``male`` may be written in any case and abbreviated
    (``Female``, ``f``). As in the paper, a document has the gender of its query: the frame holds positive pairs (a query that was
    written or generated for the document), in which :class:`~pyterrier_debias.gender.data.query_gender.QueryGender` has labelled
    the query and :class:`~pyterrier_debias.gender.data.profiles.LexiconProfiles` has profiled the document.

    The paper takes the nearest male document for each female one, with replacement and by approximate search
    (``replacement=True``; exact here). One-to-one matching is the default, because only then are there as many different male as
    female documents, which is the point of balancing.

    Source: Bigdeli, Arabzadeh, Seyedsalehi, Mitra, Zihayat and Bagheri, "De-biasing Relevance Judgements for Fair Ranking",
    ECIR 2023.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> pairs = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["d1", "d2", "d3"], "gender": ["female", "male", "male"],
        ...                       "profile.work": [0.2, 0.0, 0.1], "profile.home": [0.1, 0.3, 0.1]})
        >>> BalancedPairs()(pairs)[["match", "qid", "gender"]].values.tolist()
        [[0, '1', 'female'], [0, '3', 'male']]

        From documents: ``(queries_for_documents >> QueryGender() >> LexiconProfiles(lexicon) >> BalancedPairs())(documents)``.

    When not to use it: with so few pairs of one group that the matches are poor (see ``balance``); if the groups differ in
    properties that the lexicon does not measure; to balance more than two groups (match them two at a time).
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "BalancedPairs", "help_url": None}
    pieces = "frame"

    def __init__(
        self,
        *,
        columns: str | Sequence[str] = "profile.",
        group: str = "gender",
        groups: tuple[str, str] = ("female", "male"),
        replacement: bool = False,
        method: str = "greedy",
        direction: str = "f2m",
        min_similarity: float | None = None,
    ):
        """
        Args:
            columns: The columns of the profile: their names, or a prefix.
            group: The column with the groups.
            groups: The two groups to match, called "f" and "m" in ``direction``.
            replacement: Whether a document may be in several matches, as in the paper.
            method: How to match without replacement: ``'greedy'`` or ``'optimal'`` (up to 10,000 rows per group).
            direction: How to match with replacement: ``'f2m'`` (each row of the first group with the nearest of the second),
                ``'m2f'`` or ``'both'``.
            min_similarity: Matches with a lower cosine are left out; None keeps all.
        """
        self.columns = columns
        self.group = group
        self.groups = groups
        self.replacement = replacement
        self.method = method
        self.direction = direction
        self.min_similarity = min_similarity

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Match the pairs. ``attrs['matching']`` of the returned frame says how many profiles were left out, and why.

        Raises:
            InputError: For unknown options, a frame without profile columns or with labels of other groups only, or profiles that
                are not real numbers.
        """
        pt.validate.columns(inp, includes=["qid", "docno", self.group], context=self)
        for name, known in (("method", METHODS), ("direction", DIRECTIONS)):
            check_choice("BalancedPairs", name, getattr(self, name), known)
        if len(set(map(label_of, self.groups))) != 2:
            raise InputError(f"BalancedPairs: groups={self.groups!r} must name two different groups")
        # An empty frame, by which stages are inspected, need not have columns of which only the beginning is known.
        names = [] if len(inp) == 0 and isinstance(self.columns, str) else self.profile_columns(inp)
        frame = inp
        twice = frame.duplicated(["qid", "docno"])
        if twice.any():
            row = frame[twice].iloc[0]
            raise InputError(f"BalancedPairs: the pair ({row['qid']!r}, {row['docno']!r}) occurs twice; keep one row per pair")
        of_groups = self._sides(frame)
        sides = [np.flatnonzero(side) for side in of_groups]
        if len(frame) and not all(map(len, sides)):
            self._tell_absent(frame, sides)
        profiles = _profiles(frame, names, of_groups)
        keys = [f"{qid}\0{docno}" for qid, docno in zip(frame["qid"], frame["docno"])]
        found = match(
            *(profiles[side] for side in sides),
            replacement=self.replacement,
            method=self.method,
            direction=self.direction,
            min_similarity=self.min_similarity,
            first_ids=[keys[row] for row in sides[0]],
            second_ids=[keys[row] for row in sides[1]],
        )
        # Matches of one similarity are distinguished by their names, so that no number depends on the order of rows.
        one, other = sides[0][found.left], sides[1][found.right]
        order = sorted(range(len(found)), key=lambda i: (-found.similarity[i], keys[one[i]], keys[other[i]]))
        rows = np.stack([one[order], other[order]], axis=1).reshape(-1) if order else np.empty(0, dtype=np.int64)
        similarity = np.repeat(found.similarity[order], 2)
        out = frame.drop(columns=["match", "similarity"], errors="ignore").iloc[rows].reset_index(drop=True)
        added = pd.DataFrame({"match": np.repeat(np.arange(len(found)), 2), "similarity": similarity}, index=out.index)
        out = pd.concat([out, added], axis=1)  # at once: a profile may have hundreds of columns
        # Which columns are labels and profiles under other names, so that they can be left out of what is published.
        out.attrs["labels"] = [self.group, *names]
        out.attrs["matching"] = {
            **{group: len(side) for group, side in zip(self.groups, sides)},
            **{f"{group} without a profile": n for group, n in zip(self.groups, found.dropped)},
            "matches": len(found),
            "below the least similarity or without a partner": found.below,
        }
        return out

    def _sides(self, frame: pd.DataFrame) -> list[np.ndarray]:
        """Which rows belong to which group."""
        labels = frame[self.group].astype(object).where(frame[self.group].notna(), None)
        if not set(map(label_of, self.groups)) <= set(LABELS):  # of another attribute, "o" is no abbreviation of "other"
            return [labels.isin([group]).to_numpy(dtype=bool) for group in self.groups]
        labels = labels.map(label_of, na_action="ignore")
        return [labels.isin([label_of(group)]).to_numpy(dtype=bool) for group in self.groups]

    def _tell_absent(self, frame: pd.DataFrame, sides: list[np.ndarray]) -> None:
        """Report a group without rows: other labels are a mistake; without labels, the rows may be part of a larger frame.

        Raises:
            InputError: If rows have labels, but none has that of one of the two groups.
        """
        labels = sorted({str(label) for label in frame[self.group].dropna()})
        absent = [str(group) for group, side in zip(self.groups, sides) if not len(side)]
        if labels and len(absent) == 2:
            some = ", ".join(map(repr, labels[:5]))
            raise InputError(
                f"BalancedPairs: column {self.group!r} labels no row {absent[0]!r} or {absent[1]!r}, only {some}; name the two "
                f"groups, groups=(..., ...)"
            )
        logger.warning("BalancedPairs: none of %d rows is of group %s, so nothing is matched", len(frame), " or ".join(absent))

    def profile_columns(self, frame: pd.DataFrame) -> list[str]:
        """The names of the columns of the profile.

        Args:
            frame: Any frame.

        Returns:
            Their names.

        Raises:
            InputError: If there are none, or if one is missing.
        """
        if isinstance(self.columns, str):
            names = [name for name in frame.columns if str(name).startswith(self.columns)]
            if not names:
                raise InputError(
                    f"BalancedPairs: no column begins with {self.columns!r}; put LexiconProfiles(lexicon) before this stage, or "
                    f"name the columns"
                )
            return names
        pt.validate.columns(frame, includes=list(self.columns), context=self)
        return list(self.columns)

    @reads_frames
    def balance(self, before: pd.DataFrame, matched: pd.DataFrame) -> pd.DataFrame:
        """Compare the two groups' mean profiles before and after matching.

        Args:
            before: The input of the stage.
            matched: Its output.

        Returns:
            One row per category: ``category``, the groups' means ``<group>_before``, ``<group>_after``, and the standardised mean
            differences ``before`` and ``after``, first group minus second. All-zero profiles are left out of both.

        Raises:
            InputError: As for :meth:`transform`.
        """
        names = self.profile_columns(before)
        parts = []
        for frame in (before, matched):
            sides = self._sides(frame)
            table = _profiles(frame, names, sides)
            there = table.any(axis=1)
            parts += [table[there & side] for side in sides]
        prefix = self.columns if isinstance(self.columns, str) else ""
        rows: dict[str, Any] = {"category": [name.removeprefix(prefix) for name in names]}
        for when, pair in (("before", parts[:2]), ("after", parts[2:])):
            for group, table in zip(self.groups, pair):
                rows[f"{group}_{when}"] = table.mean(axis=0) if len(table) else np.full(len(names), np.nan)
        rows["before"] = standardised_differences(parts[0], parts[1])
        rows["after"] = standardised_differences(*parts)
        return pd.DataFrame(rows)


def _profiles(frame: pd.DataFrame, names: Sequence[str], sides: Sequence[np.ndarray]) -> np.ndarray:
    """The profiles of all rows; those of the two sides must be finite."""
    columns = [numbers(frame[name], "BalancedPairs").to_numpy(dtype=np.float64) for name in names]
    counting = np.logical_or(*sides)
    for name, column in zip(names, columns):
        bad = np.flatnonzero(counting & ~np.isfinite(column))
        if len(bad):
            raise InputError(
                f"BalancedPairs: the profile column {name!r} holds {column[bad[0]]}, not a finite number, at row {bad[0]}; fill "
                f"or drop it"
            )
    return np.array(columns).T.reshape(len(frame), len(names))


def plot_balance(balance: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Plot the standardised mean differences before and after matching, one line per category, the largest at the top.

    Args:
        balance: The table that :meth:`BalancedPairs.balance` returns.
        ax: Matplotlib axes; None makes new ones, taller for more categories.

    Returns:
        The axes.
    """
    from pyterrier_debias.core import plots

    one, other = (name.removesuffix("_before") for name in balance.columns if name.endswith("_before"))
    table = balance.assign(size=balance["before"].abs()).sort_values("size", na_position="first")
    with plots.style():
        axes = plots.new_axes(height=1.6 + 0.22 * len(table)) if ax is None else ax
        places = np.arange(len(table))
        axes.hlines(places, table["before"], table["after"], color=plots.GREY, linewidth=0.8)
        axes.plot(table["before"], places, "o", color=plots.colour(1), label="before matching")
        axes.plot(table["after"], places, "o", color=plots.colour(0), label="after matching")
        for x in (-0.1, 0.1):
            axes.axvline(x, color=plots.GREY, linestyle=":", linewidth=1)
        axes.axvline(0, color=plots.GREY, linewidth=1)
        axes.set_yticks(places, table["category"])
        axes.legend(loc="lower right")
        plots.label_axes(axes, x=f"standardised mean difference ({one} minus {other})", y="", title="Balance of profiles")
    return axes


@reads_frames
def save_pairs(pairs: pd.DataFrame, path: str | Path, *, keep_labels: bool = False) -> None:
    """Write matched pairs as tab-separated values, by default without labels of gender.

    Without labels, the order of the two rows of a match carries no information, and profiles are left out, since the paper's
    authors chose not to publish predicted genders. The stage records columns of group and profile with unusual names in
    ``attrs['labels']`` of its frame; a merge loses this record, and you must then drop such columns yourself.

    Args:
        pairs: The output of :class:`BalancedPairs`.
        path: The file.
        keep_labels: Whether to write ``gender`` and its probabilities, and keep the first group first.

    Raises:
        InputError: If the frame has no matches, a text contains a tab or a line break, or the file cannot be written.
    """
    context: Any = "save_pairs"  # printed only
    pt.validate.columns(pairs, includes=["match", "qid", "docno"], context=context)
    out = without_labels(pairs, keep_labels)
    if not keep_labels:
        keys = [
            (int(match), keyed_hash(0, "order", str(qid), str(docno)))
            for match, qid, docno in zip(out["match"], out["qid"], out["docno"])
        ]
        out = out.iloc[sorted(range(len(out)), key=keys.__getitem__)]
    for column in out.columns:
        values = out[column].tolist()
        bad = next((i for i, value in enumerate(values) if isinstance(value, str) and any(c in value for c in "\t\r\n")), None)
        if bad is not None:
            raise InputError(f"save_pairs: column '{column}' holds a tab or line break at row {bad}; put a space in its place")
    write_whole(path, out.to_csv(index=False, sep="\t", quoting=3))


def without_labels(frame: pd.DataFrame, keep: bool) -> pd.DataFrame:
    """A frame without labels of gender and without profiles.

    Args:
        frame: Any frame; its ``attrs['labels']`` can name further columns to drop.
        keep: Whether to keep these columns and return the frame unchanged.

    Returns:
        The frame.
    """
    if keep:
        return frame
    labels = {*LABEL_COLUMNS, *frame.attrs.get("labels", ())}
    dropped = [name for name in frame.columns if name in labels or str(name).startswith("profile.")]
    return frame.drop(columns=dropped)
