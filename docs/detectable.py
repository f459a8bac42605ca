"""The smallest effects that the small settings could have shown, compared with the papers' effects.

    python docs/detectable.py

reads the tables of results in `pyterrier_debias/pt_docs` and prints, for each experiment of the papers that was run here, the
effect that was found with its interval, the smallest effect that a two-sided test at 5 % would find with a power of 80 %
(`pyterrier_debias.core.statistics.detectable_effect`, for a single test; after a correction for several tests it is larger), and
the effect that the paper reports. `docs/coverage.rst` has the same figures, which a test compares with these.

The effects are approximate: an interval from a bootstrap over seeds and queries is treated as a t interval over the queries, and
limits are rounded to the digits of the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "pyterrier_debias" / "pt_docs"
_INTERVAL = re.compile(r"([+-]?[\d.]+) \[([+-]?[\d.]+), ([+-]?[\d.]+)\]")


@dataclass(frozen=True)
class Effect:
    """An experiment of a paper, and the place of its effect in a table of results.

    Attributes:
        section: The section of the coverage page.
        item: The beginning of the row in that section; several effects may belong to one row.
        what: Name of the effect.
        table: File name, without its ending.
        where: Values of the table's columns that select one row.
        column: The column of the effect.
        n: Number of units that were drawn: queries, articles, or seeds.
        published: The paper's effect, in words if it is not a single number; None if the paper has none.
        measured_by: The paper's measure, if it differs from ours.
    """

    section: str
    item: str
    what: str
    table: str
    where: Mapping[str, str]
    column: str
    n: int
    published: float | str | None = None
    measured_by: str = ""


def _position(item: str, ranker: str, arm: str, published: float | str) -> Effect:
    table, group, n = ("position_planted_gap", "early", 100) if arm else ("position_natural_gap", "all", 200)
    where = {"group": group, "ranker": ranker, "measure": "nDCG@10"}
    return Effect("Position", item, f"{ranker}{arm}", table, where, "amount closed", n, published)


def _mats(name: str, table: str, published: float, **where: str) -> Effect:
    where = {"term average": "present", **where}
    return Effect("Position", f"Table 2, MATS of TK on {name},", name, table, where, "difference", 3, published)


def _transfer(name: str, table: str, n: int, published: float, **where: str) -> Effect:
    where = {"before": "original, then target", "after": "rotated, then target", "measure": "nDCG@10", **where}
    return Effect("Position", "Table 5", name, table, where, "difference", n, published)


def _cet(item: str, what: str, table: str, n: int, published: float | None, measured_by: str = "", **where: str) -> Effect:
    return Effect("Pooling", item, what, table, {"correction": "CET, paper", **where}, "difference", n, published, measured_by)


def _equalize(item: str, what: str, table: str, n: int, column: str, published: float | None = None, **where: str) -> Effect:
    where = {"ranker": "Equalize, weaker model", **where}
    return Effect("Linguistic", item, what, table, where, column, n, published)


def _gender(
    item: str, measure: str, arm: str, n: int, published: float | None, table: str = "gender_tables_differences"
) -> Effect:
    where = {"arm": arm, "measure": f"{measure}@10"}
    return Effect("Gender", item, f"{measure}@10, {arm}", table, where, "difference", n, published)


_QS1, _QS2, _ADVERSARY = "gender_natural_qs1", "gender_natural_qs2", "adversarial, trained first"

EFFECTS = (
    _mats("MS MARCO", "position_msmarco_mats_change", 0.021 - 0.176),
    _mats("SQuAD", "position_mats_change", 0.007 - 0.056, positional="absolute",
          collection="squad_dev_v1.1_rebuilt + squad_train_v1.1_44articles"),
    Effect("Position", "Table 3", "BERT_CAT", "position_msmarco_six_gap", {"group": "dev600", "ranker": "BERT_CAT"},
           "amount closed", 600, (0.432 - 0.395) - (0.416 - 0.415)),
    Effect("Position", "Table 3", "BERT_DOT", "position_msmarco_six_gap", {"group": "dev600", "ranker": "BERT_DOT"},
           "amount closed", 600, (0.373 - 0.329) - (0.362 - 0.364)),
    Effect("Position", "Table 3", "TK", "position_msmarco_six_gap", {"group": "dev600", "ranker": "TK"},
           "amount closed", 600, "not at hand"),
    _position("Table 3", "BERT_CAT", ", planted", (0.432 - 0.395) - (0.416 - 0.415)),
    _position("Table 3", "BERT_DOT", ", planted", (0.373 - 0.329) - (0.362 - 0.364)),
    _position("Table 4", "BERT_CAT", "", "within 1 %"),
    _position("Table 4", "BERT_DOT", "", "within 1 %"),
    _position("Table 4", "TK", "", "within 1 %"),
    _transfer("BERT_CAT", "position_transfer_msmarco_cat_pairs", 32, 0.911 - 0.913),
    _transfer("BERT_DOT", "position_transfer_msmarco_pairs", 32, 0.792 - 0.780),
    _transfer("TK", "position_transfer_msmarco_tk_pairs", 32, 0.857 - 0.846),
    _cet("Table 3, passages of MS MARCO", "planted, nDCG@10", "pooling_strong", 500, 0.3638 - 0.3562, "MRR@10"),
    _cet("Table 3, passages of MS MARCO", "NFCorpus, nDCG@10", "pooling_nfcorpus", 323, 0.3638 - 0.3562, "MRR@10"),
    _cet("Table 3, passages of TREC DL 2019", "2019 and 2020", "pooling_trec_dl", 97, 0.7243 - 0.6958),
    _cet("Table 3, documents of MS MARCO", "NFCorpus, nDCG@10", "pooling_long", 323, 0.4311 - 0.3898, "MRR@100"),
    _cet("Figure 4, tau", "tau .25", "pooling_sensitivity", 323, None, correction="CET, tau 0.25"),
    _cet("Figure 4, the threshold", "threshold .1", "pooling_sensitivity", 323, None, correction="denoised, below 0.1"),
    _cet("Future work, rankers as", "Recall@100", "pooling_retrieval", 323, None, use="retrieved", measure="Recall@100"),
    _equalize("Table 2, NFCorpus", "mean", "equalize_changes", 600, "mean", 0.37 - 0.31),
    _equalize("Table 2, NFCorpus", "c_v", "equalize_changes", 600, "cv", 0.62 - 0.87),
    _equalize("Table 2, FiQA", "mean", "equalize_adapters_changes", 333, "mean", 0.29 - 0.22, dataset="fiqa_subset"),
    _equalize("Table 2, FiQA", "c_v", "equalize_adapters_changes", 333, "cv", 0.72 - 0.82, dataset="fiqa_subset"),
    *(
        Effect("Linguistic", "Table 5", learner, "equalize_adapters_learners", {"dataset": "fiqa_subset", "learner": learner},
               "change of mean", 333, mean - 0.22)
        for learner, mean in (("weaker_model", 0.29), ("less_data", 0.27), ("fewer_steps", 0.27), ("biased_data", 0.26))
    ),
    _equalize("Table 7", "weaker_model, mean", "equalize_adapters_changes", 600, "mean", 0.37 - 0.31, dataset="nfcorpus"),
    *(
        Effect("Linguistic", "Table 7", f"{learner}, mean", "equalize_adapters_learners",
               {"dataset": "nfcorpus", "learner": learner}, "change of mean", 600)
        for learner in ("less_data", "fewer_steps", "biased_data")
    ),
    *(
        _equalize("Figure 1, effectiveness over complexity", f"slope of BM25, {name}", "equalize_adapters_slopes", n, "slope",
                  ranker="BM25", dataset=dataset)
        for name, dataset, n in (("NFCorpus", "nfcorpus", 600), ("FiQA", "fiqa_subset", 333))
    ),
    _equalize("Figure 3", "change of slope, NFCorpus", "equalize_changes", 600, "slope"),
    *(
        _equalize("Figure 4", f"change of slope, {name}", "equalize_adapters_changes", n, "slope", dataset=dataset)
        for name, dataset, n in (("NFCorpus", "nfcorpus", 600), ("FiQA", "fiqa_subset", 333))
    ),
    *(
        _equalize("Figure 5", f"change of slope, {learner}", "equalize_adapters_changes", 600, "slope", dataset="nfcorpus",
                  ranker=f"Equalize, {learner}")
        for learner in ("weaker model", "less data", "fewer steps", "biased data")
    ),
    _equalize('Text, "LC as Rev Weight"', "mean, NFCorpus", "equalize_changes", 600, "mean", ranker="reverse weight"),
    _equalize("Text, choice of alpha", "c_v, NFCorpus, alpha .5", "equalize_alpha_changes", 600, "cv", dataset="nfcorpus",
              ranker="Equalize, alpha 0.5"),
    _equalize("Table 3, significance tests on FiQA", "against plain training", "equalize_adapters_changes", 333, "mean",
              0.29 - 0.22, dataset="fiqa_subset"),
    Effect("Linguistic", "Table 3, significance tests on NFCorpus", "against plain training", "equalize_tests",
           {"against": "plain"}, "difference", 600, 0.37 - 0.31),
    _gender("Table 1", "RR", "balanced 0.25", 300, 0.3002 - 0.3080),
    _gender("Table 3, original and balanced judgements, QS1", "ARaB_tf", "balanced 0.25", 1715, 0.059 - 0.072, _QS1),
    _gender("Table 3, original and balanced judgements, QS1", "ARaB_bool", "balanced 0.25", 1715, 0.049 - 0.059, _QS1),
    _gender("Table 3, original and balanced judgements, QS2", "ARaB_tf", "balanced 0.25", 212, 0.019 - 0.029, _QS2),
    _gender("Table 3, original and balanced judgements, QS2", "ARaB_bool", "balanced 0.25", 212, 0.011 - 0.017, _QS2),
    _gender("Table 3, the column", "gap", "balanced 0.25", 260, None),
    _gender("Seyedsalehi et al.", "ARaB_tf", "bias-aware loss", 260, None),
    _gender("Rekabsaz et al. 2021, AdvBERT", "NFaiRR", "adversarial", 260, None),
    _gender("Table 4, balanced judgements beside AdvBERT, QS1", "ARaB_tf", "balanced 0.25", 1715, 0.047 - 0.076, _QS1),
    _gender("Table 4, balanced judgements beside AdvBERT, QS1", "ARaB_tf", _ADVERSARY, 1715, 0.064 - 0.076, _QS1),
    _gender("Table 4, balanced judgements beside AdvBERT, QS2", "ARaB_tf", "balanced 0.25", 212, 0.001 - 0.005, _QS2),
    _gender("Table 4, balanced judgements beside AdvBERT, QS2", "ARaB_tf", _ADVERSARY, 212, 0.009 - 0.005, _QS2),
    _gender("Text, QS1", "ARaB_tf", "balanced 0.25", 1715, None, _QS1),
    _gender("Text, QS2", "ARaB_tf", "balanced 0.25", 212, None, _QS2),
    _gender("Bigdeli et al. ECIR 2022", "ARaB_tf", "bias-aware negatives", 260, 0.0967 - 0.1281),
    Effect("Survivorship", "Future work, training on what survives", "nDCG@10, BM25's list, k = 1", "survivorship_filtered",
           {"measure": "nDCG@10", "shown": "BM25", "k": "1", "trained on": "first k"}, "difference", 48),
    Effect("Survivorship", "Future work, training on what survives", "a network, weak list, k = 10",
           "survivorship_filtered_dense", {"measure": "nDCG@10", "trained on": "first k"}, "difference", 48),
)  # fmt: skip


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a `list-table`, by the names of its columns."""
    text = (FOLDER / f"{table}.inc").read_text(encoding="utf-8").replace("\\@", "@")
    blocks = re.split(r"^   \* - ", text, flags=re.MULTILINE)[1:]
    cells = [[cell.strip() for cell in re.split(r"^     -", "     -" + block, flags=re.MULTILINE)[1:]] for block in blocks]
    return [dict(zip(cells[0], line)) for line in cells[1:]]


def found(effect: Effect) -> tuple[float, float, float]:
    """The effect that was found, and its interval.

    Raises:
        ValueError: If not exactly one row is selected, or it has no interval.
    """
    rows = [row for row in rows_of(effect.table) if all(row.get(name) == value for name, value in effect.where.items())]
    if len(rows) != 1:
        raise ValueError(f"{effect.table}: {len(rows)} rows are {dict(effect.where)}")
    match = _INTERVAL.fullmatch(rows[0][effect.column])
    if match is None:
        raise ValueError(f"{effect.table}: {rows[0][effect.column]!r} has no interval")
    estimate, low, high = map(float, match.groups())
    return estimate, low, high


def detectable(effect: Effect) -> float:
    """The smallest effect that one test would have found with a power of 80 %."""
    from pyterrier_debias.core.statistics import Interval, detectable_effect

    return detectable_effect(Interval(*found(effect), 0.95, effect.n))


def short(value: float) -> str:
    """Three digits, or four where these would be zeros, without the zero in front."""
    return f"{value:.{3 if abs(value) >= 0.0005 else 4}f}".replace("0.", ".", 1)


def said(effect: Effect) -> str:
    """The text about an effect in the coverage."""
    own = f"{effect.what}: {short(detectable(effect))}"
    if effect.published is None:
        return own
    paper = effect.published if isinstance(effect.published, str) else short(effect.published)
    return f"{own}; paper {paper}{f' ({effect.measured_by})' if effect.measured_by else ''}"


def main() -> int:
    """Print all effects."""
    for effect in EFFECTS:
        estimate, low, high = found(effect)
        interval = f"found {short(estimate)} [{short(low)}, {short(high)}], n = {effect.n}"
        print(f"{effect.section}: {effect.item} | {said(effect)} | {interval}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
