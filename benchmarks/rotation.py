"""How fast passages are rotated, compared with a simple loop without the library, in one run.

    python benchmarks/rotation.py [--passages 1000000] [--words 60] [--rounds 3]

Both ways read the same stream of dictionaries, which are made on the fly, and return a stream of dictionaries. The program
reports the CPU time of the process minus that of the bare stream (the two ways take turns, and the best round counts), and how
much the memory of the process grew while the stage ran.
"""

import argparse
import random
import resource
import time
from collections import deque

from pyterrier_debias import RotatePassages

BASE = 5000


def corpus(passages: int, texts: list[str]):
    for i in range(passages):
        yield {"docno": str(i), "text": texts[i % len(texts)]}


def by_hand(documents, seed: int = 1):
    for document in documents:
        words = document["text"].split()
        offset = random.Random(f"{seed}:{document['docno']}").randrange(len(words))
        yield {**document, "text": " ".join(words[offset:] + words[:offset]), "rotation": offset}


def cpu_seconds(stream) -> float:
    begin = time.process_time()
    deque(stream, maxlen=0)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(20_000)]
    texts = [" ".join(rng.choices(vocabulary, k=options.words)) for _ in range(BASE)]
    ways = {
        "bare stream": lambda documents: documents,
        "RotatePassages": RotatePassages(seed=1).transform_iter,
        "RotatePassages, pair": lambda documents: RotatePassages(seed=1, scope="pair").transform_iter(
            {**document, "qid": "q"} for document in documents
        ),
        "random.Random per docno": by_hand,
    }
    best = dict.fromkeys(ways, float("inf"))
    grown = 0
    for _ in range(options.rounds):
        for name, way in ways.items():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            best[name] = min(best[name], cpu_seconds(way(corpus(options.passages, texts))))
            if name == "RotatePassages":
                grown = max(grown, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    bare = best.pop("bare stream")
    print(f"{options.passages:,} passages of {options.words} words, one core; making the stream takes {bare:.2f} s (deducted)")
    for name, seconds in best.items():
        net = seconds - bare
        print(f"{name:28} {net:7.2f} s CPU {options.passages / net / 1e3:8.0f} k passages/s")
    ratio = (best["random.Random per docno"] - bare) / (best["RotatePassages"] - bare)
    print(f"RotatePassages is {ratio:.2f}x as fast as random.Random per docno; peak memory grew by {grown / 1024:.1f} MiB")


if __name__ == "__main__":
    main()
