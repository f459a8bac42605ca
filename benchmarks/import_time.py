"""How much `import pyterrier_debias` adds to `import pyterrier`.

Both are measured in fresh processes that take turns, without `-X importtime`; the result is the difference of the medians.

    python benchmarks/import_time.py
"""

import argparse
import statistics
import subprocess
import sys

TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def seconds(code: str) -> float:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", TIMED.format(code)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--libraries", default="torch, transformers, sentence_transformers", help="libraries of the last row")
    options = parser.parse_args()
    rounds = options.rounds
    alone, with_ours, heavy = [], [], []
    for _ in range(rounds):
        alone.append(seconds("import pyterrier"))
        with_ours.append(seconds("import pyterrier; import pyterrier_debias"))
    for _ in range(min(rounds, 3)):
        heavy.append(seconds(f"import pyterrier; import {options.libraries}"))
    a, b, c = map(statistics.median, (alone, with_ours, heavy))
    print(f"import pyterrier                        {a:6.3f} s")
    print(f"import pyterrier, pyterrier_debias      {b:6.3f} s   adds {b - a:+.3f} s (goal: under 0.15)")
    print(f"import pyterrier, the neural libraries  {c:6.3f} s   what is not imported until a model is used")


if __name__ == "__main__":
    main()
