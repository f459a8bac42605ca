"""The figures of biases that are defined by query on one ranking, as measures for ``pt.Experiment``."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pyterrier_debias.core.evaluation import parse_measures
from pyterrier_debias.core.systems import Context
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.report.inputs import find_biases, named_systems, topics_and_qrels


class Measures(list):
    """A list of measures, as ``pt.Experiment`` takes it, that knows which figures need another run.

    Attributes:
        second_run: Figure to where it can be had.
        biases: Name of each measure to the bias that it is of.
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
        """One row a figure: ``figure``, ``bias`` (empty for plain effectiveness), ``how``."""
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
    """Every figure of the biases that one ranking tells, for ``pt.Experiment``.

    Give ``pt.Experiment`` the same topics and judgements. Topics without judgements may be among them: every measure here has a
    value for judged topics only, so that none is mixed up with those that need judgements. Where a measure is over some of the
    topics, its name says that single values are influence values (:class:`~pyterrier_debias.ARaB`); its mean is over these.

    Args:
        dataset: As for :func:`pyterrier_debias.report.run.audit`.
        biases: The same.
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
        InputError: For an unknown bias, measure or dataset, or judgements of other topics.

    Example:
        >>> from pyterrier_debias import PlantedCollection, bias_measures
        >>> found = bias_measures(PlantedCollection(), biases="pooling")
        >>> [str(m) for m in found], list(found.second_run)
        (['nDCG@10', 'Judged@10', 'nDCG(judged_only=True)@10'], ['nDCG@10 with inferred labels'])

    When not to use it: for tests of bias. The audit knows what each figure is by chance and corrects for the number of tests; an
    experiment's ``baseline`` does neither.
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
