"""Treatments that are known to help against each bias, with the figures of the experiments.

Reports take their recommendations only from here. A treatment is listed only if a committed table of ``pt_docs`` shows that it
reduced the bias; each sentence quotes figures of its page, including what the treatment cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

#: Where the documentation pages are.
PAGES = "https://github.com/pyterrier-debias/pyterrier_debias/blob/main/pyterrier_debias/pt_docs"


@dataclass(frozen=True)
class Treatment:
    """What can be done about a bias, and what it did in our experiments.

    Attributes:
        name: Its name.
        sentence: What it does, and what it cost.
        code: Lines that fit the audited pipeline: ``systems`` is the dictionary that was audited.
        page: The documentation page that tells more, such as ``'position_results'``.
        stage: The class of the stage that applies it; empty where it is none. It is not recommended to a system that has one.
    """

    name: str
    sentence: str
    code: str
    page: str
    stage: str = ""

    @property
    def address(self) -> str:
        """The page's address."""
        return f"{PAGES}/{self.page}.rst"


_FIT = "({first} % {depth} >> AddJudged(qrels) >> dataset.text_loader() >> ranker).fit(topics, qrels)"

#: Bias to what helps, the cheapest first. No table shows that anything lessens the other biases: filtering training queries
#: (``survivorship_training*.inc``) and EqualizeReranker (``equalize_*.inc``) did not.
TREATMENTS: Mapping[str, tuple[Treatment, ...]] = {
    "position": (
        Treatment(
            "Average over rotations",
            "On 97 queries of TREC Deep Learning it removed 83 % of all-MiniLM-L6-v2's displacement, without training. Cost: "
            "four times the ranker's time; nDCG@10 changed by +.005 [-.005, .017].",
            "ranker = AverageRotations({ranker}({model}), rotations=4)\n"
            "averaged = {first} % {depth} >> dataset.text_loader() >> ranker",
            "position_results",
            "AverageRotations",
        ),
        Treatment(
            "Train on rotated passages",
            "On SQuAD with answers planted early, a cross-encoder's loss of .167 nDCG@10 under rotation was gone. Cost: .127 "
            "[.065, .185] on passages whose answers stand early. Where the bias was weak, nothing was gained.",
            f"ranker = {{ranker}}({{model}}, training=Training(augment=RotatePassages()))\n{_FIT}",
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
            "On the same queries it cut the absolute ARaB@10 by 46 %. Cost: nDCG@10 changed by +.009 [-.024, .042], so that a "
            "loss of .02 cannot be excluded.",
            "biased = Training(negatives=BiasAwareNegatives(share=0.6), negatives_per_positive=20)\n"
            f"ranker = {{ranker}}({{model}}, training=biased)\n{_FIT}",
            "gender_results",
        ),
    ),
    "pooling": (
        Treatment(
            "Infer the missing labels",
            "On TREC DL 2019 judged by BM25's first ten alone, it took Kendall's tau of the order of six runs from -.20 to "
            "+.73, and the error of a query from .317 to .149. Cost: where the pool held nearly all, that error grew from .046 "
            "to .057.",
            "runs = {{name: system(topics) for name, system in systems.items()}}\n"
            "measures = [nDCG @ 10, ExpectedNDCG(infer_judgements(runs, qrels)) @ 10]\n"
            "pt.Experiment(list(systems.values()), topics, qrels, measures, names=list(systems), plan='tree')",
            "pooling",
        ),
    ),
}


def treatments(bias: str, system: str, settings: Mapping[str, Any]) -> tuple[Treatment, ...]:
    """What helps against a bias, as code for one of the audited systems.

    Args:
        bias: The bias' name.
        system: The system's name.
        settings: Those of the audit: ``systems``, ``depth``, and, where known, ``rankers`` (system to the class of its ranker),
            ``treated`` (system to the stages that treat it already) and ``untreated`` (system to what it is without these).

    Returns:
        Treatments that the system does not have yet; empty where no table shows a gain.

    Example:
        >>> audited = {"systems": ["BM25", "BM25 >> my-model"], "depth": 30, "rankers": {"BM25 >> my-model": "BiEncoder"}}
        >>> print(treatments("position", "BM25 >> my-model", audited)[0].code)
        ranker = AverageRotations(BiEncoder('my-model'), rotations=4)
        averaged = systems['BM25'] % 30 >> dataset.text_loader() >> ranker
        >>> treatments("survivorship", "BM25", audited)
        ()
    """
    first, _, model = settings.get("untreated", {}).get(system, system).rpartition(" >> ")
    names = {
        "system": f"systems[{system!r}]",
        "first": f"systems[{first!r}]" if first in settings["systems"] else "candidates",
        "model": repr(model) if first else "model",
        "ranker": settings.get("rankers", {}).get(system, "CrossEncoder"),
        "depth": settings["depth"],
    }
    there = settings.get("treated", {}).get(system, ())
    others = [one for one in TREATMENTS.get(bias, ()) if one.stage not in there]
    return tuple(replace(one, code=one.code.format(**names)) for one in others)
