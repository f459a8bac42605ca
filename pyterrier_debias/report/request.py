"""The textual options of an audit, declared once for the command line and for the file of a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyterrier_debias.core.errors import InputError


def _shown(metavar: str | None, told: str, *flags: str, commas: bool = False) -> dict[str, Any]:
    """How the help shows an option: the placeholder of its value, and its text.

    ``flags`` are its names on the command line, if they differ from the field's; ``commas`` allows a list as one text.
    """
    return {"flags": flags, "metavar": metavar, "help": told, "commas": commas}


@dataclass(frozen=True)
class Request:
    """The options of ``pyterrier-debias audit``, with the same names; the help text of each explains it.

    Options that :func:`pyterrier_debias.audit` also has mean the same there and have the same defaults.
    """

    dataset: str = field(default="planted", metadata=_shown(
        "FOLDER|irds:ID",
        "The collection: a folder with corpus, topics, judgements and optionally runs; an ir_datasets id such as "
        "irds:beir/nfcorpus/test; or 'planted', a small English collection that comes with the package.",
    ))  # fmt: skip
    split: str | None = field(default=None, metadata=_shown(
        "NAME", "Which topics and judgements to use, if the collection has several (dl19, dl20, test)."
    ))  # fmt: skip
    model: list[str] = field(default_factory=list, metadata=_shown(
        "[KIND:]NAME",
        "A ranker for the first stage's results: a folder or a Hugging Face name, with its kind in front if it cannot "
        "be recognised from the files: cross: (cross-encoder), bi: (bi-encoder), multi: (ColBERT), sparse: (SPLADE), "
        "tk: (TK), t5: (monoT5), duot5: (duoT5). May be repeated. 'none' audits only first stages.  [default: all-MiniLM-L6-v2]",
    ))  # fmt: skip
    rotations: int | None = field(default=None, metadata=_shown(
        "N",
        "Also audit each model with its scores averaged over N rotations of each passage (such as 2), which reduces position "
        "bias and takes N times as long.",
    ))  # fmt: skip
    model_kind: str | None = field(default=None, metadata=_shown("KIND", "The kind of every --model without a kind of its own."))
    run: list[str] = field(default_factory=list, metadata=_shown(
        "[NAME=]FILE",
        "A TREC run instead of a retriever; every model reranks it. May be repeated.  [default: the collection's BM25 "
        "run, or BM25 with PISA]",
    ))  # fmt: skip
    ties: str = field(default="docno", metadata=_shown(
        "NAME",
        "How to order tied scores in runs that are read from files: docno (descending, as in trec_eval) or rank (by the "
        "ranks in the file, for runs with rounded scores).",
    ))  # fmt: skip
    terrier: Path | None = field(default=None, metadata=_shown(
        "INDEX",
        "A Terrier index (a folder) instead of the collection's documents; it must store their texts. Topics and "
        "judgements come from --dataset, or from --queries and --qrels. Needs Java.",
    ))  # fmt: skip
    wmodel: list[str] = field(default_factory=list, metadata=_shown(
        "NAME", "A Terrier weighting model for retrieval; every model reranks its results. May be repeated.  [default: BM25]"
    ))  # fmt: skip
    queries: Path | None = field(default=None, metadata=_shown(
        "FILE", "With --terrier: topics (TSV, JSON lines, TREC) instead of the dataset's."
    ))  # fmt: skip
    qrels: Path | None = field(default=None, metadata=_shown(
        "FILE", "With --terrier: judgements (TREC, TSV) instead of the dataset's."
    ))  # fmt: skip
    biases: list[str] = field(default_factory=lambda: ["all"], metadata=_shown(
        "NAMES",
        "The biases to examine, separated by commas: position, survivorship, gender, linguistic and pooling ('all' means these "
        "five), source, length, order. May be repeated.  [default: all]",
        commas=True,
    ))  # fmt: skip
    gender_classifier: Path | None = field(default=None, metadata=_shown(
        "FOLDER",
        "A saved GenderClassifier: the gender bias uses the queries that it labels as neutral, unless the topics have such "
        "labels.  [default: queries without a gendered word]",
    ))  # fmt: skip
    baseline: str | None = field(default=None, metadata=_shown(
        "SYSTEM", "Compare every system with this one (such as BM25), query by query."
    ))  # fmt: skip
    depth: int = field(default=100, metadata=_shown("N", "How many results of the first stage a model reranks."))
    draws: int | None = field(default=None, metadata=_shown(
        "N", "How many random variants of each text are scored.  [default: depends on the bias]"
    ))  # fmt: skip
    topics: int | None = field(default=None, metadata=_shown("N", "Use the first N judged topics only."))
    seed: int = field(default=0, metadata=_shown("N", "Seed of all random choices."))
    correction: str = field(default="two-step", metadata=_shown(
        "NAME", "Correction of p values: two-step (primary tests first); or, over the whole table, holm, bonferroni or fdr_bh."
    ))  # fmt: skip
    out: Path | None = field(default=None, metadata=_shown(
        "FOLDER", "Write findings.csv, per_query.csv, audit.json, index.html and figures (PNG) to this folder."
    ))  # fmt: skip
    overwrite: bool = field(default=False, metadata=_shown(None, "Replace an earlier audit in the --out folder.", "--overwrite"))
    checkpoint: Path | None = field(default=None, metadata=_shown(
        "FOLDER", "Save the findings of finished biases in this folder; the same command resumes from them."
    ))  # fmt: skip
    device: str | None = field(default=None, metadata=_shown(
        "NAME", "Where models run: cpu, cuda, cuda:1, mps.  [default: the fastest device available]"
    ))  # fmt: skip
    dtype: str = field(default="float32", metadata=_shown(
        "NAME", "float32, tf32 (CUDA only), bfloat16 or float16. All but float32 change scores, which can look like bias."
    ))  # fmt: skip
    workers: int | None = field(default=None, metadata=_shown(
        "N", "Score in N processes, here or on a Ray cluster, each with its own GPU if there are enough. Needs the extra ray."
    ))  # fmt: skip
    verbose: bool = field(default=False, metadata=_shown(None, "Show progress.", "--verbose", "-v"))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str) -> Request:
        """Create a request from options by name, such as a table of a TOML file.

        Args:
            table: The value of each option; a list may also be one text (``biases`` with commas).
            where: The file and the table, which messages name.

        Returns:
            The request.

        Raises:
            InputError: If an option does not exist, or a value has the wrong type.

        Example:
            >>> Request.from_table({"model": "none", "biases": "position, pooling"}, "budget.toml").biases
            ['position', 'pooling']
        """
        known = {f.name: f for f in fields(cls)}
        options = {}
        for name, value in table.items():
            if name not in known:
                raise InputError(f"{where}: option {name!r} is not known; use some of {', '.join(known)}")
            value = _converted(value, str(known[name].type), f"{where}: {name}")
            if known[name].metadata["commas"]:
                value = [part.strip() for text in value for part in text.split(",") if part.strip()]
            options[name] = value
        return cls(**options)


def _converted(value: Any, kind: str, where: str) -> Any:
    """A value, converted to the type of an option."""
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
    if kind.startswith("Path") and isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; it must be text")
    return Path(value) if kind.startswith("Path") else value
