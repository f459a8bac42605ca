"""The command line.

Only typer is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyterrier_debias._version import __version__
from pyterrier_debias.core.errors import InputError

if TYPE_CHECKING:
    from pyterrier_debias.report.request import Request
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

    'pyterrier-debias audit --help' is the manual; 'check' holds an audit against budgets.
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
    terrier: Annotated[
        Path | None,
        typer.Option(
            metavar="INDEX",
            help="A Terrier index (a folder) in place of the collection's documents; it must store their texts. Topics and "
            "judgements come from --dataset, or from --queries and --qrels. Needs Java.",
        ),
    ] = None,
    wmodel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A weighting model of Terrier to retrieve with; every model reranks it. May be repeated.  [default: BM25]",
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --terrier: topics (TSV, JSON lines, TREC) in place of the dataset's."),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --terrier: judgements (TREC, TSV) in place of the dataset's.")
    ] = None,
    biases: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Which biases: 'all', or some of position, survivorship, gender, linguistic, pooling, with commas between.",
        ),
    ] = "all",
    baseline: Annotated[
        str | None, typer.Option(metavar="SYSTEM", help="Compare every system with this one, query by query, such as BM25.")
    ] = None,
    depth: Annotated[int, typer.Option(metavar="N", help="How many results of the first stage a model reranks.")] = 100,
    draws: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many random variants of each text are scored.  [default: what the bias says]"),
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
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the findings of finished biases there; the same command goes on from them."),
    ] = None,
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
      pyterrier-debias audit --terrier my-index --wmodel BM25 --wmodel DPH --dataset irds:beir/nfcorpus/test
      pyterrier-debias audit --terrier my-index --queries topics.tsv --qrels qrels.txt --model none
      pyterrier-debias audit --dataset my-folder --run mine=mine.trec --model bi:./my-model --baseline mine

    \b
    Columns of the table:
      BM25 >> m   the system that the lines beneath are about: model m over the results of BM25
      measure     what was measured, such as nDCG@10; * marks the primary test of that bias
      of          where, or between what, it was measured
      value       the figure, a mean over queries where nothing else is said
      95 % interval
                  a range for the figure over all queries of this kind; of 100 such ranges, each from
                  another set of queries, 95 hold it
      by chance   the figure that a ranker without this bias would be expected to show
      n           how many queries stand behind it
      p           how often chance alone would give a figure as extreme
      p corr.     the same after correction for all tests of the table: below 0.05 is called significant
      how         a letter; the choices behind the figure stand beside it beneath the table

    \b
    Exit codes:
      0   done
      1   one bias could not be examined because of a defect; the others are reported
      2   the input is at fault; one line says what and how to mend it, and nothing is written; or the audit is finished and
          cannot be written to --out: it is printed, and the line says where its files are
    """
    import shutil

    with _one_line_errors():
        from pyterrier_debias.report.request import Request

        request = Request(
            dataset=dataset, split=split, model=model or [], model_kind=model_kind, run=run or [],
            terrier=terrier, wmodel=wmodel or [], queries=queries, qrels=qrels,
            biases=[name.strip() for name in biases.split(",")], baseline=baseline, depth=depth, draws=draws, topics=topics,
            seed=seed, correction=correction, out=out, overwrite=overwrite, checkpoint=checkpoint, device=device, dtype=dtype,
            verbose=verbose,
        )  # fmt: skip
        result = _perform(request)
    width = min(max(shutil.get_terminal_size((110, 24)).columns, 80), 120)
    typer.echo(result.to_text(width))
    if out is not None:
        typer.echo(f"\nWritten to {out}: open {out / 'index.html'}")
    _report_defects(result)


def _perform(request: Request) -> AuditResult:
    from pyterrier_debias.report.request import UnwrittenError, perform

    try:
        return perform(request, lambda line: typer.echo(line, err=True))
    except UnwrittenError as error:
        typer.echo(error.result.to_text())
        raise


def _report_defects(result: AuditResult) -> None:
    """Where a bias failed: the traceback, and exit code 1."""
    if len(result.failed):
        for trace in dict.fromkeys(result.failed["traceback"]):
            sys.stderr.write(trace)
        raise typer.Exit(1)


@app.command(short_help="Hold an audit against budgets: a gate for continuous integration.")
def check(
    budgets: Annotated[Path, typer.Argument(metavar="BUDGET.TOML", help="The budgets, and what is audited.")],
    audit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A saved audit (audit.json, or its folder) in place of what the file says."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the audit's files there, whatever the outcome.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier audit in the --out folder.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show progress, and figures that keep their budgets.")] = False,
) -> None:
    """Say whether the figures of an audit keep their budgets: one line for each that does not.

    A budget is kept when the whole interval of a figure keeps it. Too few queries show nothing, and the gate stays shut.

    \b
    Example of a file:
      [audit]                                  # options as of 'pyterrier-debias audit', or file = "audit.json"
      dataset = "planted"
      biases = ["position"]
      [[budget]]                               # any number
      bias = "position"                        # without measure and contrast: the primary figure
      at_least = -0.05                         # the lower end of its interval may not be below
      [[budget]]
      bias = "position"
      measure = "PSI"
      contrast = "answers placed"
      system = "BM25 >> all-MiniLM-L6-v2"      # without it: every system, also those that cannot be examined
      at_most = 0.2                            # the upper end of its interval may not be above

    \b
    Exit codes:
      0   every budget is kept
      1   a budget is crossed, the bias that it speaks of failed, or one of its systems could not be examined
      2   the input is at fault: unknown keys, figures that the audit does not have
    """
    with _one_line_errors():
        from dataclasses import replace

        from pyterrier_debias.report.gate import check_budgets, read_audit, read_gate

        gate = read_gate(budgets)
        file = gate.file if audit is None else audit
        if file is not None and out is not None:
            raise InputError("--out writes an audit that is run here; a saved one has its files already")
        if file is not None:
            result = read_audit(file)
        else:
            asked = gate.request
            changed: dict[str, Any] = {"verbose": verbose or asked.verbose, "overwrite": overwrite or asked.overwrite}
            if out is not None:
                changed["out"] = out
            result = _perform(replace(asked, **changed))
        verdicts = check_budgets(result, gate.budgets)
    crossed = [verdict for verdict in verdicts if verdict.crossed]
    for verdict in verdicts if verbose else crossed:
        typer.echo(verdict.text)
    typer.echo(f"{len(crossed)} of {len(verdicts)} limits crossed", err=True)
    if crossed:
        raise typer.Exit(1)
