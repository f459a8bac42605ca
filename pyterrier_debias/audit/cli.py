"""The command line. Floor 4.

Only typer is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pyterrier_debias._version import __version__
from pyterrier_debias.errors import InputError

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

    'pyterrier-debias audit --help' is the manual.
    """


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What is wrong with the input is said in one line, with exit code 2."""
    try:
        yield
    except InputError as error:
        typer.echo(f"pyterrier-debias: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error


@app.command(short_help="Audit rankers for bias on a collection.")
def audit(
    dataset: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|irds:ID",
            help="The collection: a folder with corpus, topics, judgements and perhaps runs; an ir_datasets id such as "
            "irds:beir/nfcorpus/test; or 'planted', a small English collection that comes with the package.",
        ),
    ] = "planted",
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which topics and judgements, where the collection has several (dl19, dl20, test)."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[KIND:]NAME",
            help="A ranker for the first stage's results: a folder or a Hugging Face name, with its kind in front where it "
            "cannot be told from the files: cross: (cross-encoder), bi: (bi-encoder), multi: (ColBERT), t5: (monoT5). May "
            "be repeated. 'none' audits first stages alone.  [default: all-MiniLM-L6-v2]",
        ),
    ] = None,
    model_kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="The kind of every --model that does not say its own.")
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="A TREC run in place of a retriever; every model reranks it. May be repeated.  [default: the collection's "
            "BM25 run, or BM25 through PISA]",
        ),
    ] = None,
    rooms: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Which biases to look for: 'all', or names with commas between: position, pooling."),
    ] = "all",
    baseline: Annotated[
        str | None, typer.Option(metavar="SYSTEM", help="Compare every system with this one, query by query, such as BM25.")
    ] = None,
    depth: Annotated[int, typer.Option(metavar="N", help="How many results of the first stage a model reranks.")] = 100,
    draws: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many random variants of each text are scored.  [default: what the room says]"),
    ] = None,
    topics: Annotated[int | None, typer.Option(metavar="N", help="Use the first N judged topics only.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of everything random.")] = 0,
    correction: Annotated[
        str, typer.Option(metavar="NAME", help="Correction of p values over the table: holm, bonferroni or fdr_bh.")
    ] = "holm",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write findings.csv, per_query.csv, audit.json, index.html and figures (PNG) there."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier audit in the --out folder.")] = False,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where models compute: cpu, cuda, cuda:1, mps.  [default: the fastest there is]"),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(metavar="NAME", help="float32, bfloat16 or float16. Half precision moves scores, which can look like bias."),
    ] = "float32",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show progress.")] = False,
) -> None:
    """Audit rankers for bias on a collection, and print what was found.

    Without options, BM25 and BM25 followed by the all-MiniLM-L6-v2 bi-encoder are audited on an embedded collection whose
    biases are known.

    \b
    Examples:
      pyterrier-debias audit
      pyterrier-debias audit --out audit-results
      pyterrier-debias audit --dataset msmarco_trec_dl --split dl20
      pyterrier-debias audit --dataset irds:beir/nfcorpus/test --model cross-encoder/ms-marco-MiniLM-L6-v2
      pyterrier-debias audit --dataset my-folder --run mine=mine.trec --model bi:./my-model --baseline mine

    \b
    Columns of the table:
      BM25 >> m   the system that the lines beneath are about: model m over the results of BM25
      measure     what was measured, such as nDCG@10; * marks the primary test of that bias
      of          where, or between what, it was measured
      value       the figure, a mean over queries where nothing else is said
      95 % interval
                  where the figure would lie in 95 of 100 such sets of queries
      by chance   the figure that a ranker without this bias would be expected to show
      n           how many queries stand behind it
      p           how often chance alone would give a figure as extreme
      p corr.     the same after correction for all tests of the table: below 0.05 is called significant
      how         a letter; the choices behind the figure stand beside it beneath the table

    \b
    Exit codes:
      0   done
      1   one bias could not be examined because of a defect; the others are reported
      2   the input is at fault; one line says what and how to mend it, and nothing is written
    """
    with _one_line_errors():
        _audit(
            dataset, split, model or [], model_kind, run or [], rooms, baseline, depth, draws, topics, seed, correction, out,
            overwrite, device, dtype, verbose,
        )  # fmt: skip


def _audit(
    dataset: str,
    split: str | None,
    models: list[str],
    model_kind: str | None,
    runs: list[str],
    rooms: str,
    baseline: str | None,
    depth: int,
    draws: int | None,
    topics: int | None,
    seed: int,
    correction: str,
    out: Path | None,
    overwrite: bool,
    device: str | None,
    dtype: str,
    verbose: bool,
) -> None:
    """What can be checked cheaply is checked first, then the audit runs, then its files appear."""
    import shutil
    import tempfile
    from contextlib import ExitStack

    from pyterrier_debias.audit import options
    from pyterrier_debias.audit.defaults import default_systems
    from pyterrier_debias.audit.run import audit, check_baseline, check_settings, check_target, find_rooms
    from pyterrier_debias.collections.opening import open_dataset
    from pyterrier_debias.files import whole_folder

    with ExitStack() as stack:
        if out is not None:
            check_target(out, overwrite=overwrite)
        chosen = find_rooms("all" if rooms == "all" else [name.strip() for name in rooms.split(",")])
        check_settings(correction=correction, depth=depth, draws=draws, topics=topics)
        ranker_options = options.ranker_options(device, dtype, verbose)
        found = options.find_models(models, model_kind)
        collection = open_dataset(dataset, split=split)
        frames = options.read_runs(runs, collection)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyterrier-debias-"))
        systems = default_systems(collection, Path(folder), models=found, runs=frames, depth=depth, **ranker_options)
        check_baseline(baseline, systems)
        options.load_models(systems)
        results = None if out is None else stack.enter_context(whole_folder(out, overwrite=overwrite))
        if verbose or sys.stderr.isatty():
            typer.echo(f"auditing {', '.join(s.name for s in systems)} on {getattr(collection, 'name', dataset)} ...", err=True)
        result = audit(
            systems, collection, rooms=chosen, baseline=baseline, split=split, topics=topics, depth=depth, draws=draws,
            correction=correction, seed=seed, verbose=verbose,
        )  # fmt: skip
        if results is not None:
            result.write_files(results)
    width = min(max(shutil.get_terminal_size((110, 24)).columns, 80), 120)
    typer.echo(result.to_text(width))
    if out is not None:
        typer.echo(f"\nWritten to {out}: open {out / 'index.html'}")
    if len(result.failed):
        for trace in result.failed["traceback"]:
            sys.stderr.write(trace)
        raise typer.Exit(1)
