"""The cost of a training step of CET, compared with a plain step of the same ranker on the same batch, in one run.

    OMP_NUM_THREADS=1 python benchmarks/cet.py [--examples 8] [--words 60] [--rounds 7] [--width 384]

A cross-encoder in the shape of a three-layer MiniLM (384 wide; its weights are random, because they do not affect the time) takes
steps of the optimiser, each on a batch that is tokenised anew. The ways of training take turns, one step each per round.
Ratios are computed within a round; their median, lowest and highest are reported. Time is CPU time of the process.
"""

import argparse
import logging
import time

import numpy as np
import pandas as pd
import torch

from pyterrier_debias import CrossEncoder, Training
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups

VOCABULARY = "harbour bridge signal engine doctor nurse market river north blue question answer old new long short".split()


def ranker(width: int) -> CrossEncoder:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *VOCABULARY]
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=512)
    config = BertConfig(
        vocab_size=30522, hidden_size=width, num_hidden_layers=3, num_attention_heads=12, intermediate_size=4 * width,
        num_labels=1,
    )  # fmt: skip
    torch.manual_seed(0)
    return CrossEncoder(InMemory(BertForSequenceClassification(config).eval(), tokenizer))


def candidates(queries: int, depth: int, words: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    draw = np.random.default_rng(0)
    asked = [" ".join(draw.choice(VOCABULARY, 7)) for _ in range(queries)]
    rows = [
        {
            "qid": f"q{q:03}",
            "query": asked[q],
            "docno": f"{q}-{d}",
            "text": " ".join(draw.choice(VOCABULARY, int(draw.integers(words // 2, words * 3 // 2)))),
            "pool_score": float(depth - d),
            "pool_rank": d,
        }
        for q in range(queries)
        for d in range(depth)
    ]
    frame = pd.DataFrame(rows)
    return frame, frame.query("pool_rank == 0")[["qid", "docno"]].assign(label=1)


class Steps:
    """A method with its optimiser."""

    def __init__(self, method: torch.nn.Module, examples: Examples, size: int):
        self.method, self.examples, self.size = method.train(), examples, size
        self.optimiser = torch.optim.AdamW(method.parameters(), lr=1e-5)
        self.done = 0

    def step(self) -> float:
        begin = time.process_time()
        drawn = [self.examples[(self.done + i) % len(self.examples)] for i in range(self.size)]
        self.optimiser.zero_grad()
        self.method(**self.method.collate(drawn))["loss"].backward()
        for network in self.method.networks().values():
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        self.optimiser.step()
        self.done += self.size
        return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=384)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable()  # copies of random weights start equal, which would cause warnings

    training = Training()
    frame, qrels = candidates(options.examples * 4, 6, options.words)
    groups = make_groups(frame, qrels, stage="benchmark")
    examples = Examples(groups, training, options.examples * 4)

    def coupled(**how) -> torch.nn.Module:
        stage = CETReranker(ranker(options.width), **how)
        copy = stage.start()
        return stage.make_method(copy, training, groups, stage.prepare(copy, training, groups, (frame, qrels)))

    ways = {
        "plain": ranker(options.width).method(training),
        "CET, first_stage": coupled(),
        "CET, same, weight_pass='train'": coupled(selection="same"),
        "CET, same, weight_pass='eval'": coupled(selection="same", weight_pass="eval"),
    }
    steps = {name: Steps(method, examples, options.examples) for name, method in ways.items()}
    for one in steps.values():
        one.step()
    times = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, one in steps.items():
            times[name].append(one.step())
    plain = np.array(times["plain"])
    print(f"{options.examples} pairs of passages a step, {options.words} words on average, {options.rounds} rounds, CPU seconds")
    for name, seconds in times.items():
        ratios = np.array(seconds) / plain
        print(f"{name:32} {np.median(seconds):7.3f} s   {np.median(ratios):5.2f}x [{ratios.min():.2f}, {ratios.max():.2f}]")


if __name__ == "__main__":
    main()
