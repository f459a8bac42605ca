"""Treatments that are known to help against each bias, with the figures of the experiments.

Reports take their recommendations only from here. A treatment is listed only if a committed table of ``pt_docs`` shows that it
reduced the bias; each sentence quotes figures of its page, including what the treatment cost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyterrier as pt

import pyterrier_debias
from pyterrier_debias.core.errors import visible
from pyterrier_debias.core.spread import Spread
from pyterrier_debias.core.stage import all_stages, flatten, join
from pyterrier_debias.core.systems import System
from pyterrier_debias.report.inputs import named_systems

#: Where the documentation pages are.
PAGES = "https://github.com/pyterrier-debias/pyterrier_debias/blob/main/pyterrier_debias/pt_docs"


@dataclass(frozen=True)
class Treatment:
    """A treatment that reduces a bias, and what it did in our experiments.

    Attributes:
        name: The name of the treatment.
        sentence: What it does, and what it costs.
        code: Lines of code for the audited pipeline: ``systems`` is what was audited; ``train_topics`` and ``train_qrels`` are
            queries other than those of the audit, and their judgements.
        page: The documentation page with details, such as ``'position_results'``.
        stage: The class of the stage that applies the treatment, which is not recommended to a system that has such a stage;
            empty if it is not a stage.
    """

    name: str
    sentence: str
    code: str
    page: str
    stage: str = ""

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"{PAGES}/{self.page}.rst"

    @property
    def imports(self) -> str:
        """The import lines that the code needs."""
        used = {node.id for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Name)}
        ours = ", ".join(sorted(used & set(pyterrier_debias.__all__)))
        lines = [*(line for name, line in _OTHERS.items() if name in used), f"from pyterrier_debias import {ours}"]
        return "\n".join(sorted(lines, key=lambda line: (line.startswith("from"), "debias" in line, line)))


#: What the code uses besides this package's public names, and how it is imported.
_OTHERS = {
    "pt": "import pyterrier as pt",
    "nDCG": "from ir_measures import nDCG",
    "infer_judgements": "from pyterrier_debias.pooling.measures.unjudged import infer_judgements",
    "pipelines": "from pyterrier_debias.report.treatments import pipelines",
}
#: What code begins with that names systems which were not given as a dictionary of pipelines.
_CONVERTED = "systems = pipelines(systems, dataset)\n"
#: Rerankers that compare the documents of a list: scores of two rotations are of different lists, and fit() is not supported.
_LISTWISE = "DuoT5"

_FIT = (
    "training = {first} % {depth} >> AddJudged(train_qrels) >> dataset.text_loader() >> ranker\n"
    "training.fit(train_topics, train_qrels)"
)

#: For each bias, the treatments that help, the cheapest first. No table shows that anything reduces the others: filtering queries
#: (``survivorship_filtered.inc``) and EqualizeReranker (``equalize_*.inc``) did not.
TREATMENTS: Mapping[str, tuple[Treatment, ...]] = {
    "position": (
        Treatment(
            "Average over rotations",
            "On 97 queries of TREC Deep Learning it removed 83 % of all-MiniLM-L6-v2's displacement, without training. Cost: "
            "four times the ranker's time; nDCG@10 changed by +.005 [-.005, .017] (for a small cross-encoder of our "
            "own with two rotations, by -.017 [-.032, -.003]).",
            "ranker = AverageRotations({ranker}, rotations=4)\n"
            "averaged = {first} % {depth} >> dataset.text_loader() >> ranker",
            "position_results",
            "AverageRotations",
        ),
        Treatment(
            "Train on rotated passages",
            "On MS MARCO it removed a cross-encoder's loss of .060 nDCG@10 under rotation. Cost on original passages: .020 "
            "[.002, .037] nDCG@10; on SQuAD with answers planted early, .127 [.065, .185].",
            f"ranker = {{begin}}training=Training(augment=RotatePassages()))\n{_FIT}",
            "position_results",
        ),
    ),
    "gender": (
        Treatment(
            "Re-rank by neutrality",
            "On 260 neutral queries of MS MARCO it cut the absolute ARaB@10 by 73 %, without training. Cost: nDCG@10 changed "
            "by -.001 [-.011, .009].",
            "neutral = {system} % {depth} >> dataset.text_loader() >> NeutralReranker(strength=0.25)",
            "gender_results",
            "NeutralReranker",
        ),
        Treatment(
            "Train with biased negatives",
            "On the same queries it cut the absolute ARaB@10 by 46 %. Cost: nDCG@10 changed by +.009 [-.024, .042], so a loss "
            "of .02 cannot be ruled out.",
            "biased = Training(negatives=BiasAwareNegatives(share=0.6), negatives_per_positive=20)\n"
            f"ranker = {{begin}}training=biased)\n{_FIT}",
            "gender_results",
        ),
        Treatment(
            "Swap gendered words in training",
            "It removed all of a bias that was planted in training data (1.36 [.95, 2.53]); on the original MS MARCO it showed "
            "no change. Cost: nDCG@10 changed by -.003 [-.019, .015].",
            "swapped = Training(augment=SwapGender(share=0.5))\n"
            f"ranker = {{begin}}training=swapped)\n{_FIT}",
            "gender_results",
        ),
    ),
    "pooling": (
        Treatment(
            "Infer the missing labels",
            "On TREC DL 2019 with judgements of BM25's first ten only, it raised Kendall's tau of the order of six runs from "
            "-.20 to +.73, and lowered the error per query from .317 to .149. Cost: with a nearly complete pool, that error "
            "grew from .046 to .057.",
            "runs = {{name: system(topics) for name, system in systems.items()}}\n"
            "measures = [nDCG @ 10, ExpectedNDCG(infer_judgements(runs, qrels)) @ 10]\n"
            "pt.Experiment(list(systems.values()), topics, qrels, measures, names=list(systems), plan='tree')",
            "pooling",
        ),
    ),
}

#: Treatments that do not help a ranker that prefers rotated passages; it may do so because it was trained on them.
FOR_EARLY_ANSWERS = {"Train on rotated passages"}
#: The treatments that are stages.
_STAGES = {one.stage for several in TREATMENTS.values() for one in several if one.stage}


def treatments(bias: str, system: str, settings: Mapping[str, Any]) -> tuple[Treatment, ...]:
    """The treatments that reduce a bias, with code for one of the audited systems.

    Args:
        bias: The bias' name.
        system: The system's name.
        settings: The settings of the audit: ``systems``, ``depth``, and, if known, ``rankers`` (:func:`rankers_as_code`),
            ``treated`` (:func:`treated_by`), ``untreated`` (system to the same system without these), ``retrievers``
            (:func:`retrievers_of`) and ``pipelines`` (:func:`are_pipelines`).

    Returns:
        Treatments that the system does not have yet; empty if no table shows a gain.

    Example:
        >>> audited = {"systems": ["BM25", "mine"], "depth": 30, "rankers": {"mine": "BiEncoder('my-model')"}}
        >>> print(treatments("position", "mine", audited)[0].code)
        ranker = AverageRotations(BiEncoder('my-model'), rotations=4)
        averaged = candidates % 30 >> dataset.text_loader() >> ranker
        >>> treatments("survivorship", "BM25", audited)
        ()
    """
    named = settings.get("untreated", {}).get(system, system).rpartition(" >> ")[0]
    first = settings.get("retrievers", {}).get(system, named)
    ranker = settings.get("rankers", {}).get(system)
    names = {
        "system": f"systems[{system!r}]",
        "first": f"systems[{first!r}]" if first in settings["systems"] else "candidates",
        "ranker": ranker or "ranker",
        "begin": f"{(ranker or 'CrossEncoder(model)').removesuffix(')')}, ",
        "depth": settings["depth"],
    }
    there = settings.get("treated", {}).get(system, ())
    others = [one for one in TREATMENTS.get(bias, ()) if one.stage not in there]
    if ranker == "":
        others = [one for one in others if ">> ranker" not in one.code]
    told = [replace(one, code=one.code.format(**names)) for one in others]
    if settings.get("pipelines", True):
        return tuple(told)
    return tuple(replace(one, code=_CONVERTED + one.code) if "systems" in one.code else one for one in told)


def pipelines(systems: Any, dataset: Any) -> dict[str, pt.Transformer]:
    """The systems of an audit as pipelines from topics to results, in whatever form they were given to it.

    Args:
        systems: As for :func:`~pyterrier_debias.report.run.audit`, but not None.
        dataset: The collection of the audit, opened with its split: the source of candidates for rankers alone.

    Returns:
        A dictionary from the names in the report to pipelines.

    Raises:
        InputError: If the systems could not be audited.

    Example:
        >>> from pyterrier_debias import PlantedCollection
        >>> dataset = PlantedCollection(topics=6, passages=60)
        >>> lengths = pt.apply.doc_score(lambda row: len(row["text"]))
        >>> named = pipelines({"run": dataset.get_runs()["bm25"], "mine": lengths}, dataset)
        >>> ["text" in pipeline(dataset.get_topics()) for pipeline in named.values()]
        [False, True]
    """
    found = named_systems(systems, dataset)
    parts = {visible(system.name): (system.candidates, system.ranker) for system in found}
    return {name: join(*(one for one in part if one is not None)) for name, part in parts.items()}


def are_pipelines(systems: Any, examined: Sequence[System]) -> bool:
    """Whether systems can be used as pipelines under the names in the report: they are a dictionary of pipelines.

    Args:
        systems: As for :func:`~pyterrier_debias.report.run.audit`; None, which makes the default systems, counts as one.
        examined: The systems that the audit made from them.

    Returns:
        False if one of them is a ranker alone, a result frame or a System, or they are not in a dictionary under these names.
    """
    if not isinstance(systems, Mapping):
        return systems is None
    given = zip(systems.items(), examined)
    # The candidates of a ranker alone begin with a run.
    return all(
        name == system.name and isinstance(one, pt.Transformer) and flatten(one)[0] is flatten(system.candidates)[0]
        for (name, one), system in given
    )


def stages_of(system: System) -> Iterator[pt.Transformer]:
    """All stages of a system, including those inside other stages."""
    for part in (system.candidates, system.ranker):
        if part is not None:
            yield from all_stages(part)


def treated_by(systems: Sequence[System]) -> dict[str, list[str]]:
    """For each system, its stages that reports recommend as treatments of a bias."""
    found = {system.name: sorted(_STAGES & {type(stage).__name__ for stage in stages_of(system)}) for system in systems}
    return {name: stages for name, stages in found.items() if stages}


def retrievers_of(systems: Sequence[System]) -> dict[str, str]:
    """The retriever of each system with a ranker, if it was audited, too.

    Args:
        systems: The audited systems.

    Returns:
        For each such system, the name of the one without a ranker whose stages are the first of its candidates.
    """
    plain = [(system.name, flatten(system.candidates)) for system in systems if system.ranker is None]
    found = {}
    for system in systems:
        stages = [] if system.ranker is None else flatten(system.candidates)
        for name, own in plain:
            if len(own) <= len(stages) and all(one is other for one, other in zip(own, stages)):
                found[system.name] = name
    return found


def rankers_as_code(systems: Sequence[System]) -> dict[str, str]:
    """The ranker of each system as code, for treatments.

    Args:
        systems: The audited systems.

    Returns:
        For each system, what :meth:`~pyterrier_debias.rankers.base.Ranker.as_code` returns for its ranker, without stages that
        treat a bias; empty for a ranker that compares the documents of a list, which no code fits. Other rankers are missing: the
        code may not leave out stages that come after a ranker of this package, or around it.
    """
    found = {}
    for system in systems:
        stages = [] if system.ranker is None else list(all_stages(system.ranker))
        if any(type(stage).__name__.startswith(_LISTWISE) for stage in stages):
            found[system.name] = ""
        untreated = [one for one in stages if type(one).__name__ not in _STAGES and not isinstance(one, Spread)]
        if len(untreated) == 1 and hasattr(untreated[0], "as_code"):
            found[system.name] = untreated[0].as_code()
    return found
