"""How long exact matching takes, compared with scikit-learn's brute-force neighbours, and how similar the pairs are.

    python benchmarks/matching.py [--first 298389] [--second 460776] [--columns 22] [--sample 2000]

Profiles are drawn at random (Dirichlet, many small shares, rounded like shares of 60 words). The defaults are the paper's sizes,
which take a few minutes on two cores and about a gigabyte. scikit-learn only finds the nearest neighbours of a sample, and its
time is extrapolated. The program reports time on the clock, CPU time of the process, the mean cosine and peak memory.
"""

import argparse
import resource
import time

import numpy as np

from pyterrier_debias.gender.formulas.matching import match


def profiles(n: int, columns: int, seed: int) -> np.ndarray:
    """Shares of 60 words in some categories."""
    generator = np.random.default_rng(seed)
    return np.round(60 * generator.dirichlet(np.full(columns, 0.5), n)) / 60


def clocked(work) -> tuple[float, float, object]:
    """Seconds on the clock, CPU seconds, and the result."""
    clock, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - clock, time.process_time() - cpu, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=298_389)
    parser.add_argument("--second", type=int, default=460_776)
    parser.add_argument("--columns", type=int, default=22)
    parser.add_argument("--sample", type=int, default=2_000)
    options = parser.parse_args()
    first, second = profiles(options.first, options.columns, 1), profiles(options.second, options.columns, 2)
    print(f"{options.first:,} x {options.second:,} profiles of {options.columns} columns")
    for name, given in (("nearest, with replacement", {"replacement": True}), ("greedy, one to one", {})):
        clock, cpu, found = clocked(lambda given=given: match(first, second, **given))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name}: {clock:.0f} s, {cpu:.0f} s of CPU, {len(found):,} pairs, mean cosine {found.similarity.mean():.4f}, "
            f"peak memory {peak:.1f} GiB",
            flush=True,
        )

    from sklearn.neighbors import NearestNeighbors

    sample = first[first.any(axis=1)][: options.sample]
    there = second[second.any(axis=1)]
    peer = NearestNeighbors(n_neighbors=1, metric="cosine", algorithm="brute")
    clock, cpu, found = clocked(lambda: peer.fit(there).kneighbors(sample))
    factor = options.first / len(sample)
    print(f"scikit-learn, nearest: {clock * factor:.0f} s, {cpu * factor:.0f} s of CPU (from {len(sample):,} rows, multiplied)")
    own = match(sample, there, replacement=True)
    worst = float(np.abs(np.sort(own.similarity) - np.sort(1 - found[0][:, 0])).max())
    print(f"largest difference between the cosines of both, sample by sample: {worst:.1e}")


if __name__ == "__main__":
    main()
