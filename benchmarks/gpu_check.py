"""All checks that need a CUDA device, in a few minutes: the tests marked ``gpu``, and the speed. Nothing is downloaded.

The tests (``tests/training/test_devices.py``) compare every ranker's scores with the processor's in float32, TF32 and bfloat16,
make the device run out of memory, resume a training in mixed precision, and train on two devices over NCCL if there are two.
The speed is that of a cross-encoder in the shape of BERT-base with random weights, on pairs that all have ``--tokens`` tokens,
and on pairs of various lengths, up to this number, as passages have; float32 gets a quarter of the pairs. It is compared with
``sentence_transformers.CrossEncoder.predict`` with the same weights; the two take turns, and the median of the repetitions
counts. "of peak" is the model's arithmetic as a share of what a large matrix product reaches in the same run; "busy" is the time
of the device's kernels and copies as a share of the total time.

The program writes gpu_check.inc, which the documentation includes, with the date and the device; ``make gpu-check`` writes it
into the documentation::

    make gpu-check      # python benchmarks/gpu_check.py

``--device cpu`` goes through the same steps without a GPU, for a small shape (``--layers 1 --size 64 --pairs 16``).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from calibrating import write_table

from pyterrier_debias.training.precision import tf32

ROOT = Path(__file__).resolve().parent.parent
NOTE = (
    "*of peak*: the model's arithmetic, as a share of a large matrix product in the same run. *busy*: the share of the time in "
    "which the device computes or copies. *scores apart*: the largest difference from ``CrossEncoder.predict``, in standard "
    "deviations of the scores. With random weights all pairs have nearly the same score, so that the rounding of bfloat16 is "
    "large beside their spread; with trained weights it is about a hundredth."
)
WORDS = [f"{first}{second}" for first in "bcdfghklmnprst" for second in ("a", "e", "i", "o", "u", "an", "en", "on", "as", "er")]


def write_model(folder: Path, layers: int, size: int) -> str:
    """A BERT of this shape with random weights, under a linear head, and a tokenizer in which every word is one token."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    shape = {"num_attention_heads": max(size // 64, 1), "intermediate_size": 4 * size}
    config = BertConfig(hidden_size=size, num_hidden_layers=layers, num_labels=1, **shape)
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab={piece: i for i, piece in enumerate(pieces)}, model_max_length=512).save_pretrained(folder)
    return str(folder)


def pairs_of(lengths: np.ndarray) -> list[tuple[str, str]]:
    """Distinct pairs of so many tokens each, including three special tokens and eight of the query."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, length - 3)) for length in lengths]
    return [(" ".join(text.split()[:8]), " ".join(text.split()[8:])) for text in texts]


def peak(device: str, dtype: torch.dtype, size: int) -> float:
    """Multiplications and additions per second of a matrix product of this size; the best of five."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return max(2 * size**3 / timed(lambda: left @ right, device) for _ in range(5))


def timed(run: Callable[[], object], device: str) -> float:
    """Seconds, until the device has finished."""
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def busy(run: Callable[[], object], seconds: float) -> str:
    """The device's working time in a run, as a share of the seconds that the run takes without a profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    return f"{sum(event.self_device_time_total for event in seen.key_averages()) / 1e6 / seconds:.0%}"


def work(layers: int, size: int, tokens: np.ndarray) -> float:
    """Multiplications and additions of the layers for pairs of so many tokens: 12 matrices of size x size, and attention."""
    return float(layers * (tokens * (2 * 12 * size**2 + 4 * tokens * size)).sum())


def contestants(model: str, device: str, dtype: str, tokens: int) -> dict[str, Callable[[list[tuple[str, str]]], np.ndarray]]:
    """Functions from pairs to scores, by name."""
    import sentence_transformers

    from pyterrier_debias import CrossEncoder

    held = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    theirs = sentence_transformers.CrossEncoder(
        model, device=device, max_length=tokens, model_kwargs={"dtype": held}, activation_fn=torch.nn.Identity()
    )

    def predict(pairs: list[tuple[str, str]]) -> np.ndarray:
        with tf32(dtype == "tf32"):
            return theirs.predict(pairs, batch_size=256, show_progress_bar=False)

    ours = CrossEncoder(model, device=device, dtype=dtype, max_length=tokens)
    return {
        "CrossEncoder.predict": predict,
        "ours": lambda pairs: ours.score(*zip(*pairs)),
    }


def speeds(options: argparse.Namespace) -> list[list[str]]:
    """Rows of the table: tokens, format, contestant, pairs per second, ratio, share of peak, busy, difference of scores."""
    rows, shortest = [], min(16, options.tokens)
    drawn = {
        f"{options.tokens}": np.full(options.pairs, options.tokens),
        f"{shortest} to {options.tokens}": np.random.default_rng(1).integers(shortest, options.tokens + 1, options.pairs),
    }
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), options.layers, options.size)
        for dtype in ("float32", "tf32", "bfloat16"):
            held = torch.bfloat16 if dtype == "bfloat16" else torch.float32
            with tf32(dtype == "tf32"):
                best = peak(options.device, held, options.matrix)
            named = contestants(model, options.device, dtype, options.tokens)
            for tokens, lengths in drawn.items():
                taken = lengths[: max(options.pairs // 4, 1)] if dtype == "float32" else lengths
                rows += raced(named, tokens, dtype, taken, best, options)
    return rows


def raced(
    named: dict[str, Callable[[list[tuple[str, str]]], np.ndarray]],
    tokens: str,
    dtype: str,
    lengths: np.ndarray,
    best: float,
    options: argparse.Namespace,
) -> list[list[str]]:
    """Rows of the table for one format and one set of pairs; the contestants take turns."""
    pairs, rows = pairs_of(lengths), []
    scores = {name: np.asarray(score(pairs), dtype=np.float64).ravel() for name, score in named.items()}  # warms up, too
    spent: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(options.repeat):
        for name, score in named.items():
            spent[name].append(timed(lambda score=score: score(pairs), options.device))
    first, *_ = spent
    apart = np.abs(scores[first] - scores["ours"]).max() / scores[first].std()
    for name, seconds in spent.items():
        median = float(np.median(seconds))
        share = work(options.layers, options.size, lengths) / median / best
        ratio = np.median(spent[first]) / median
        difference = "" if name == first else f"{apart:.1e}"
        at_work = busy(partial(named[name], pairs), median) if options.device == "cuda" else ""
        rate = f"{len(pairs) / median:,.0f}"
        rows.append([tokens, dtype, name, rate, f"{ratio:.2f}", f"{share:.0%}", at_work, difference])
    return rows


def tested() -> tuple[int, str]:
    """The exit status of the tests marked ``gpu``, and their last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(ROOT / "tests" / "training")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    return done.returncode, done.stdout.strip().rpartition("\n")[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--size", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--matrix", type=int, default=8192, help="rows of the matrix product")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA device; --device cpu goes through the steps without one", file=sys.stderr)
        return 1
    status, last = tested() if options.device == "cuda" else (0, "not run without a CUDA device")
    device = torch.cuda.get_device_name() if options.device == "cuda" else "processor"
    rows = [["Tokens", "Format", "", "pairs/s", "ratio", "of peak", "busy", "scores apart, in spreads"], *speeds(options)]
    about = f"{options.layers} layers of {options.size}, {options.pairs:,} pairs of up to {options.tokens} tokens"
    versions = f"torch {torch.__version__}, sentence-transformers {importlib.metadata.version('sentence-transformers')}"
    title = f"{device}, {datetime.now(UTC):%Y-%m-%d}: {about}; {versions}; ``make gpu-check``"
    options.out.mkdir(parents=True, exist_ok=True)
    write_table(options.out / "gpu_check.inc", title, rows, f"{NOTE}\n\nTests marked ``gpu``: {last}.")
    print((options.out / "gpu_check.inc").read_text())
    return status


if __name__ == "__main__":
    sys.exit(main())
