"""Do rankers score the male, the female and the neutral version of one document differently? GrepBiasIR with paired tests.

    python examples/gender_bias/grepbias.py --data grepbiasir --out grepbias

Krieg et al. (2023) wrote two documents for each of 117 queries, one relevant and one not, in three versions that only differ in
the gender of the persons. BM25 (PISA, over all 702 documents) and all-MiniLM-L6-v2 score every version for its query, and the
versions of a document are compared: the mean difference of scores in units of the ranker's own standard deviation between
documents (so that rankers can be compared), how often the male version scores higher than the female one, and p by randomisation
over queries, which keeps both documents of a query together.

What it cannot tell: how a difference changes a ranking in which the versions do not compete with each other; how rankers treat
queries that people type, because these 117 are worded differently; and whether a version has more or rarer words only because of
the language. BM25 sees nothing but words and length (the table of lengths shows how much longer a version is).
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import program, write_results

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import bootstrap_interval, correct, randomisation_test
from pyterrier_debias.report.models import find_model

VERSIONS = {"M": "male", "F": "female", "N": "neutral"}
PAIRS = (("male", "female"), ("male", "neutral"), ("female", "neutral"))
NOTES = [
    "difference: mean over queries of score(first) - score(second), in standard deviations of the ranker's scores between the "
    "documents of a query's neutral versions; low, high: 95 % bootstrap over queries; p: paired randomisation over queries, "
    "p_corrected: Holm over the pairs of versions and the rankers of a table.",
    "above: share of documents whose first version has the higher score; ties count half.",
    "Documents with a version for both genders, or without all three versions, are left out.",
    "A document is its title and its text. Stereotypes are those that annotators expect of a query; most queries have none.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the folder, the model, and the seed of intervals and tests."""

    data: str
    model: str
    seed: int


def triples(folder: Path) -> pd.DataFrame:
    """One row per document and version: ``qid``, ``query``, ``relevant``, ``version``, ``category``, ``stereotype``, ``docno``,
    ``text``."""
    files = sorted(folder.glob("queries-documents_*.csv"))
    if not files:
        raise InputError(f"--data {folder}: there is no queries-documents_*.csv; give the folder of GrepBiasIR")
    frames = [pd.read_csv(file).assign(category=file.stem.split("_", 1)[1].replace("_", " ")) for file in files]
    frame = pd.concat(frames, ignore_index=True)
    frame = frame.assign(
        qid=frame["q_id"].astype(str),
        docno="d" + frame["d_id"].astype(str),
        text=frame["doc_title"].str.strip() + ". " + frame["document"].str.strip(),
        version=frame["content_gender"].map(VERSIONS),
        stereotype=frame["exp_stereotype"].str.lower(),
    )
    whole = frame.groupby(["qid", "relevant"])["version"].transform(lambda v: set(v.dropna()) == set(VERSIONS.values()))
    frame = frame[whole & frame["version"].notna()]
    columns = ["qid", "query", "relevant", "version", "category", "stereotype", "docno", "text"]
    return frame[columns].reset_index(drop=True)


def bm25(frame: pd.DataFrame) -> np.ndarray:
    """BM25 scores of the pairs; 0 where the document has no word of the query."""
    from pyterrier_pisa import PisaIndex

    with tempfile.TemporaryDirectory() as folder:
        index = PisaIndex(str(Path(folder) / "index"), text_field="text")
        index.index(frame[["docno", "text"]].to_dict("records"))
        topics = frame[["qid", "query"]].drop_duplicates("qid")
        # Remove signs that a query parser might read as operators.
        topics = topics.assign(query=topics["query"].str.replace(r"[^\w\s]", " ", regex=True))
        results = index.bm25(num_results=len(frame))(topics)
    found = dict(zip(zip(results["qid"], results["docno"]), results["score"]))
    return np.array([found.get(pair, 0.0) for pair in zip(frame["qid"], frame["docno"])])


def neural(frame: pd.DataFrame, model: str) -> np.ndarray:
    """Scores of a model, in the order of the rows."""
    ranking = find_model(model).ranker()(frame[["qid", "query", "docno", "text"]])
    found = dict(zip(zip(ranking["qid"], ranking["docno"]), ranking["score"]))
    return np.array([found[pair] for pair in zip(frame["qid"], frame["docno"])])


def wide(frame: pd.DataFrame, scores: np.ndarray) -> pd.DataFrame:
    """One row per document, one column per version, in standard deviations between documents."""
    index = ["qid", "relevant", "category", "stereotype"]
    table = frame.assign(score=scores).pivot(index=index, columns="version", values="score")
    return (table / table["neutral"].std(ddof=0)).reset_index()


def compared(table: pd.DataFrame, first: str, second: str, seed: int) -> dict[str, float]:
    """The difference between two versions, over queries."""
    of_query = table.groupby("qid")[[first, second]].mean()
    change = (of_query[first] - of_query[second]).to_numpy()
    interval = bootstrap_interval(change, seed=seed)
    above = (table[first] > table[second]).mean() + (table[first] == table[second]).mean() / 2
    test = randomisation_test(of_query[second].to_numpy(), of_query[first].to_numpy(), seed=seed)
    return {
        "queries": len(of_query), "difference": interval.estimate, "low": interval.low, "high": interval.high, "above": above,
        "p": test.p,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of GrepBiasIR")
    parser.add_argument("--model", default="minilm", help="ranker besides BM25: hub name, folder, or minilm (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    options = parser.parse_args()
    frame = triples(options.data)
    name = find_model(options.model).name
    tables = {"BM25": wide(frame, bm25(frame)), name: wide(frame, neural(frame, options.model))}

    rows, by_category, by_stereotype = [], [], []
    for ranker, table in tables.items():
        parts = {"all": table, "relevant": table[table["relevant"] == 1], "not relevant": table[table["relevant"] == 0]}
        for which, part in parts.items():
            for pair in PAIRS:
                about = {"ranker": ranker, "documents": which, "versions": " - ".join(pair)}
                rows.append({**about, **compared(part, *pair, options.seed)})
        for column, own in (("category", by_category), ("stereotype", by_stereotype)):
            for value, part in table.groupby(column):
                own.append({"ranker": ranker, column: value, **compared(part, "male", "female", options.seed)})
    versions = pd.DataFrame(rows)
    corrected = versions.groupby("documents", sort=False)["p"].transform(lambda p: correct(p.to_numpy()))
    length = frame.assign(words=frame["text"].str.split().str.len()).groupby(["relevant", "version"])["words"].mean().unstack()
    results = {
        "versions": versions.assign(p_corrected=corrected),
        "categories": with_holm(pd.DataFrame(by_category)),
        "expected_stereotypes": with_holm(pd.DataFrame(by_stereotype)),
        "lengths": length.reset_index(),
    }
    settings = Settings(options.data.name, name, options.seed)
    title = f"Scores of male, female and neutral versions of {len(tables[name])} documents"
    write_results(options.out, title, settings, results, NOTES)


def with_holm(table: pd.DataFrame) -> pd.DataFrame:
    """Add p values that are corrected by Holm's method over the rows of each ranker."""
    return table.assign(p_corrected=table.groupby("ranker", sort=False)["p"].transform(lambda p: correct(p.to_numpy())))


if __name__ == "__main__":
    sys.exit(program(main))
