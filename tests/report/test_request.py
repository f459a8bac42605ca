"""The options of an audit are declared once: the command line, a gate's file and ``audit()`` agree."""

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyterrier_debias
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.data.readers import TIES
from pyterrier_debias.rankers.base import DTYPES
from pyterrier_debias.report import cli
from pyterrier_debias.report.inputs import BIASES, find_biases
from pyterrier_debias.report.models import KINDS
from pyterrier_debias.report.request import Request
from pyterrier_debias.report.text import CORRECTION_NAMES

#: Each option with a value that is not its default, as it is written and as it is meant.
GIVEN = {
    "dataset": ("irds:x", "irds:x"), "split": ("dl20", "dl20"), "model": ("none", ["none"]),
    "rotations": (2, 2), "model_kind": ("bi", "bi"),
    "run": ("a=b.trec", ["a=b.trec"]), "ties": ("rank", "rank"), "terrier": ("index", Path("index")), "wmodel": ("DPH", ["DPH"]),
    "queries": ("q.tsv", Path("q.tsv")), "qrels": ("q.txt", Path("q.txt")), "biases": ("gender, pooling", ["gender", "pooling"]),
    "gender_classifier": ("g", Path("g")), "baseline": ("BM25", "BM25"),
    "depth": (7, 7), "draws": (3, 3), "topics": (5, 5), "seed": (9, 9),
    "correction": ("fdr_bh", "fdr_bh"), "out": ("o", Path("o")), "overwrite": (True, True), "checkpoint": ("c", Path("c")),
    "device": ("mps", "mps"), "dtype": ("float16", "float16"), "workers": (4, 4), "verbose": (True, True),
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """What a command line asks for, without doing it."""

    def of(*arguments):
        requests = []

        def perform(request):
            requests.append(request)
            raise InputError("enough")

        monkeypatch.setattr(cli, "_perform", perform)
        result = CliRunner().invoke(cli.app, ["audit", *arguments])
        assert (result.exit_code, result.stderr) == (2, "pyterrier-debias: enough\n")
        return requests[0]

    return of


def test_defaults_of_the_function_and_of_the_options_are_the_same():
    parameters = inspect.signature(pyterrier_debias.audit).parameters
    defaults = {name: getattr(Request(), name) for name in Request.__dataclass_fields__}
    both = parameters.keys() & defaults.keys()
    assert set(parameters) - both == {"systems"}
    for name in both:
        one = parameters[name].default
        assert defaults[name] == ([one] if isinstance(defaults[name], list) and one is not None else one), name


def test_without_options_everything_is_the_default(asked):
    assert asked() == Request() == Request.from_table({}, "budget.toml")


@pytest.mark.parametrize("name", GIVEN)
def test_an_option_means_the_same_on_the_command_line_and_in_a_file(name, asked):
    written, meant = GIVEN[name]
    flag = f"--{name.replace('_', '-')}"
    request = asked(flag) if written is True else asked(flag, str(written))
    changed = {f.name for f in fields(Request) if getattr(request, f.name) != getattr(Request(), f.name)}
    assert changed == {name} and getattr(request, name) == meant
    assert Request.from_table({name: written}, "budget.toml") == request


def test_the_table_of_options_is_complete_and_lists_may_be_repeated(asked):
    assert list(GIVEN) == [f.name for f in fields(Request)]
    for name in [f.name for f in fields(Request) if isinstance(getattr(Request(), f.name), list)]:
        assert getattr(asked(f"--{name}", "a", f"--{name}", "b"), name) == ["a", "b"]


def test_an_empty_part_of_a_list_is_ignored(asked):
    assert asked("--biases", "position, ,order,").biases == ["position", "order"]


def test_a_repeated_list_with_commas_is_joined_in_order(asked):
    arguments = ["--biases", "pooling,order", "--biases", "gender", "--biases", "all, length"]
    assert asked(*arguments).biases == ["pooling", "order", "gender", "all", "length"]
    assert [bias.name for bias in find_biases(["pooling", "gender", "pooling"])] == ["pooling", "gender"]
    told = Request.__dataclass_fields__["biases"].metadata["help"]
    assert "May be repeated." in told and "[default: all]" in told


@pytest.mark.parametrize(
    ("name", "choices"),
    [("biases", BIASES), ("correction", CORRECTION_NAMES), ("dtype", DTYPES), ("model", KINDS), ("ties", TIES)],
)
def test_the_help_names_every_choice(name, choices):
    told = Request.__dataclass_fields__[name].metadata["help"]
    assert all(choice in told for choice in choices)
