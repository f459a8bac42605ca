"""What an audit says: findings, the rooms that make them, the table that holds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

#: How an interval that is not defined would be told, as over one query.
_NO_INTERVAL = re.compile(r" \[\+?nan%?, \+?nan%?\]")


@dataclass(frozen=True)
class Finding:
    """One figure about one system, with what is needed to judge it.

    Attributes:
        system: The system's name.
        bias: The room: ``'position'``, ``'survivorship'``, ``'gender'``, ``'linguistic'`` or ``'pooling'``.
        measure: What was measured, such as ``'nDCG@10'`` or ``'PSI'``.
        group: Where or between what, such as ``'rotated - original'``.
        value: The figure.
        low: Lower end of its interval; NaN where there is none.
        high: Upper end of its interval.
        p: Uncorrected p value of the room's test; NaN where the figure is not tested.
        p_corrected: The same after correction over the table; NaN until :func:`findings_frame` was asked to correct.
        n: How many units (queries, if not said otherwise) stand behind the value.
        convention: The choices under which it was computed; two figures under different conventions never look alike.
        noise_floor: The figure that nothing but chance would give; NaN where it is zero by construction or unknown.
        text: One plain sentence.
        primary: Whether this is the room's primary test, the one that calibration speaks of.
    """

    system: str
    bias: str
    measure: str
    group: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")
    p_corrected: float = float("nan")
    n: int = 0
    convention: str = ""
    noise_floor: float = float("nan")
    text: str = ""
    primary: bool = False


@dataclass(frozen=True)
class Room:
    """One bias, as the audit sees it.

    Attributes:
        name: The bias' name, as findings carry it.
        needs: ``needs(system, dataset)`` gives the reason why the room cannot examine the system on the dataset, in one
            sentence, or None where it can.
        run: ``run(context)`` gives a :class:`RoomResult`. The context holds systems, dataset, topics, judgements, seed, and
            what rooms share (retrieval and scoring are done once).
        contributions: ``contributions(context, result)`` gives what single documents, words or positions contribute to figures
            of the room's result: frames as :func:`pyterrier_debias.core.attributions.parts_of_figure` makes them. None where the
            room does not take its figures apart.
    """

    name: str
    needs: Callable[[Any, Any], str | None]
    run: Callable[[Any], RoomResult]
    contributions: Callable[[Any, RoomResult], Sequence[pd.DataFrame]] | None = None


@dataclass(frozen=True)
class RoomResult:
    """What a room returns.

    Attributes:
        findings: The room's findings, in the order to show them.
        per_query: Tidy frame ``system, bias, measure, group, qid, value`` behind the findings.
        figures: Name to a function ``draw(axes)`` and its size, see :class:`Figure`.
    """

    findings: Sequence[Finding]
    per_query: pd.DataFrame
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Figure:
    """A picture that is drawn only when somebody looks.

    Attributes:
        name: File name without ending.
        caption: What it shows, with units and n.
        draw: ``draw(axes)`` draws onto matplotlib axes.
    """

    name: str
    caption: str
    draw: Callable[[Any], None]


PER_QUERY_COLUMNS = ["system", "bias", "measure", "group", "qid", "value"]


def per_query_values(*, system: str, bias: str, measure: str, group: str, qids: Any, values: Any) -> pd.DataFrame:
    """The values behind one finding, in the shape of :attr:`RoomResult.per_query`.

    Args:
        system: See :class:`Finding`, as for the next three.
        bias: The room.
        measure: What was measured.
        group: Where or between what.
        qids: n queries.
        values: n values.

    Returns:
        A frame of n rows with ``PER_QUERY_COLUMNS``.
    """
    frame = pd.DataFrame({"qid": np.asarray(qids, dtype=object), "value": np.asarray(values, dtype=float)})
    frame = frame.assign(system=system, bias=bias, measure=measure, group=group)
    return frame[PER_QUERY_COLUMNS].astype({"qid": "str"})


def p_text(p: float) -> str:
    """A p value for a sentence: two digits that say something.

    Args:
        p: The p value.

    Returns:
        Such as ``'0.0013'`` or ``'0.42'``.
    """
    return f"{p:.2g}" if p < 0.095 else f"{p:.2f}"


def findings_frame(findings: Iterable[Finding], correction: str | None = None) -> pd.DataFrame:
    """The tidy table of findings.

    Args:
        findings: Any number of findings.
        correction: ``'holm'``, ``'bonferroni'`` or ``'fdr_bh'``: fill ``p_corrected`` over all findings that carry a ``p``;
            None leaves it as it is.

    Returns:
        A frame with one row a finding and one column an attribute of :class:`Finding`.
    """
    frame = pd.DataFrame([asdict(f) for f in findings], columns=[f.name for f in fields(Finding)])
    frame = frame.assign(text=[_NO_INTERVAL.sub("", text) for text in frame["text"]]).astype({"text": "str"})
    if correction is not None and len(frame):
        from pyterrier_debias.core.statistics import correct

        tested = frame["p"].notna()
        corrected = frame["p_corrected"].to_numpy(dtype=float, copy=True)
        corrected[tested.to_numpy()] = correct(frame.loc[tested, "p"].to_numpy(dtype=float), correction)
        frame = frame.assign(p_corrected=corrected)
    return frame
