"""Source, length and order bias of real rankers.

    python examples/further_biases/audits.py --data FOLDER --out further

reads two folders in `FOLDER`: `nfcorpus` (with `corpus.llama2_rewritten.jsonl.gz`, where Llama 2 rewrote every document; it comes
from the Cocktail benchmark) and `msmarco_trec_dl` (TREC DL 2019 and 2020 with runs), and audits

- source: BM25 (PISA, both texts of each document in one index) and, over its candidates, all-MiniLM-L6-v2, on NFCorpus;
- length: the same two systems on NFCorpus; on TREC DL (both years) six published runs, and all-MiniLM-L6-v2 over BM25's
  candidates;
- order, on TREC DL: all-MiniLM-L6-v2 itself, which scores passages one by one, and all-MiniLM-L6-v2 as the sorter of two listwise
  rerankers: one sorts windows of 10 that overlap by 5, from the end of the list to its head, as listwise prompts do; the other
  sorts blocks of 5 separately.

No ranker is trained. The tables (`*.csv`, `*.inc`) contain only figures, no texts. A run that was stopped continues with the same
command: finished audits are kept. Nearly all of the time, some ten minutes on one core, is spent on the model's vectors.

What it cannot tell: why a text is preferred. Rewritten texts are a fifth shorter, and the figures of source bias are not
corrected for this. Windows that are sorted exactly only simulate a listwise prompt; a language model may also prefer some
positions inside its window.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias import AuditResult, Collection, System, audit, open_dataset
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.data.readers import read_corpus
from pyterrier_debias.further.source import SourceBias
from pyterrier_debias.report.first_stage import default_systems
from pyterrier_debias.report.models import find_model
from pyterrier_debias.report.result import RESULT_FILE

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import both_years, program, write_results

#: Columns of the published tables, with their names in the findings.
COLUMNS = ["system", "measure", "contrast", "value", "low", "high", "p", "p_corrected", "detectable", "n"]
NOTES = [
    "detectable: the smallest effect that the primary test would have found with a power of 80 %, after correction.",
    "p_corrected: in two steps over all tests of the audit; empty where a figure is descriptive.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        model: The bi-encoder.
        depth: Candidates per query that the model reranks; lists that are not reranked have 100 documents.
        queries: Number of queries of each collection; None for all.
    """

    model: str
    depth: int
    queries: int | None


def windows(size: int, step: int) -> Any:
    """A listwise reranker that sorts windows of the given list by the column ``worth``, from the end of the list to its head."""

    def sort(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.sort_values("given", ignore_index=True)
        order, worth = np.arange(len(frame)), frame["worth"].to_numpy()
        start = len(frame)
        while start > 0:
            start = max(0, start - step) if start < len(frame) else max(0, start - size)
            part = order[start : start + size]
            order[start : start + size] = part[np.argsort(-worth[part], kind="stable")]
        return frame.iloc[order].assign(score=-np.arange(len(frame), dtype=float))

    return pt.apply.by_query(sort, add_ranks=True)


def rerankers(collection: Collection, ranker: Any) -> dict[str, System]:
    """A pointwise reranker, and two listwise ones that sort by its scores."""
    candidates = pt.Transformer.from_df(collection.get_runs()["bm25"]) >> collection.text_loader()
    given = pt.apply.generic(lambda frame: frame.assign(given=frame["rank"]))
    worth = given >> ranker >> pt.apply.generic(lambda frame: frame.assign(worth=frame["score"]))
    systems = {"one by one": ranker, "windows of 10, step 5": worth >> windows(10, 5), "blocks of 5": worth >> windows(5, 5)}
    return {name: System(name, candidates, stage) for name, stage in systems.items()}


def kept(out: Path, name: str, make: Any) -> AuditResult:
    """An audit; it is run once, and its result is stored."""
    path = out / name / RESULT_FILE
    if not path.is_file():
        print(f"{name} ...", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, make().to_json())
    return AuditResult.from_json(path.read_text(encoding="utf-8"))


def table(result: AuditResult, bias: str, **more: str) -> pd.DataFrame:
    """The findings of a bias, with further columns."""
    return result.findings[result.findings["bias"] == bias][COLUMNS].assign(**more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds nfcorpus and msmarco_trec_dl")
    parser.add_argument("--model", default="minilm", help="the bi-encoder: hub name, folder, or minilm")
    parser.add_argument("--depth", type=int, default=30, help="candidates per query that the model reranks")
    parser.add_argument("--queries", type=int, help="queries of each collection (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a run that was stopped continues from it")
    o = parser.parse_args()
    settings = Settings(o.model, o.depth, o.queries)
    model, few = find_model(o.model, "bi"), {"depth": o.depth, "topics": o.queries}
    nfcorpus, trec = open_dataset(o.data / "nfcorpus", split="test"), both_years(o.data / "msmarco_trec_dl")
    rewritten = read_corpus(o.data / "nfcorpus" / "corpus.llama2_rewritten.jsonl.gz")
    words = pd.DataFrame({"written by people": nfcorpus.corpus["text"], "rewritten": rewritten["text"]})
    words = words.map(lambda text: len(text.split()))
    source = SourceBias(rewritten)
    with scratch_folder() as folder:
        pisa = default_systems(nfcorpus, folder, models=[model], depth=100)
        found = {
            "runs": kept(o.out, "runs", lambda: audit(trec.get_runs(), trec, biases="length", topics=o.queries)),
            "BM25": kept(o.out, "bm25", lambda: audit(pisa[:1], nfcorpus, biases=[source, "length"], topics=o.queries)),
            "rerankers": kept(o.out, "rerankers", lambda: audit(
                rerankers(trec, model.ranker()), trec, biases=["order", "length"], **few
            )),
            "MiniLM": kept(o.out, "reranked", lambda: audit(pisa[1:], nfcorpus, biases=[source, "length"], **few)),
        }  # fmt: skip
    tables = {
        "source": pd.concat([table(found["BM25"], "source"), table(found["MiniLM"], "source")]),
        "length": pd.concat([
            table(found["BM25"], "length", collection="NFCorpus"), table(found["MiniLM"], "length", collection="NFCorpus"),
            table(found["runs"], "length", collection="TREC DL"),
            table(found["rerankers"], "length", collection="TREC DL").query("system == 'one by one'"),
        ]),
        "order": table(found["rerankers"], "order"),
        "words": words.describe().loc[["mean", "50%"]].rename_axis("statistic").reset_index(),
    }  # fmt: skip
    write_results(o.out, "Source, length and order", settings, tables, NOTES)


if __name__ == "__main__":
    sys.exit(program(main))
