"""Processes killed at random moments: what do they leave behind, and does the same command continue from there?

    python benchmarks/faults.py [--kills 50] [--seed 0] [--jobs "audit,training,save"]

Each job (an audit with a checkpoint that replaces an earlier one, a training with checkpoints, a store of vectors and a model
that replace earlier ones) runs in its own process. The process is killed (SIGKILL) after a random part of the time that the job
takes, up to three times in a row; then the job runs to its end. The folder of results also contains files of another owner. The
program counts the kills, and the rounds in which

- the files that were left after a kill could not be read;
- the job did not reach its end;
- the result differs in any byte from that of a process that was not killed;
- a file of the other owner has changed;
- a temporary file was left over.

The exit status is 1 if there was such a round.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kept_things import asked, audited, model, of_ranker, read_audit, read_vectors, trained, vectors
from tqdm import tqdm

from pyterrier_debias import CrossEncoder
from pyterrier_debias.core.files import MANIFEST, is_unfinished
from pyterrier_debias.training.trainer import remove_checkpoints

OTHERS = {"notes.txt": "years of work", "sub/notes.txt": "more of it"}


def audit_job(place: Path) -> None:
    audited(place / "kept", biases=6).save(place / "out", overwrite=True)


def training_job(place: Path) -> None:
    trained(place / "out", steps=8).save(place / "ranker", overwrite=True)


def save_job(place: Path) -> None:
    vectors(place / "out", 2.0)
    CrossEncoder(model(), max_length=30).save(place / "ranker", overwrite=True)


def begin(job: str, place: Path) -> None:
    """Write the results of an earlier process, and files of another owner."""
    if job == "audit":
        audited().save(place / "out")
    elif job == "save":
        vectors(place / "out", 1.0)
        CrossEncoder(model(), max_length=20).save(place / "ranker")
    for name, text in OTHERS.items():
        (place / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "out" / name).write_text(text)


def look(job: str, place: Path) -> None:
    """Read the results in a folder; anything that is wrong raises an error."""
    if job == "audit":
        read_audit(place / "out")
    elif job == "save":
        read_vectors(place / "out")
        of_ranker(CrossEncoder.load(place / "ranker"))


def result(job: str, place: Path) -> dict[str, bytes]:
    """The content that must be the same byte for byte; times and dates of an audit or of a training may differ."""
    if job == "audit":
        return {name: (place / "out" / name).read_bytes() for name in ("findings.csv", "per_query.csv")} | {
            "audit": read_audit(place / "out").encode()
        }
    folders = [place / "ranker"] + [place / "out"] * (job == "save")
    dated = {MANIFEST, "pyterrier_debias_training.json"} if job == "training" else set()
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name not in dated]
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


JOBS: dict[str, Callable[[Path], None]] = {"audit": audit_job, "training": training_job, "save": save_job}


def run(job: str, place: Path, seconds: float | None) -> bool | None:
    """Run a job in its own process; returns whether it ended well, None if it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        # Processes share tqdm's own lock: a process that is killed while holding it would stop all later ones.
        tqdm.set_lock(threading.RLock())
        try:
            JOBS[job](place)
            code = 0
        except BaseException as error:
            print(f"{job}: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return None if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL else True


def main() -> int:
    most, draw, jobs = asked(__doc__, "kills", 50, "number of kills per job", "jobs", JOBS)
    wrong = 0
    columns = ("unreadable", "not ended", "other bytes", "others' lost", "left over")
    print(f"{'':10}{'kills':>7}{'rounds':>8}" + "".join(f"{column:>14}" for column in columns))
    with tempfile.TemporaryDirectory() as home:
        for job in jobs:
            whole = Path(home) / job / "whole"
            begin(job, whole)
            started = time.monotonic()
            if run(job, whole, None) is not True:
                raise SystemExit(f"{job} does not run")
            takes, expected, kills, rounds = time.monotonic() - started, result(job, whole), 0, 0
            counts: Counter[str] = Counter()
            while kills < most:
                place = Path(home) / job / "place"
                begin(job, place)
                for _ in range(draw.randint(1, 3)):
                    if run(job, place, draw.uniform(0, takes)) is not None:
                        break
                    kills += 1
                    try:
                        look(job, place)
                    except Exception as error:
                        print(f"{job}: {type(error).__name__}: {error}", file=sys.stderr)
                        counts["unreadable"] += 1
                rounds += 1
                counts["not ended"] += run(job, place, None) is not True
                counts["other bytes"] += result(job, place) != expected
                counts["others' lost"] += any((place / "out" / name).read_text() != text for name, text in OTHERS.items())
                if job == "training":
                    remove_checkpoints(place / "out")
                left = [path for path in place.rglob("*") if is_unfinished(path)]
                counts["left over"] += bool(left) or (job == "training" and len(list((place / "out").iterdir())) > 2)
                shutil.rmtree(place)
            print(f"{job:10}{kills:7}{rounds:8}" + "".join(f"{counts[column]:14}" for column in columns), flush=True)
            wrong += counts.total()
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
