"""Bias figures that are defined per query on one ranking, as measures for ``pt.Experiment``."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyterrier_debias.core.evaluation import parse_measures
from pyterrier_debias.core.systems import Context
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.report.inputs import find_biases, named_systems, topics_and_qrels


class Measures(list):
    """A list of measures for ``pt.Experiment`` that also says which figures need a second run.

    Attributes:
        second_run: For each figure that needs a second run, how to get it.
        biases: The bias of each measure, by the measure's name.
    """

    def __init__(self, measures: Any = (), second_run: dict[str, str] | None = None, biases: dict[str, str] | None = None):
        """
        Args:
            measures: The measures.
            second_run: See the class.
            biases: See the class.
        """
        super().__init__(measures)
        self.second_run = dict(second_run or {})
        self.biases = dict(biases or {})

    def to_frame(self) -> pd.DataFrame:
        """One row per figure: ``figure``, ``bias`` (empty for plain effectiveness), ``how`` (how to get it)."""
        rows = [{"figure": str(m), "bias": self.biases.get(str(m), ""), "how": "this list"} for m in self]
        rows += [{"figure": f, "bias": self.biases.get(f, ""), "how": how} for f, how in self.second_run.items()]
        return pd.DataFrame(rows, columns=["figure", "bias", "how"])


def bias_measures(
    dataset: Any = "planted",
    *,
    biases: Any = "all",
    systems: Any = None,
    split: str | None = None,
    topics: pd.DataFrame | int | None = None,
    qrels: pd.DataFrame | None = None,
    effectiveness: Any = ("nDCG@10",),
    depth: int = 100,
) -> Measures:
    """Measures of bias for ``pt.Experiment``: every figure that can be computed from one ranking.

    Give ``pt.Experiment`` the same topics and judgements. They may include topics without judgements: every measure here has
    values for judged topics only, even one that needs no judgements. If a measure covers only some of the topics, its mean is
    over these topics, and its name says that its single values are influence values (see :class:`~pyterrier_debias.ARaB`).

    Args:
        dataset: As for :func:`pyterrier_debias.audit`.
        biases: As for :func:`pyterrier_debias.audit`.
        systems: Systems whose rankings are compared; they are run. Without them, only the figures that need all rankings are left
            out: NFaiRR, with the documents of all systems as the background, and labels inferred for unjudged documents.
        split: As for :func:`pyterrier_debias.audit`.
        topics: As for :func:`pyterrier_debias.audit`.
        qrels: As for :func:`pyterrier_debias.audit`.
        effectiveness: Measures of effectiveness; they come first in the list.
        depth: The number of candidates per query that a ranker is given, if systems are run.

    Returns:
        The measures; ``second_run`` says how to get the other figures.

    Raises:
        InputError: If a bias, measure or dataset is unknown, or the judgements are for other topics.

    Example:
        >>> from pyterrier_debias import PlantedCollection, bias_measures
        >>> found = bias_measures(PlantedCollection(), biases="pooling")
        >>> [str(m) for m in found], list(found.second_run)
        (['nDCG@10', 'Judged@10', 'nDCG(judged_only=True)@10'], ['nDCG@10 with inferred labels'])

    When not to use it: for tests of bias. The audit compares each figure with its value under chance alone and corrects for the
    number of tests; the ``baseline`` of ``pt.Experiment`` does neither.
    """
    chosen = find_biases(biases)
    collection = open_dataset(dataset, split=split)
    known_topics, known_qrels = topics_and_qrels(collection, topics, qrels)
    examined = [] if systems is None else named_systems(systems, collection)
    context = Context(examined, collection, known_topics, known_qrels, depth=depth)
    found: list[Any] = list(parse_measures(effectiveness))
    second: dict[str, str] = {}
    owners: dict[str, str] = {}
    for bias in chosen:
        own, other = bias.measures(context)
        for measure in own:
            if measure not in found:
                found.append(measure)
                owners[str(measure)] = bias.name
        second.update(other)
        owners.update(dict.fromkeys(other, bias.name))
    return Measures(found, second, owners)
