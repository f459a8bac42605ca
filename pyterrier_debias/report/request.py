"""An audit as it is asked for in text: on the command line, or in the file of a gate."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyterrier_debias.core.dataset import Dataset
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.report.result import AuditResult


@dataclass(frozen=True)
class Request:
    """The options of ``pyterrier-debias audit``, by the same names.

    Attributes:
        dataset: ``planted``, a folder or an ``irds:`` id.
        split: Which topics and judgements.
        model: Rankers; empty for the default one, ``none`` for none.
        model_kind: The kind of those that do not say it.
        run: TREC runs in place of a retriever.
        terrier: A Terrier index in place of the collection's documents.
        wmodel: Weighting models of Terrier; empty for BM25.
        queries: With ``terrier``: a file of topics in place of the dataset's.
        qrels: With ``terrier``: a file of judgements in place of the dataset's.
        biases: ``all``, or names.
        baseline: The system that others are compared with.
        depth: How many results a model reranks.
        draws: How many random variants of each text.
        topics: The first so many judged topics only.
        seed: Seed of everything random.
        correction: ``holm``, ``bonferroni`` or ``fdr_bh``.
        out: Where files are written.
        overwrite: Whether an earlier audit there may be replaced.
        checkpoint: Where findings of finished biases are kept.
        device: Where models compute.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        verbose: Whether to show progress.
    """

    dataset: str = "planted"
    split: str | None = None
    model: list[str] = field(default_factory=list)
    model_kind: str | None = None
    run: list[str] = field(default_factory=list)
    terrier: Path | None = None
    wmodel: list[str] = field(default_factory=list)
    queries: Path | None = None
    qrels: Path | None = None
    biases: list[str] = field(default_factory=lambda: ["all"])
    baseline: str | None = None
    depth: int = 100
    draws: int | None = None
    topics: int | None = None
    seed: int = 0
    correction: str = "holm"
    out: Path | None = None
    overwrite: bool = False
    checkpoint: Path | None = None
    device: str | None = None
    dtype: str = "float32"
    verbose: bool = False

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str) -> Request:
        """From a table of a TOML file.

        Args:
            table: Option to value; lists may also be one text (``biases`` with commas).
            where: The file and the table; named in messages.

        Returns:
            The request.

        Raises:
            InputError: For an option that does not exist, or a value of another kind.

        Example:
            >>> Request.from_table({"model": "none", "biases": "position, pooling"}, "budget.toml").biases
            ['position', 'pooling']
        """
        kinds = {f.name: str(f.type) for f in fields(cls)}
        options = {}
        for name, value in table.items():
            if name not in kinds:
                raise InputError(f"{where}: there is no option {name!r}; there are {', '.join(kinds)}")
            options[name] = _converted(value, kinds[name], f"{where}: {name}")
        if "biases" in options:
            options["biases"] = [part.strip() for name in options["biases"] for part in name.split(",")]
        return cls(**options)


def _converted(value: Any, kind: str, where: str) -> Any:
    """A value of TOML as an option's kind."""
    if kind.startswith("list"):
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise InputError(f"{where} is {value!r}; it must be text or a list of texts")
        return values
    if kind == "bool":
        if not isinstance(value, bool):
            raise InputError(f"{where} is {value!r}; it must be true or false")
        return value
    if kind.startswith("int"):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{where} is {value!r}; it must be a whole number")
        return value
    if not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; it must be text")
    return Path(value) if kind.startswith("Path") else value


def perform(request: Request, say: Callable[[str], None]) -> AuditResult:
    """What can be checked cheaply is checked first, then the audit runs, then its files appear.

    Args:
        request: What is asked for.
        say: Is given a line when the audit begins, where somebody looks.

    Returns:
        The result; written to ``out`` already where that is given.

    Raises:
        InputError: For whatever is wrong with the request; nothing is written then.
        UnwrittenError: Where the audit was finished and its files could not be written to ``out``; it has the audit.
    """
    import tempfile

    from pyterrier_debias.core.files import check_folder, whole_folder
    from pyterrier_debias.data.opening import open_dataset
    from pyterrier_debias.report import options
    from pyterrier_debias.report.checkpoint import Checkpoint
    from pyterrier_debias.report.defaults import default_systems
    from pyterrier_debias.report.inputs import check_baseline, check_settings, find_biases
    from pyterrier_debias.report.result import HOLDS
    from pyterrier_debias.report.run import audit

    r = request
    collection: Dataset
    wmodels: list[str]
    with keeping(r.out) as finished, ExitStack() as stack:
        if r.out is not None:
            check_folder(r.out, holds=HOLDS, overwrite=r.overwrite)
        if r.checkpoint is not None:
            Checkpoint(r.checkpoint)
            if r.out is not None and r.checkpoint.resolve().is_relative_to(r.out.resolve()):
                raise InputError(f"--checkpoint {r.checkpoint} lies in --out {r.out}, which is filled at the end; name another")
        chosen = find_biases("all" if r.biases == ["all"] else r.biases)
        check_settings(correction=r.correction, depth=r.depth, draws=r.draws, topics=r.topics, seed=r.seed)
        ranker_options = options.ranker_options(r.device, r.dtype, r.verbose)
        found = options.find_models(r.model, r.model_kind)
        index = options.terrier_index(r.terrier, wmodel=r.wmodel, queries=r.queries, qrels=r.qrels, run=r.run)
        if index is None:
            collection, wmodels = open_dataset(r.dataset, split=r.split), []
        else:
            wmodels = r.wmodel or ["BM25"]
            collection = options.terrier_collection(
                index, r.dataset, split=r.split, queries=r.queries, qrels=r.qrels, wmodel=wmodels
            )
        frames = options.read_runs(r.run, collection)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyterrier-debias-"))
        systems = default_systems(
            collection, Path(folder), models=found, runs=frames, weighting_models=wmodels, depth=r.depth, **ranker_options
        )
        check_baseline(r.baseline, systems)
        options.load_models(systems)
        results = None if r.out is None else stack.enter_context(whole_folder(r.out, holds=HOLDS, overwrite=r.overwrite))
        if r.verbose or sys.stderr.isatty():
            say(f"auditing {', '.join(s.name for s in systems)} on {getattr(collection, 'name', r.dataset)} ...")
        result = audit(
            systems, collection, biases=chosen, baseline=r.baseline, split=r.split, topics=r.topics, depth=r.depth,
            draws=r.draws, correction=r.correction, seed=r.seed, checkpoint=r.checkpoint, verbose=r.verbose,
        )  # fmt: skip
        finished.append(result)
        if results is not None:
            result.write_files(results)
    return result


class UnwrittenError(InputError):
    """Raised where an audit was finished and could not be written to its place.

    Attributes:
        result: The audit.
    """

    def __init__(self, told: str, result: AuditResult):
        """
        Args:
            told: Why, and where its files are instead.
            result: The audit.
        """
        super().__init__(told)
        self.result = result


@contextmanager
def keeping(out: Path | None) -> Iterator[list[AuditResult]]:
    """Lose no audit that was finished: what cannot be written to its place goes to a temporary folder.

    Args:
        out: Where it was to be written.

    Yields:
        A list that takes the audit when it is finished.

    Raises:
        UnwrittenError: In place of whatever the block raises once the list holds an audit.
    """
    finished: list[AuditResult] = []
    try:
        yield finished
    except Exception as error:
        if not finished:
            raise
        told = str(error) if isinstance(error, InputError) else one_line(error)
        raise UnwrittenError(f"the audit is finished, but {told}; {_instead(finished[0], out)}", finished[0]) from error


def _instead(result: AuditResult, out: Path | None) -> str:
    """Write an audit where that is possible at all; where it is now, in words."""
    import tempfile

    from pyterrier_debias.core.files import write_whole
    from pyterrier_debias.report.result import RESULT_FILE

    for place in dict.fromkeys((None, Path.cwd(), Path.home())):
        try:
            folder = Path(tempfile.mkdtemp(prefix="pyterrier-debias-audit-", dir=place))
        except OSError:
            continue
        try:
            result.write_files(folder)
            return f"its files are in {folder}"
        except Exception:  # a picture that cannot be drawn must not cost the figures either
            try:
                write_whole(folder / RESULT_FILE, result.to_json())
                return f"it is in {folder / RESULT_FILE}, without pictures and tables"
            except Exception:
                shutil.rmtree(folder, ignore_errors=True)
    return "nor can it be written elsewhere: what is printed is all there is of it"
