"""What rooms measure query by query on one ranking, as measures for ``pt.Experiment``.

A room contributes by a function ``measures(context)`` in its audit module. It gets a
:class:`~pyterrier_debias.core.systems.Context` and returns two things: a list of ir_measures measures, and a dictionary from each
figure that one ranking does not tell to where it can be had.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pandas as pd

from pyterrier_debias.core.evaluation import parse_measures
from pyterrier_debias.core.systems import Context
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.report import run

#: What ``measures(context)`` of a room returns.
Contribution = tuple[list[Any], dict[str, str]]


class Measures(list):
    """A list of measures, as ``pt.Experiment`` takes it, that knows which figures need another run.

    Attributes:
        second_run: Figure to where it can be had.
        rooms: Name of each measure to the room that it is from.
    """

    def __init__(self, measures: Any = (), second_run: dict[str, str] | None = None, rooms: dict[str, str] | None = None):
        """
        Args:
            measures: The measures.
            second_run: See the class.
            rooms: See the class.
        """
        super().__init__(measures)
        self.second_run = dict(second_run or {})
        self.rooms = dict(rooms or {})

    def to_frame(self) -> pd.DataFrame:
        """One row a figure: ``figure``, ``bias`` (empty for plain effectiveness), ``how``."""
        rows = [{"figure": str(m), "bias": self.rooms.get(str(m), ""), "how": "this list"} for m in self]
        rows += [{"figure": f, "bias": self.rooms.get(f, ""), "how": how} for f, how in self.second_run.items()]
        return pd.DataFrame(rows, columns=["figure", "bias", "how"])


def measures(
    dataset: Any = "planted",
    *,
    rooms: Any = "all",
    systems: Any = None,
    split: str | None = None,
    topics: pd.DataFrame | int | None = None,
    qrels: pd.DataFrame | None = None,
    effectiveness: Any = ("nDCG@10",),
    depth: int = 100,
) -> Measures:
    """Every room's figure that one ranking tells, for ``pt.Experiment``.

    Give ``pt.Experiment`` the same topics and judgements. Topics without judgements may be among them: every measure here has a
    value for judged topics only, so that none is mixed up with those that need judgements.

    Args:
        dataset: As for :func:`pyterrier_debias.report.run.audit`.
        rooms: The same.
        systems: Systems whose rankings are compared; only figures that need to know all of them (labels inferred for unjudged
            documents) are left out without them. They are run.
        split: As for the audit.
        topics: The same.
        qrels: The same.
        effectiveness: Plain measures that stand first.
        depth: How many candidates of a query a ranker is given, where systems are run.

    Returns:
        The measures; ``second_run`` says how the other figures can be had.

    Raises:
        InputError: For an unknown room, measure or dataset, or judgements of other topics.

    Example:
        >>> from pyterrier_debias import PlantedCollection
        >>> from pyterrier_debias.report.bias_measures import measures
        >>> found = measures(PlantedCollection(), rooms="pooling")
        >>> [str(m) for m in found], list(found.second_run)
        (['nDCG@10', 'Judged@10', 'nDCG(judged_only=True)@10'], ['nDCG@10 with inferred labels'])

    When not to use it: for tests of bias. The audit knows what each figure is by chance and corrects for the number of tests; an
    experiment's ``baseline`` does neither.
    """
    chosen = run.find_rooms(rooms)
    collection = open_dataset(dataset, split=split)
    known_topics, known_qrels = run.topics_and_qrels(collection, topics, qrels)
    examined = [] if systems is None else run.named_systems(systems, collection)
    context = Context(examined, collection, known_topics, known_qrels, depth=depth)
    found, second, owners = list(parse_measures(effectiveness)), {}, {}
    for room in chosen:
        contribute = _contribution(room)
        if contribute is None:
            second[f"every figure of the bias {room.name}"] = f"audit(..., rooms={room.name!r})"
            continue
        own, other = contribute(context)
        for measure in own:
            if measure not in found:
                found.append(measure)
                owners[str(measure)] = room.name
        second.update(other)
        owners.update(dict.fromkeys(other, room.name))
    return Measures(found, second, owners)


def _contribution(room: Any) -> Callable[[Context], Contribution] | None:
    """What stands as ``measures`` in a room's audit module."""
    module = importlib.import_module(room.run.__module__) if hasattr(room.run, "__module__") else None
    own = getattr(module, "measures", None)
    return own if callable(own) else None
