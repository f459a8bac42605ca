"""What an audit has found is never lost, one system costs no other its figures, and names reach neither paths nor terminals."""

import csv
import json
import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from typer.testing import CliRunner

from pyterrier_debias import AuditResult, InputError, System, audit
from pyterrier_debias.core import plots
from pyterrier_debias.core.bias import Figure
from pyterrier_debias.core.errors import visible
from pyterrier_debias.core.files import MANIFEST, entries
from pyterrier_debias.report import inputs
from pyterrier_debias.report.cli import app
from pyterrier_debias.report.gate import read_audit
from pyterrier_debias.report.result import for_spreadsheets
from tests.biases import Made
from tests.report import toy
from tests.report.toy import ORDER, PICKY


class Bad(pt.Transformer):
    """A ranker whose results no figure can be made of."""

    def __init__(self, kind):
        self.kind, self.calls = kind, 0

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        self.calls += bool(len(inp))
        out = pt.model.add_ranks(inp.assign(score=1.0))
        if self.kind == "NaN":
            return out.assign(score=np.nan)
        return pd.concat([out, out]) if self.kind == "duplicates" else out.iloc[:0]


@pytest.fixture
def dataset():
    return toy.collection()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})
    toy.write_files(tmp_path / "data")
    return tmp_path / "data"


def command(*options):
    return CliRunner().invoke(app, ["audit", "--model", "none", *map(str, options)], catch_exceptions=False)


@pytest.mark.parametrize(("kind", "told"), [("NaN", "NaN"), ("duplicates", "twice|duplicate|repeat"), ("nothing", "empty")])
@pytest.mark.parametrize("first", [True, False])
def test_one_bad_system_does_not_end_the_audit_of_the_others(dataset, kind, told, first, tmp_path):
    good, bad = toy.systems(dataset), Bad(kind)
    one = {"bad": good["BM25"] >> dataset.text_loader() >> bad}
    systems = {**one, **good} if first else {**good, **one}
    found = audit(systems, dataset, biases=[ORDER, PICKY], checkpoint=tmp_path / "kept")
    alone = audit(good, dataset, biases=[ORDER, PICKY])
    columns = [name for name in alone.findings.columns if name != "p_corrected"]
    pd.testing.assert_frame_equal(found.findings[columns], alone.findings[columns])
    refused = found.skipped.query("system == 'bad'")
    assert refused["bias"].tolist() == ["order", "picky"] and refused["reason"].str.contains(told).all()
    assert len(found.failed) == 0 and bad.calls <= 3  # once for what tells systems apart, once for its speed
    with pytest.raises(InputError, match=rf"no bias can be examined for any .*({told})"):
        audit(one, dataset, biases=[ORDER])


def test_biases_that_find_nothing_are_named(dataset):
    quiet, still = (Made(name, lambda context: []) for name in ("quiet", "still"))
    told = r"on the collection toy \(quiet, still: examine\(\) returned no findings\)"
    with pytest.raises(InputError, match=f"no bias can be examined for any of the systems {told}"):
        audit(toy.systems(dataset), dataset, biases=[quiet, still])
    assert len(audit(toy.systems(dataset), dataset, biases=[quiet, ORDER]).findings)


def test_a_bias_that_refuses_one_system_by_itself_examines_the_others(dataset):
    def examine(context):
        for system in context.systems:
            if context.results(system)["score"].nunique() > 2:
                raise InputError(f"{system.name} has more than two scores")
        return ORDER.examine(context)

    systems = {**toy.systems(dataset), "alike": toy.systems(dataset)["BM25"] % 2}
    longest = systems["longest"]
    systems["longest"] = longest >> pt.apply.doc_score(lambda row: hash(row["docno"]) % 97)
    found = audit(systems, dataset, biases=[Made("particular", examine)])
    assert set(found.findings["system"]) == {"BM25", "alike"}
    assert found.skipped.to_dict("records") == [
        {"bias": "particular", "system": "longest", "reason": "longest has more than two scores"}
    ]
    with pytest.raises(InputError, match="longest has more than two scores"):
        audit({"longest": systems["longest"]}, dataset, biases=[Made("particular", examine)])


@pytest.mark.parametrize("place", ["full", "occupied", "picture"])
def test_an_audit_that_cannot_be_written_is_printed_and_written_elsewhere(folder, tmp_path, monkeypatch, place):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    real = AuditResult.write_files

    def write_files(self, target):
        if place == "full" and out.name in str(target):
            raise OSError(28, "No space left on device")
        if place == "picture":
            raise ValueError("cannot be drawn")
        real(self, target)
        if place == "occupied" and out.name in str(target):
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "audit.json").write_text("mine")

    monkeypatch.setattr(AuditResult, "write_files", write_files)
    done = command("--dataset", folder, "--out", out)
    assert done.exit_code == 2
    assert "upside down, RR@10 changes by -0.500" in done.stdout
    told = {"full": "No space left on device", "occupied": "holds audit.json already", "picture": "cannot be drawn"}[place]
    line = done.stderr.strip().splitlines()[-1]
    assert "the audit is finished, but" in line and told in line
    (fallback,) = elsewhere.glob("pyterrier-debias-audit-*")
    assert str(fallback) in line
    assert read_audit(fallback).findings["value"].tolist()[:2] == [1.0, -0.5]
    assert (fallback / "index.html").exists() == (place != "picture")
    if place == "occupied":
        assert (tmp_path / "out" / "audit.json").read_text() == "mine"
    else:
        assert not out.exists()


def test_a_place_for_all_files_comes_before_one_for_the_figures_alone(folder, tmp_path, monkeypatch):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir(), large.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(small))
    monkeypatch.chdir(large)
    real = AuditResult.write_files

    def write_files(self, target):
        if not target.is_relative_to(large):
            raise OSError(28, "No space left on device")
        real(self, target)

    monkeypatch.setattr(AuditResult, "write_files", write_files)
    done = command("--dataset", folder, "--out", tmp_path / "out")
    (fallback,) = large.iterdir()
    assert done.exit_code == 2 and f"its files are in {fallback}" in done.stderr
    assert (fallback / "index.html").exists() and not list(small.glob("pyterrier-debias-audit-*"))


def test_where_nothing_can_be_written_it_is_printed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refused(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AuditResult, "write_files", refused)
    monkeypatch.setattr(AuditResult, "to_json", refused)
    done = command("--dataset", folder, "--out", tmp_path / "out")
    assert done.exit_code == 2 and "upside down, RR@10 changes by" in done.stdout
    assert "it could not be written elsewhere either" in done.stderr
    assert not list(tmp_path.glob("pyterrier-debias-audit-*"))


def test_two_audits_into_one_place(folder, tmp_path):
    """The second is told of the first at once; after a kill the same command goes on, and nothing is left over."""
    code = """
import os, signal, sys
from tests.report import toy
from pyterrier_debias.report import inputs
from pyterrier_debias.report.cli import app
inputs.BIASES = {"order": ("tests.report.toy", "Order")}
def examine(self, context):
    print("at work", flush=True)
    sys.stdin.read()
toy.Order.examine = examine
app(sys.argv[1:])
"""
    options = ("--dataset", folder, "--out", tmp_path / "out", "--checkpoint", tmp_path / "kept")
    call = [sys.executable, "-c", code, "audit", "--model", "none", *map(str, options)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(call, cwd=os.getcwd(), text=True, **pipes) as first:
        assert first.stdout.readline() == "at work\n"
        second = command(*options)
        assert second.exit_code == 2 and f"is being written by process {first.pid} on host" in second.stderr
        third = command("--dataset", folder, "--checkpoint", tmp_path / "kept")
        assert third.exit_code == 2 and f"kept is being written by process {first.pid} on host" in third.stderr
        first.kill()
    assert command(*options).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "kept", "out"]
    assert sorted(tmp_path.joinpath("kept").iterdir()) == entries(tmp_path / "kept")
    assert len([path for path in tmp_path.joinpath("out").iterdir() if path.name.startswith(".")]) == 1


def test_figures_of_one_name_are_all_written(dataset, tmp_path):
    figures = [Figure(name, "a caption", lambda axes: axes.plot([1, 2])) for name in ("shares", "shares", "shares-2", "shares")]
    result = audit(toy.systems(dataset), dataset, biases=[Made("mine", ORDER.examine, figures=figures)])
    written = {path.name for path in result.save(tmp_path / "out").glob("*.png")}
    assert written == {f"mine-shares{end}.png" for end in ("", "-2", "-2-2", "-3")}


def test_a_bias_whose_name_leads_elsewhere_writes_where_it_should(dataset, tmp_path):
    figure = Figure("../up", "a caption", lambda axes: axes.plot([1, 2]))
    bias = Made("../../escaped", ORDER.examine, figures=[figure])
    before = set(tmp_path.rglob("*"))
    result = audit(toy.systems(dataset), dataset, biases=[bias], checkpoint=tmp_path / "a" / "b" / "kept")
    result.save(tmp_path / "a" / "b" / "out")
    new = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert all(name.startswith(("a/b/kept/", "a/b/out/")) for name in new)
    assert len([name for name in new if name.endswith(".png")]) == 1


def test_control_characters_reach_neither_terminal_nor_pictures(dataset):
    systems = toy.systems(dataset)
    odd = "red\x1b[31m\x00\x07\u202e\ud800"
    result = audit({odd: systems["BM25"], "longest": systems["longest"]}, dataset, biases=[ORDER], baseline=odd)
    shown = visible(odd)
    assert shown == "red\ufffd[31m\ufffd\ufffd\ufffd\ufffd" and set(result.findings["system"]) == {shown, "longest"}
    for text in (result.to_text(), result.to_html(), result.card(), result.to_json()):
        assert "red\ufffd" in text and "\x1b" not in text and "\ud800" not in text
        text.encode()
    with pytest.raises(InputError, match="two systems are named"):
        audit({"a\x00": systems["BM25"], "a\x01": systems["BM25"]}, dataset, biases=[ORDER])
    with pytest.raises(InputError, match="the name of bias 'a\\\\x1b' has characters that cannot be printed"):
        audit(systems, dataset, biases=[Made("a\x1b", ORDER.examine)])


def test_an_audit_of_files_whose_names_are_not_utf_8_can_be_saved(tmp_path):
    """Python reads the bytes of such names as halves of surrogate pairs, which no file can hold."""
    name = os.fsdecode(b"\xd4\xcb")
    dataset = toy.collection(name)
    systems = {name: System(name, toy.systems(dataset)["BM25"], note=f"{name}: a note")}
    result = audit(list(systems.values()), dataset, biases=[ORDER])
    assert result.settings["dataset"] == "\ufffd" * 2 and result.settings["notes"] == ["\ufffd" * 2 + ": a note"]
    assert set(read_audit(result.save(tmp_path / "out")).findings["system"]) == {"\ufffd" * 2}


def test_a_picture_of_odd_names_can_be_drawn():
    axes = plots.new_axes()
    axes.plot([1, 2], label="a\x00\x1b[31m")
    axes.set_yticks([1, 2], ["b\x07", "c\ud800"])
    axes.set_title("two\nlines")
    axes.legend()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plots._STYLE, "svg.fonttype", "none")
        svg = plots.rendered(axes.figure, "svg").decode()
    ET.fromstring(svg)
    assert all(text in svg for text in ("a\ufffd\ufffd[31m", "b\ufffd", "c\ufffd", "two", "lines"))


def test_spreadsheets_compute_nothing(dataset, tmp_path):
    odd = ["=cmd|'/c calc'!A0", "+1+1", "-2+3", "@SUM(A1)", " =1", "\t=1", "-1", "+2.5", "1e3", "plain", "a=b"]
    table = for_spreadsheets(pd.DataFrame({"text": odd, "value": np.linspace(-1, 1, len(odd))}))
    assert table["text"].tolist() == [f"'{text}" for text in odd[:6]] + odd[6:]
    pd.testing.assert_series_equal(table["value"], pd.Series(np.linspace(-1, 1, len(odd)), name="value"))
    systems = toy.systems(dataset)
    result = audit({"=1+1": systems["BM25"], "-b": systems["longest"]}, dataset, biases=[ORDER])
    result.save(tmp_path / "out")
    for name in ("findings.csv", "per_query.csv"):
        with open(tmp_path / "out" / name, newline="") as file:
            assert {line["system"] for line in csv.DictReader(file)} == {"'=1+1", "'-b"}
    assert set(read_audit(tmp_path / "out").findings["system"]) == {"=1+1", "-b"}


def test_reports_are_as_private_as_the_user_wants(dataset, tmp_path):
    old = os.umask(0o077)
    try:
        result = audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
        result.save(tmp_path / "out")
    finally:
        os.umask(old)
    made = [path for name in ("kept", "out") for path in ((tmp_path / name), *(tmp_path / name).rglob("*"))]
    assert len(made) > 8
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600, 0o700}


def test_a_damaged_file_of_an_audit_is_found_out(dataset, tmp_path, caplog):
    systems = toy.systems(dataset)
    result = audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    result.save(tmp_path / "out")
    path = tmp_path / "out" / "audit.json"
    told = json.loads(path.read_text())
    told["findings"][0]["value"] = 0.5
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"audit.json: this audit is damaged: its content does not match its checksum"):
        read_audit(path)
    (kept,) = (tmp_path / "kept").glob("bias-*")
    kept.write_text(kept.read_text().replace("-0.5", "-0.6"))
    again = audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    assert "is damaged" in caplog.text and "order is examined again" in caplog.text
    pd.testing.assert_frame_equal(again.findings, result.findings)
    about = tmp_path / "kept" / "checkpoint.json"
    about.write_text(about.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(InputError, match=r"checkpoint.json is damaged: its content does not match its checksum"):
        audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept", seed=1)
    assert (tmp_path / "out" / MANIFEST).is_file()
