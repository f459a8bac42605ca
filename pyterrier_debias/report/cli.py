"""The command line.

Only typer is imported before a command runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from pyterrier_debias._version import __version__
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.report.request import Request

if TYPE_CHECKING:
    from pyterrier_debias.report.result import AuditResult

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pyterrier-debias {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find and measure bias in rankers.

    'pyterrier-debias audit --help' lists all options; 'check' compares an audit with budgets.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Letters that the terminal's encoding lacks are shown by their numbers, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")


#: The largest number of lines of a verdict that fits on one screen together with the line below it.
_SCREEN = 38


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Print an error of the input in one line, and exit with code 2."""
    try:
        yield
    except InputError as error:
        typer.echo(f"pyterrier-debias: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error


#: Errors of a place that cannot be read or written; the program is not at fault.
_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
}


@contextmanager
def place_errors() -> Iterator[None]:
    """Print an error of a file, a folder or the standard output in one line, and exit with code 2.

    Yields:
        Nothing. Errors that are not those of a place are raised again.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _PLACE:
            raise
        if error.filename is not None:
            told = f"{error.filename} cannot be read or written: {error.strerror}; check the path and its permissions"
        elif extract_tb(error.__traceback__)[-1].name == "echo":
            told = f"the standard output cannot be written: {error.strerror}; send it to another place"
            with suppress(OSError):
                sys.stdout.close()  # otherwise Python writes to it again when it ends
        else:
            told = f"a file cannot be read or written: {error.strerror}; check the disks"
        typer.echo(f"pyterrier-debias: {' '.join(told.split())}", err=True)
        raise SystemExit(2) from error


def _option(name: str, told: str | None = None) -> Any:
    """An option of :class:`Request` for typer; a command may give another help text."""
    about = next(f.metadata for f in fields(Request) if f.name == name)
    return typer.Option(*about["flags"], metavar=about["metavar"], help=told or about["help"])


def _takes_a_request(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of :class:`Request` besides its own; typer reads them from its signature."""
    hints, parameters = get_type_hints(Request), []
    for f in fields(Request):
        kind, default = hints[f.name], f.default
        if f.default_factory is not MISSING:
            kind, default = kind | None, None
        annotation = Annotated[kind, _option(f.name)]  # type: ignore[valid-type]  # kinds are known when this runs
        parameters.append(Parameter(f.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    own = [p for p in signature(command, eval_str=True).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    parameters.extend(own)
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # functions have it
    return command


@app.command(short_help="Audit rankers for bias on a collection.")
@_takes_a_request
def audit(
    *,
    full: Annotated[bool, typer.Option("--full", help="Print every figure, not only the verdict.")] = False,
    **options: Any,
) -> None:
    """Audit rankers for bias on a collection, and print a verdict that fits on one screen, or every figure.

    Without options, the command audits BM25, and BM25 followed by the all-MiniLM-L6-v2 bi-encoder, on a planted collection
    whose biases are known.

    \b
    Examples:
      pyterrier-debias audit
      pyterrier-debias audit --out audit-results
      pyterrier-debias audit --dataset msmarco_trec_dl --split dl20
      pyterrier-debias audit --dataset irds:beir/nfcorpus/test --model cross-encoder/ms-marco-MiniLM-L6-v2
      pyterrier-debias audit --terrier my-index --wmodel BM25 --wmodel DPH --dataset irds:beir/nfcorpus/test
      pyterrier-debias audit --terrier my-index --queries topics.tsv --qrels qrels.txt --model none
      pyterrier-debias audit --dataset my-folder --run mine=mine.trec --model bi:./my-model --baseline mine

    \b
    Columns of the tables that --full prints:
      BM25 >> m   the system that the following lines are about: model m reranking the results of BM25
      measure     what was measured, such as nDCG@10; * marks the primary test of that bias
      contrast    what it was measured on, or what is compared
      value       the figure; a mean over queries unless stated otherwise
      95 % interval
                  a range for the figure over all queries of this kind; of 100 such ranges, each from
                  a different set of queries, about 95 contain it
      null value  the figure to expect from a ranker without this bias
      n           the number of queries
      p           the probability that chance alone gives a figure at least as extreme
      p corr.     p after correction (--correction); values below 0.05 are called significant
      method      a letter; a list below the table gives the options behind the figure

    \b
    Exit codes:
      0   done
      1   a bias failed, or a system raised an error; the others are reported
      2   the input is invalid; one line says what is wrong and how to fix it, and nothing is written; or the
          audit is complete but cannot be written to --out: it is printed, and the line says where its files are
    """
    import shutil

    with _one_line_errors():
        # Lists that are not given are empty or None, by version of typer.
        request = Request.from_table({k: v for k, v in options.items() if v not in (None, [])}, "the command line")
        result = _perform(request)
    width = min(max(shutil.get_terminal_size((110, 24)).columns, 80), 120)
    typer.echo(result.to_text(width, most=None if full else _SCREEN))
    if request.out is not None:
        typer.echo(f"\nWritten to {request.out}: open {request.out / 'index.html'}")
    elif not full:
        typer.echo("\nFor every figure, use --full; for tables and a page, use --out FOLDER")
    if len(result.failed):
        for trace in dict.fromkeys(result.failed["traceback"]):
            sys.stderr.write(trace)
        raise typer.Exit(1)


def _perform(request: Request, fit: Callable[[list[str]], None] = lambda systems: None) -> AuditResult:
    from pyterrier_debias.report.perform import UnwrittenError, perform

    try:
        return perform(request, lambda line: typer.echo(line, err=True), fit)
    except UnwrittenError as error:
        typer.echo(error.result.to_text())
        raise


@app.command(short_help="Compare an audit with budgets: a check for continuous integration.")
def check(
    budgets: Annotated[Path, typer.Argument(metavar="BUDGET.TOML", help="The budgets, and what to audit.")],
    audit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A saved audit (audit.json, or its folder) to check instead of the one in the file."),
    ] = None,
    out: Annotated[Path | None, _option("out", "Write the audit's files to this folder, regardless of the outcome.")] = None,
    overwrite: Annotated[bool, _option("overwrite")] = False,
    verbose: Annotated[bool, _option("verbose", "Show progress, and print the budgets that are kept too.")] = False,
) -> None:
    """Check whether the figures of an audit stay within their budgets, and print one line for each that does not.

    A budget is kept if the whole interval of the figure is within it. With too few queries, the check fails.

    \b
    Example of a file:
      [audit]                                  # options of 'pyterrier-debias audit', or file = "audit.json"
      dataset = "planted"
      biases = ["position", "pooling"]
      [[budget]]                               # any number
      bias = "pooling"                         # without measure and contrast: the primary figure
      at_least = -0.1                          # the lower end of the interval must not be below this
      [[budget]]
      bias = "position"
      measure = "PSI"
      contrast = "answers placed"
      system = "BM25 >> all-MiniLM-L6-v2"      # without it: every system, even those that cannot be examined
      at_most = 0.2                            # the upper end of the interval must not be above this

    \b
    Exit codes:
      0   every budget is kept
      1   a budget is exceeded, its bias failed, or one of its systems could not be examined
      2   the input is invalid: no collection and no saved audit, unknown keys, or biases and systems that are not
          audited, which are reported before anything is scored; or figures that the audit does not have
    """
    with _one_line_errors():
        from dataclasses import replace
        from functools import partial

        from pyterrier_debias.report.gate import check_budgets, check_names, read_audit, read_gate

        gate = read_gate(budgets)
        file = gate.file if audit is None else audit
        if file is not None and (out is not None or overwrite):
            given = "--overwrite" if out is None else "--out"
            raise InputError(f"{given} is only for an audit that is run now; leave it out, a saved audit already has its files")
        if file is not None:
            result = read_audit(file)
        else:
            asked = gate.request
            if not gate.named:
                raise InputError(
                    f"{budgets} does not say what to audit; add a table [audit] with dataset = \"...\" (or terrier, queries and "
                    f"qrels) or file = \"audit.json\", or give a saved audit: --audit FILE"
                )
            check_names(gate, budgets)
            changed: dict[str, Any] = {"verbose": verbose or asked.verbose, "overwrite": overwrite or asked.overwrite}
            if out is not None:
                changed["out"] = out
            result = _perform(replace(asked, **changed), partial(check_names, gate, budgets))
        verdicts = check_budgets(result, gate.budgets)
    crossed = [verdict for verdict in verdicts if verdict.crossed]
    for verdict in verdicts if verbose else crossed:
        typer.echo(verdict.text)
    typer.echo(f"{len(crossed)} of {len(verdicts)} limits crossed", err=True)
    if crossed:
        raise typer.Exit(1)
