"""The cost of a training step of a sparse encoder, compared with sentence-transformers' loss on the same batch, in one run.

    OMP_NUM_THREADS=1 python benchmarks/sparse_training.py [--examples 8] [--words 60] [--rounds 7] [--width 384]

A masked language model in the shape of a three-layer MiniLM (384 wide, BERT's 30,522 terms, random weights) takes steps of the
optimiser, each on triples that are tokenised anew: with the method of `SparseEncoder.fit`, and with `SpladeLoss` over
`SparseMultipleNegativesRankingLoss`, whose losses must agree. With random weights nearly every term has a weight and a gradient;
a lower bias of all logits simulates a trained model, most of whose weights are 0. The two ways take turns, one step each per
round. Ratios are computed within a round; their median, lowest and highest are reported. Time is CPU time of the process. Memory
is the increase of the peak of a separate process by one step (Linux).
"""

import argparse
import logging
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from pyterrier_debias import SparseEncoder, Training
from pyterrier_debias.training.examples import Example

VOCABULARY = "harbour bridge signal engine doctor nurse market river north blue question answer old new long short".split()
#: The bias of all terms' logits: 0, and a bias so low that few terms have a weight, as after training.
BIASES = 0.0, -1.0
WAYS = ("pyterrier_debias", "sentence-transformers")


def save_model(folder: Path, width: int, bias: float) -> None:
    """Write a random masked language model."""
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VOCABULARY]
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=512)
    config = BertConfig(
        vocab_size=30522, hidden_size=width, num_hidden_layers=3, num_attention_heads=12, intermediate_size=4 * width,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    torch.nn.init.constant_(model.get_output_embeddings().bias, bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def triples(count: int, words: int, round_: int) -> list[tuple[str, str, str]]:
    """Queries, each with a relevant passage and another passage."""
    draw = np.random.default_rng(round_)

    def passage() -> str:
        return " ".join(draw.choice(VOCABULARY, int(draw.integers(words // 2, words * 3 // 2))))

    return [(" ".join(draw.choice(VOCABULARY, 7)), passage(), passage()) for _ in range(count)]


def example(number: int, query: str, relevant: str, other: str) -> Example:
    """A triple in the form that training uses."""
    docnos, labels = [f"{number}a", f"{number}b"], np.array([1, 0])
    return Example(
        position=number, epoch=0, qid=str(number), query=query, docnos=docnos, texts=[relevant, other], labels=labels,
        weights=np.ones(2), rows=np.arange(2), relevant=frozenset(docnos[:1]), whole=[relevant, other],
        originals=[relevant, other], answers=frozenset([relevant]),
    )  # fmt: skip


def step_of(way: str, folder: Path) -> Callable[[list[tuple[str, str, str]]], tuple[float, float]]:
    """A function that takes a step on triples and returns its CPU seconds and the loss."""
    ranker = SparseEncoder(str(folder))
    ranker.module.train()
    if way == WAYS[0]:
        method = ranker.method(Training(loss="infonce", in_batch_negatives=True)).train()

        def loss_of(batch: list[tuple[str, str, str]]) -> torch.Tensor:
            found = method(**method.collate([example(i, *texts) for i, texts in enumerate(batch)]))["loss"]
            return found + sum(method.penalties(1, 1).values())
    else:
        from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

        model = ranker.module
        weights = {"document_regularizer_weight": ranker.document_flops, "query_regularizer_weight": ranker.query_flops}
        loss = SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), **weights)

        def loss_of(batch: list[tuple[str, str, str]]) -> torch.Tensor:
            columns = [model.preprocess(list(column)) for column in zip(*batch)]
            found = loss(columns, None)
            return sum(found.values()) if isinstance(found, dict) else found

    optimiser = torch.optim.AdamW(ranker.module.parameters(), lr=1e-6)

    def step(batch: list[tuple[str, str, str]]) -> tuple[float, float]:
        begin = time.process_time()
        optimiser.zero_grad()
        found = loss_of(batch)
        found.backward()
        optimiser.step()
        return time.process_time() - begin, found.item()

    return step


def peak(way: str, folder: Path, examples: int, words: int) -> float:
    """The increase of this process's peak memory by one step, in MB (Linux)."""
    torch.set_num_threads(1)
    step = step_of(way, folder)
    step(triples(1, 8, 0))
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = held_at_most()
    step(triples(examples, words, 1))
    return held_at_most() - before


def held_at_most() -> float:
    """The peak memory of this process in MB since the peak was reset."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def compared(folder: Path, bias: float, options: argparse.Namespace) -> None:
    """Print the time of each way."""
    save_model(folder, options.width, bias)
    kept = SparseEncoder(str(folder)).describe([text for _, *texts in triples(8, options.words, 0) for text in texts], "document")
    print(f"{kept['terms'].mean():,.0f} terms of a passage have a weight")
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    steps = {way: step_of(way, folder) for way in WAYS}
    for round_ in range(-1, options.rounds):
        batch = triples(options.examples, options.words, round_ + 1)
        losses = []
        for way, step in steps.items():
            seconds, loss = step(batch)
            losses.append(loss)
            if round_ >= 0:
                times[way].append(seconds)
        if not np.isclose(*losses, rtol=1e-2):
            raise SystemExit(f"the losses of a batch differ: {losses}")
    theirs = np.array(times[WAYS[1]])
    for way, seconds in times.items():
        ratios = theirs / np.array(seconds)
        told = f"{np.median(ratios):5.2f}x [{ratios.min():.2f}, {ratios.max():.2f}]"
        print(f"{way:22} {np.median(seconds):7.3f} s   {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=384)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable()
    disable_progress_bar()
    print(f"{options.examples} triples a step, {options.words} words on average, {options.rounds} rounds, CPU seconds")
    with tempfile.TemporaryDirectory() as folder:
        for number, bias in enumerate(BIASES):
            compared(Path(folder) / str(number), bias, options)
        # Each has its own process, with the libraries that both need.
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["sentence_transformers", "pyterrier_debias"])
        for way in WAYS:
            with ProcessPoolExecutor(1, mp_context=processes) as pool:
                raised = pool.submit(peak, way, Path(folder) / "0", options.examples, options.words).result()
            print(f"{way:22} {raised:6.0f} MB, nearly all terms with a weight", flush=True)


if __name__ == "__main__":
    main()
