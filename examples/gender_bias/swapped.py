"""Do rankers score a document differently when its gender is swapped? Counterfactual documents, with paired tests.

    python examples/gender_bias/swapped.py --documents chatgpt-4o-latest.tsv.gz --out swapped

reads pairs of a document and its counterfactual (a table with the columns Query, original_Doc, transformed_Doc, transformation,
such as the 744 that Bigdeli and others published in `bias-eval-llms`), and scores both for their query with BM25 and with
all-MiniLM-L6-v2, or with the models that `--models` names. Besides the counterfactuals that a language model wrote, it uses those
of `SwapGender`, which only change gendered words: a language model that rewrites a text may also improve it.

Differences are transformed minus original, in units of the standard deviation of a ranker's scores over all original documents,
so that rankers can be compared. Intervals are Student's over pairs; p comes from Wilcoxon's signed-rank test and is corrected
(Holm) over all rows of a table.

What it cannot tell: whether a difference is wrong. A query that asks about mothers is better answered by a text about mothers.
Rows of one query are not independent; the tables give the number of queries and of pairs.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import t_interval, wilcoxon
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.gender.data.swap import swap_gender
from pyterrier_debias.pooling.data.evidence import collection_statistics, lexical_features
from pyterrier_debias.report.models import find_model

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import corrected, program, write_results

COLUMNS = ("Query", "original_Doc", "transformed_Doc", "transformation")

NOTES = [
    "difference: mean of transformed minus original, in standard deviations of the ranker's scores of original documents; low, "
    "high: 95 %, Student's over pairs. higher: share of pairs in which the transformed document scores higher, among pairs whose "
    "scores differ. p: Wilcoxon's signed-rank test; p_corrected: Holm, over the table.",
    "written: the language model's counterfactual. swapped: the original with its gendered words swapped one by one.",
    "BM25's statistics are those of the documents of the table, originals and counterfactuals.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        documents: The table of counterfactual documents.
        models: Names of the rankers besides BM25.
    """

    documents: str
    models: tuple[str, ...]


def read_pairs(path: Path) -> pd.DataFrame:
    """The table of counterfactuals: ``query``, ``original``, ``written``, ``direction``; rows without a text are left out.

    Raises:
        InputError: If the file cannot be read, or lacks a column.
    """
    try:
        table = pd.read_csv(path, sep="\t")
    except (OSError, ValueError) as error:
        raise InputError(f"--documents {path} cannot be read as a table ({error})") from error
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"--documents {path} lacks the column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
    table = table[list(COLUMNS)].dropna().astype(str)
    table = table.set_axis(["query", "original", "written", "direction"], axis="columns")
    return table.assign(direction=table["direction"].str.replace("→", "to").str.replace(r"\s+", " ", regex=True))


class BM25:
    """BM25 over the documents of the table."""

    def __init__(self, texts: list[str]):
        self.statistics = collection_statistics(texts, regex_word)

    def score(self, queries: list[str], texts: list[str]) -> np.ndarray:
        """Scores of n pairs."""
        pairs = zip(queries, texts)
        return np.array([lexical_features(regex_word(q), regex_word(t), self.statistics)[0] for q, t in pairs])


def rankers_of(models: list[str], pairs: pd.DataFrame) -> dict[str, Any]:
    """Rankers by name: BM25, and the models."""
    found = {model.name: model.ranker() for model in map(find_model, models)}
    return {"BM25": BM25([*pairs["original"], *pairs["written"]]), **found}


def tested(before: np.ndarray, after: np.ndarray, scale: float) -> dict[str, Any]:
    """The paired comparison of two lists of scores."""
    difference = (after - before) / scale
    interval = t_interval(difference)
    moved = np.abs(difference) > 1e-6
    return {
        "pairs": len(difference), "unchanged": int((~moved).sum()), "difference": interval.estimate, "low": interval.low,
        "high": interval.high, "higher": float((difference[moved] > 0).mean()) if moved.any() else float("nan"),
        "p": wilcoxon(before, after).p,
    }  # fmt: skip


def compared(pairs: pd.DataFrame, rankers: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Tables: written counterfactuals by direction, and swapped words where the direction is from one gender to the other."""
    swapped = pairs[~pairs["direction"].str.contains("Neutral")].assign(
        swapped=lambda frame: [swap_gender(text)[0] for text in frame["original"]]
    )
    tables: dict[str, list[dict[str, Any]]] = {"written": [], "swapped": []}
    for name, ranker in rankers.items():
        scale = float(ranker.score(pairs["query"].tolist(), pairs["original"].tolist()).std()) or 1.0
        for kind, frame in (("written", pairs), ("swapped", swapped)):
            for direction, own in frame.groupby("direction", sort=True):
                queries = own["query"].tolist()
                before, after = (ranker.score(queries, own[column].tolist()) for column in ("original", kind))
                row = {"ranker": name, "direction": direction, "queries": own["query"].nunique()}
                tables[kind].append({**row, **tested(before, after, scale)})
    return {kind: corrected(pd.DataFrame(rows)) for kind, rows in tables.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, required=True, help="table of counterfactual documents, tab-separated")
    parser.add_argument("--models", nargs="*", default=["minilm"], help="besides BM25: hub names or folders (default minilm)")
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    options = parser.parse_args()
    pairs = read_pairs(options.documents)
    tables = compared(pairs, rankers_of(options.models, pairs))
    settings = Settings(options.documents.name, tuple(options.models))
    write_results(options.out, "Counterfactual documents", settings, tables, NOTES)


if __name__ == "__main__":
    sys.exit(program(main))
