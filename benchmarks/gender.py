"""How fast the words of groups are counted, compared with a plain loop that splits and counts, in one run.

    python benchmarks/gender.py --passages passages.tsv.gz --words wordlist_gender_representative.txt --repeat 3

Both ways count the words of the same passages (`pid<tab>text`, each taken `--times` times) with the same list; their counts are
compared first. The program prints passages per second of processor time, the processor time of a million passages, and their time
on the clock with one thread per core. Then it times the magnitudes of documents in a run in which every passage is in `--queries`
rankings, once with each document counted once, and once with every row counted.
"""

from __future__ import annotations

import argparse
import gzip
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_debias.gender.data.documents import Texts, counted
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas import counting
from pyterrier_debias.gender.formulas.counting import count_words

_WORD = re.compile(r"\w+")


def plain(texts: list[str], groups: list[frozenset[str]]) -> np.ndarray:
    """Split each text and look every word up in every group."""
    table = np.zeros((len(texts), len(groups)), dtype=np.int64)
    for row, text in enumerate(texts):
        for word in _WORD.findall(text.lower()):
            for number, words in enumerate(groups):
                if word in words:
                    table[row, number] += 1
    return table


def seconds(run: Callable[[], object], repeat: int, clock: Callable[[], float] = time.process_time) -> float:
    """Processor time, or the time of another clock; the best of several repetitions."""
    found = []
    for _ in range(repeat):
        start = clock()
        run()
        found.append(clock() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=Path, required=True, help="pid<tab>text, gzip or not")
    parser.add_argument("--words", action="append", default=[], help="file of a word list, besides the library's own")
    parser.add_argument("--times", type=int, default=2, help="how often each passage is taken (default 2)")
    parser.add_argument("--queries", type=int, default=20, help="rankings that contain each passage (default 20)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; the best one counts (default 3)")
    options = parser.parse_args()
    opened = gzip.open if options.passages.suffix == ".gz" else open
    with opened(options.passages, "rt", encoding="utf-8") as lines:
        own = [line.rstrip("\n").split("\t", 1)[1] for line in lines]
    texts = own * options.times
    other = sum(not text.isascii() for text in own) / len(own)
    length = np.mean([len(text) for text in own])
    print(f"{len(own):,} passages x {options.times}, {length:.0f} characters on average, {other:.0%} not ASCII")
    count_words(own[:100])  # tables of letters are made once
    rows = []
    for words in (WordList.of("debias"), *(WordList.of(path) for path in options.words)):
        groups = list(words.groups.values())
        assert (plain(own, groups) == count_words(own, words)).all(), "the two ways count differently"
        loop = len(own) / seconds(lambda groups=groups: plain(own, groups), options.repeat)
        fast = len(texts) / seconds(lambda words=words: count_words(texts, words), options.repeat)
        wall = seconds(lambda words=words: count_words(texts, words), options.repeat, time.perf_counter)
        rows.append(
            {
                "words": f"{words.name} ({words.size})", "loop": round(loop), "count_words": round(fast), "times": fast / loop,
                "million, one core": f"{1e6 / fast:.1f} s",
                f"million, {counting.threads()} threads": f"{1e6 / len(texts) * wall:.1f} s",
            }
        )  # fmt: skip
    print(pd.DataFrame(rows).to_string(index=False))

    few = own[:2000]
    once = pd.DataFrame({"docno": np.arange(len(few)).astype(str), "text": few})
    frame = pd.concat([once] * options.queries, ignore_index=True)
    words = WordList.of("debias")
    once = seconds(lambda: counted(frame, Texts(), words, "regex_word", "benchmark"), options.repeat)
    each = seconds(lambda: count_words(frame["text"], words), options.repeat)
    print(f"{len(frame):,} rows of {len(few):,} documents: each document once {once:.2f} s, each row {each:.2f} s")


if __name__ == "__main__":
    main()
