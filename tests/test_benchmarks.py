"""Every benchmark starts and ends, at its smallest setting; its figures are not looked at here."""

import importlib
import runpy
import sys

import pandas as pd
import pytest

from pyterrier_debias import audit
from tests.conftest import ROOT, small_pictures

FOLDER = ROOT / "benchmarks"

#: Options of all programs that simulate collections.
_CALIBRATING = "--seeds 2 --topics 12 --workers 1 --out {out}"
_REAL = "--data {data} --collections msmarco_trec_dl --queries 20 --draws 99 --workers 1"
#: Program to its smallest setting; ``{out}`` is a folder, ``{queries}`` and ``{passages}`` files, ``{data}`` real collections.
SETTINGS = {
    "calibration": "--collections 2 --several-collections 1 --power-collections 1 --topics 20 --power-topics 20 --depth 10 "
    "--deep 10 --rotations 1 --draws 19 --workers 1 --out {out}",
    "cet": "--examples 2 --words 8 --rounds 1 --width 24",
    "complexity": "--queries small={queries} --out {out}",
    "damage": "--files 7",
    "faults": "--kills 1",
    "few_queries": "--cases 2",
    "fuzz": "--calls 40 --only ^R",
    "further_calibration": f"{_CALIBRATING} --strengths 1.0 --power-seeds 1 --depth 12",
    "gender": "--passages {passages} --times 1 --queries 2 --repeat 1",
    "gender_calibration": f"{_CALIBRATING} --strengths 1.0 --depth 10 --draws 19",
    "gpu_check": "--device cpu --layers 1 --size 64 --pairs 8 --tokens 16 --matrix 64 --repeat 1 --out {out}",
    "growth": "--one --sizes 10:6 --systems 1 --draws 1 --biases pooling",
    "import_time": "--rounds 1 --libraries json",
    "linguistic_calibration": f"{_CALIBRATING} --strengths 1.0 --depth 10 --draws 19",
    "matching": "--first 40 --second 60 --columns 3 --sample 10",
    "mats": "--passages 20 --dimensions 8 --seconds 0.05 --spread-up-to 20",
    "mutation": "pyterrier_debias/gender/formulas/arab.py --sample 0",
    "pooling_calibration": f"{_CALIBRATING} --strengths 0.7 --depth 10",
    "position_calibration": f"{_CALIBRATING} --strengths 1.0 --power-seeds 1 --depth 8",
    "real_nulls": f"{_REAL} --nulls 2 --out {{out}}",
    "rotation": "--passages 200 --words 20 --rounds 1",
    "scoring": "--data {data}/msmarco_trec_dl --pairs 4 --max-length 32 --repeats 1 --groups cross-encoder --matrix 64",
    "scored_twice": "--topics 12 --depth 2 --draws 1 --rankers pt.apply",
    "shared_documents": "--data {data} --collections squad/xquad.en.json.gz --nulls 1 --queries 20 --depth 12 --out {out}",
    "slope": "--simulations 2 --draws 19 --queries 40 --slopes 0.5",
    "sparse_training": "--examples 2 --words 8 --rounds 1 --width 24",
    "survivorship_calibration": f"{_CALIBRATING} --strengths 0.5 --draws 19",
    "tk": "--queries 1 --depth 2 --words 8 --rounds 1",
    "unjudged_treatments": "--dataset {data}/msmarco_trec_dl --splits dl19 --out {out}",
}
#: Started by tests/terrier/test_queries.py, which has Java.
OVER_TERRIER = {"terrier_queries"}
#: Started by tests/linguistic/test_stanford.py, which has a stand-in for Java.
OVER_A_STAND_IN = {"syntax"}
#: Started by tests/test_ray.py, which has a cluster.
OVER_RAY = {"spread"}


def test_every_benchmark_is_started():
    programs = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
    assert programs == {*SETTINGS, *OVER_TERRIER, *OVER_A_STAND_IN, *OVER_RAY}


def started(name, said, monkeypatch):
    """Run a program with a command line; its figures are laid out, and small pictures written."""
    small_pictures(monkeypatch)
    monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py"), *said.split()])
    monkeypatch.syspath_prepend(str(FOLDER))
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code


def test_nulls_of_real_collections_are_added_to(shared_data, tmp_path, monkeypatch, capsys):
    """Fresh seeds are added, what is there is kept, a seed's nulls are always the same, and intervals agree with tests."""
    said = _REAL.format(data=shared_data)
    started("real_nulls", f"{said} --nulls 2 --out {tmp_path / 'added'}", monkeypatch)
    kept = pd.read_csv(tmp_path / "added" / "p_values.csv")
    started("real_nulls", f"{said} --nulls 2 --first-seed 1 --out {tmp_path / 'added'}", monkeypatch)
    both = pd.read_csv(tmp_path / "added" / "p_values.csv")
    assert both.head(len(kept)).equals(kept) and both["seed"].tolist() == [0] * 10 + [1] * 10 + [2] * 10
    started("real_nulls", f"{said} --nulls 1 --first-seed 2 --out {tmp_path / 'fresh'}", monkeypatch)
    fresh = pd.read_csv(tmp_path / "fresh" / "p_values.csv")
    pd.testing.assert_frame_equal(both.tail(10).reset_index(drop=True), fresh)
    inverted = both[both["test"].isin(["position", "survivorship", "gender", "pooling", "linguistic"])].dropna(subset=["p"])
    assert (((inverted["low"] > 0) | (inverted["high"] < 0)) == (inverted["p"] <= 0.05)).all()
    assert "3 --queries 20" in (tmp_path / "added" / "real_nulls.inc").read_text()
    with pytest.raises(AssertionError, match="made with other --queries or --draws"):
        started("real_nulls", f"{said.replace('99', '19')} --nulls 1 --out {tmp_path / 'added'}", monkeypatch)


def test_slopes_are_compared(monkeypatch, capsys):
    started("slope", "--comparisons --simulations 5 --draws 19", monkeypatch)
    told = capsys.readouterr().out
    assert "normal, equal spread, 43 queries: HC0 " in told
    assert "steepness 1, noise of the ranker 1: one control 100.0, two controls " in told


def test_the_calibration_makes_nulls_of_real_collections(shared_data, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.syspath_prepend(str(FOLDER))

    def examine(*given, **more):
        asked.append((given, more))
        return [""]

    monkeypatch.setattr(importlib.import_module("real_nulls"), "examine", examine)
    said = f"--real {shared_data} --nulls 5 --first-seed 7 --draws 9 --workers 1 --out {tmp_path}"
    started("calibration", said, monkeypatch)
    ((data, collections, seeds, out), more), = asked
    assert (data, seeds, out) == (shared_data, range(7, 12), tmp_path / "real") and len(collections) >= 3
    assert more == {"queries": 100, "draws": 9, "workers": 1}


def test_null_collections_with_several_answers(monkeypatch):
    """Any number of a query's answers is left, the others are not relevant, and half of those left were shown."""
    monkeypatch.syspath_prepend(str(FOLDER))
    calibration = importlib.import_module("calibration")
    case = calibration.Case(0, calibration.SEVERAL, 0.0, calibration.Setting(12, 10, 10, 1, 19))
    both = case.qrels.merge(case.ground.unbiased.get_qrels(), on=["qid", "docno"], suffixes=("", "_before"))
    assert len(both) == len(case.qrels)
    left, there = (both[both[column] == 2].groupby("qid").size() for column in ("label", "label_before"))
    assert sorted(left.index) == sorted(case.topics["qid"]) and (left <= there).all() and left.nunique() > 2
    assert both.query("label != label_before")[["label", "label_before"]].drop_duplicates().values.tolist() == [[0, 2]]
    shown = case.shown.merge(both[both["label"] == 2], on=["qid", "docno"]).groupby("qid").size()
    assert shown.eq((left + 1) // 2).all() and (case.shown.groupby("qid").size() == 10).all()


def test_primary_tests_alone_are_those_of_whole_audits(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    calibration = importlib.import_module("calibration")
    found = pd.DataFrame()

    def kept(*given, **options):
        nonlocal found
        result = audit(*given, **options)
        found = result.findings.query("primary and p.notna()").set_index("bias")
        return result

    monkeypatch.setattr(calibration, "audit", kept)
    case = calibration.Case(5, calibration.NOTHING, 0.0, calibration.Setting(12, 10, 10, 3, 19))
    (whole,) = calibration.audited([case])
    said = f"--primaries 1 --first-seed 5 --topics 12 --depth 10 --deep 10 --workers 1 --out {tmp_path}"
    started("calibration", said, monkeypatch)
    (alone,) = pd.read_csv(tmp_path / "primaries.csv").to_dict("records")
    assert alone["smallest"] == pytest.approx(whole["smallest"], abs=1e-12) and alone["seed"] == whole["seed"] == 5
    assert {bias: alone[bias] for bias in found.index} == pytest.approx(found["p"].to_dict(), abs=1e-12)
    assert "any primary finding, 1 collections:" in capsys.readouterr().out


@pytest.mark.parametrize("effect", [0.2, 0.33])
def test_topics_that_a_test_needs(effect, monkeypatch):
    """By the power of a test of a normal mean as statsmodels has it."""
    from statsmodels.stats.power import NormalIndPower

    monkeypatch.syspath_prepend(str(FOLDER))
    calibration = importlib.import_module("calibration")
    theirs = NormalIndPower(ddof=0)
    power = theirs.power(effect, nobs1=60, alpha=0.05, ratio=0)
    expected = theirs.solve_power(effect, power=0.95, alpha=0.05, ratio=0)
    # The other tail, which statsmodels counts, is far away.
    assert calibration.topics_for(power, 60) == pytest.approx(expected, rel=1e-3)
    assert calibration.needed({"rate": 1.0, "low": 0.97, "high": 1.0}, 50) == "fewer than 50"


def test_mutants_of_a_module(monkeypatch):
    """One place at a time; types are left alone; what importing runs is told apart."""
    monkeypatch.syspath_prepend(str(FOLDER))
    mutation = importlib.import_module("mutation")
    source = "def f(a: int | None, *, b=1):\n    if not (a < 2 <= b):\n        return -a\n    return a + 1\n"
    found = mutation.mutants(source)
    assert [(m.number, m.line, m.mutant) for m in found] == [
        (0, 1, "2"), (1, 2, "not not a < 2 <= b"), (2, 4, "a - 1"), (3, 2, "not a <= 2 <= b"), (4, 2, "not a < 2 < b"),
        (5, 3, "+a"), (6, 4, "a + 2"), (7, 2, "not a < 3 <= b"),
    ]  # fmt: skip
    assert [m.line for m in found if m.always] == [1] and all(m.lines == range(m.line, m.line + 1) for m in found)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_runs(name, request, tmp_path, monkeypatch, capsys):
    files = {"out": tmp_path / "out", "queries": tmp_path / "queries.tsv", "passages": tmp_path / "passages.tsv"}
    files["queries"].write_text("1\twho built the old mill near the river\n2\twhy is the sky blue at noon\n")
    files["passages"].write_text("1\tHe met her and his brother.\n2\tRain fell on the hills.\n")
    if "{data}" in SETTINGS[name]:
        files["data"] = request.getfixturevalue("shared_data")
    monkeypatch.chdir(tmp_path)
    started(name, SETTINGS[name].format(**files), monkeypatch)
    assert capsys.readouterr().out.strip()
