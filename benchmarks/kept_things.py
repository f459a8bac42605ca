"""Small results of every kind that the package writes and reads, and the shared options of damage.py and faults.py."""

import argparse
import logging
import random
import shutil
import warnings
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pyterrier_debias import AuditResult, Bias, Collection, CrossEncoder, GenderClassifier, Training, audit
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import paired_t, t_interval
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.vectors import Vectors
from pyterrier_debias.report import gate

WORDS = "harbour bridge signal engine doctor nurse market river north blue".split()
QIDS = [f"q{i}" for i in range(6)]


def asked(about: str | None, counted: str, default: int, what: str, which: str, known: Iterable[str]):
    """Read the command line: a number, a random generator with the seed, and the kinds. Silences the package's log."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{counted}", type=int, default=default, help=what)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(f"--{which}", default=",".join(known), help=f"{which} to use, separated by commas")
    given = vars(parser.parse_args())
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return given[counted], random.Random(given["seed"]), given[which].split(",")


class Letters:
    """Encodes queries by the counts of some letters."""

    model = "letters"

    def encode_queries(self, texts):
        return np.array([[text.count(letter) for letter in "fmno"] for text in texts], dtype=float).reshape(len(texts), 4)


class UpsideDown(Bias):
    """The change of RR@10 if a system's results are reversed."""

    def __init__(self, name: str):
        self.name = name

    def examine(self, context):
        for system in context.systems:
            results = context.results(system)
            before = per_query(results, context.qrels, ["RR@10"], QIDS)["RR@10"]
            after = per_query(results.assign(score=-results["score"]), context.qrels, ["RR@10"], QIDS)["RR@10"]
            yield self.finding(
                system.name, "RR@10", "turned", t_interval((after - before).to_numpy()), "turned",
                p=paired_t(before.to_numpy(), after.to_numpy()).p, convention="trec_eval", primary=True, values=after - before,
            )  # fmt: skip


def collection() -> Collection:
    pairs = [(qid, f"{qid}-{kind}", score, rank) for qid in QIDS for rank, (kind, score) in enumerate([("a", 2.0), ("b", 1.0)])]
    run = pd.DataFrame(pairs, columns=["qid", "docno", "score", "rank"])
    return Collection(
        "small",
        corpus=pd.DataFrame([{"docno": docno, "text": f"text of {docno}"} for docno in run["docno"]]),
        topics={"test": pd.DataFrame({"qid": QIDS, "query": [f"about {qid}" for qid in QIDS]})},
        qrels={"test": pd.DataFrame({"qid": QIDS, "docno": [f"{qid}-a" for qid in QIDS], "label": 1})},
        runs={"bm25": run},
    )


def audited(checkpoint: Path | None = None, biases: int = 3) -> AuditResult:
    data = collection()
    found = [UpsideDown(f"bias{number}") for number in range(biases)]
    return audit({"BM25": data.get_runs()["bm25"]}, data, biases=found, checkpoint=checkpoint)


def model() -> InMemory:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=32)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=1,
        max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    return InMemory(BertForSequenceClassification(config).eval(), tokenizer)


def candidates() -> tuple[pd.DataFrame, pd.DataFrame]:
    draw = np.random.default_rng(0)
    asked = {qid: " ".join(draw.choice(WORDS, 3)) for qid in QIDS}
    rows = [
        {"qid": qid, "query": asked[qid], "docno": f"{qid}-{d}", "text": " ".join(draw.choice(WORDS, 6))}
        for qid in QIDS
        for d in range(4)
    ]
    frame = pd.DataFrame(rows)
    return frame, frame[frame["docno"].str.endswith("-0")][["qid", "docno"]].assign(label=1)


def trained(folder: Path, steps: int = 4) -> CrossEncoder:
    options = Training(max_steps=steps, batch_size=4, evaluate_every=2, checkpoints=folder, resume=True, log_every=1)
    return CrossEncoder(model(), training=options).fit(*candidates())


def vectors(folder: Path, value: float, overwrite: bool = True) -> Vectors:
    batches = [([f"d{i}" for i in range(8)], np.full((8, 4), value, dtype=np.float32))]
    return Vectors.write(folder, batches, overwrite=overwrite)


def digest(*parts: object) -> str:
    """A checksum of arrays, frames and texts."""
    state = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype} {part.shape}".encode() + part.tobytes())
        else:
            state.update((part.to_csv() if isinstance(part, pd.DataFrame) else repr(part)).encode())
    return state.hexdigest()


def of_ranker(ranker: CrossEncoder) -> str:
    frame, _ = candidates()
    scores = ranker.score(frame["query"].tolist(), frame["text"].tolist())
    return digest(*(value.numpy() for value in ranker.module.state_dict().values()), scores)


def of_audit(result: AuditResult) -> str:
    return digest(result.findings, result.per_query, result.skipped, result.failed, result.queries)


def write_audit(folder: Path) -> None:
    audited().save(folder)


def read_audit(folder: Path) -> str:
    return of_audit(gate.read_audit(folder))


def write_model(folder: Path) -> None:
    CrossEncoder(model(), max_length=30).save(folder)


def write_classifier(folder: Path) -> None:
    texts = [letter * 3 + word for letter in "fmno" for word in WORDS]
    GenderClassifier(Letters()).fit(texts, [{"f": "female", "m": "male"}.get(text[0], "neutral") for text in texts]).save(folder)


def read_classifier(folder: Path) -> str:
    found = GenderClassifier.load(folder, encoder=Letters())
    return digest(found.labels, found.probabilities(["fff", "mmm", "nnn"]), found._weights, found._bias)


def write_sums(folder: Path) -> None:
    draw = np.random.default_rng(0)
    passages = [(words, draw.normal(size=(10, 3))) for words in (WORDS, WORDS[::-1])]
    MATSAccumulator().update(["a", "b"], passages).save(folder)


def read_sums(folder: Path) -> str:
    sums = MATSAccumulator.load(folder)
    return digest(list(sums._terms), sums._cells.keys(), sums._cells.values, sums._within.values, sums.passages, sums.occurrences)


def read_vectors(folder: Path) -> str:
    found = Vectors.load(folder)
    return digest(np.array(found.matrix), np.array(found.docnos), found.longest, found.probe)


#: For each kind of result: a function that writes it into a folder, one that reads it, and the patterns of its files.
KINDS = {
    "audit": (write_audit, read_audit, ("audit.json",)),
    "audit checkpoint": (audited, lambda folder: of_audit(audited(folder)), ("*.json",)),
    "model": (write_model, lambda folder: of_ranker(CrossEncoder.load(folder)), ("*",)),
    "training checkpoint": (trained, lambda folder: of_ranker(trained(folder)), ("checkpoint-*/*",)),
    "classifier": (write_classifier, read_classifier, ("*",)),
    "MATS sums": (write_sums, read_sums, ("*",)),
    "vectors": (lambda folder: vectors(folder, 1.0), read_vectors, ("*",)),
}


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))
