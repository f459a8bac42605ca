"""What every public stage promises, as checks that take a stage and a frame.

`tests/test_contract.py` runs them over every public stage; a new stage joins by one line in `tests/contract_cases.py`.
"""

from __future__ import annotations

import inspect
import pickle
import unittest
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyterrier as pt
import pyterrier.testing
import pytest
from pandas.api.types import is_string_dtype

from pyterrier_debias.core.pieces import PIECES
from pyterrier_debias.core.stage import Stage, parts_of


@dataclass(frozen=True)
class Case:
    """A stage and an input that it accepts.

    Attributes:
        name: Shown by pytest.
        make: Builds the stage; called twice, gives two equal stages.
        frame: An input frame with a default index, at least two queries or documents, and no column named ``kept``.
        other: Builds a stage of the same class that must not be equal.
        rowwise: Whether each output row depends on its input row alone (every stage but evaluators).
    """

    name: str
    make: Callable[[], Stage]
    frame: Callable[[], pd.DataFrame]
    other: Callable[[], Stage]
    rowwise: bool = True


KEY = ("qid", "docno")


def by_key(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in an order that depends on its content only."""
    keys = [c for c in KEY if c in frame.columns] or list(frame.columns)
    return frame.sort_values(keys, kind="stable").reset_index(drop=True)


def assert_same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(by_key(left), by_key(right[left.columns]), rtol=0, atol=1e-5)


def check_pyterriers_own_tests(case: Case) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(pt.testing.transformer_test_class(case.make))
    outcome = unittest.TestResult()
    suite.run(outcome)
    problems = [text for _, text in [*outcome.failures, *outcome.errors]]
    assert outcome.testsRun >= 2
    assert not problems, "\n".join(problems)


def check_inspection(case: Case) -> None:
    stage, frame = case.make(), case.frame()
    inputs = pt.inspect.transformer_inputs(stage)
    assert any(set(columns) <= set(frame.columns) for columns in inputs), inputs
    assert pt.inspect.transformer_outputs(stage, list(frame.columns)) == list(stage(frame).columns)
    assert pt.inspect.transformer_apply_attributes(stage) == stage


def check_schematic(case: Case) -> None:
    """What it is drawn with: a short label, the columns in and out, and the pipelines inside."""
    stage, frame = case.make(), case.frame()
    own = pt.schematic.transformer_schematic(stage, input_columns=list(frame.columns))
    assert 0 < len(own["label"]) <= 20 and type(stage).__name__.startswith(own["label"])
    assert own["input_columns"] == list(frame.columns) and own["output_columns"] == list(stage(frame).columns)
    assert len(own.get("inner_pipelines") or []) == len(parts_of(stage))
    assert own["label"] in pt.schematic.draw(own)


def check_evaluated(case: Case) -> None:
    """The measures of a run are those of the pipeline that gives it."""
    stage, frame = case.make(), case.frame()
    out = stage(frame)
    if not {"qid", "docno"} <= set(frame.columns) or "score" not in out.columns or out.duplicated(["qid", "docno"]).any():
        return  # an evaluator, or a stage for queries or documents
    qrels = frame[["qid", "docno"]].assign(label=range(len(frame))).drop_duplicates(["qid", "docno"])
    system, measures = pt.Transformer.from_df(frame) >> stage, [pt.measures.nDCG @ 10, pt.measures.RR]
    topics = frame[["qid"]].drop_duplicates().assign(query="any")
    table = pt.Experiment([system], topics, qrels, measures, validate="ignore")
    assert {str(m): table[str(m)].item() for m in measures} == pytest.approx(pt.Evaluate(out, qrels, measures))


def check_missing_columns(case: Case) -> None:
    for columns in pt.inspect.transformer_inputs(case.make()):
        for column in columns:
            try:
                frame = case.frame()
                case.make()(frame[[c for c in columns if c != column and c in frame.columns]])
            except pt.validate.InputValidationError as error:
                assert type(case.make()).__name__ in str(error) or column in str(error)
            else:
                others = pt.inspect.transformer_inputs(case.make())
                assert any(column not in other for other in others), f"column {column} is not asked for"


def check_empty(case: Case) -> None:
    frame = case.frame()
    out = case.make()(frame.iloc[:0])
    assert len(out) == 0
    whole = case.make()(frame)
    assert list(out.columns) == list(whole.columns)
    assert out.columns.is_unique
    # What reads text, as in frame["text"].str, reads that of an empty frame too.
    assert [c for c in whole if is_string_dtype(whole[c]) and not is_string_dtype(out[c])] == []


def check_columns_are_kept(case: Case) -> None:
    frame = case.frame().assign(kept=lambda f: [f"row {i}" for i in range(len(f))])
    before = frame.copy(deep=True)
    out = case.make()(frame)
    pd.testing.assert_frame_equal(frame, before)
    if case.rowwise:
        assert set(frame.columns) <= set(out.columns)
        key = [c for c in KEY if c in frame.columns]
        merged = out.merge(before[[*key, "kept"]], on=key, suffixes=("", "_before"))
        assert len(merged) == len(out)
        assert (merged["kept"] == merged["kept_before"]).all()
        assert not out.duplicated(key).any()


def check_scores_agree_with_ranks(case: Case) -> None:
    out = case.make()(case.frame())
    if not {"qid", "score", "rank"} <= set(out.columns):
        return
    for _, group in out.groupby([c for c in ("qid", "arm", "draw") if c in out.columns]):  # evaluators rank several lists
        group = group.sort_values("rank")
        assert group["rank"].tolist() == list(range(len(group)))
        assert group["score"].is_monotonic_decreasing


def check_order_and_batches(case: Case) -> None:
    stage, frame = case.make(), case.frame()
    whole = stage(frame)
    shuffled = frame.sample(frac=1, random_state=3)  # the index is shuffled too
    assert_same(whole, stage(shuffled))
    assert stage.pieces in PIECES and (case.rowwise or stage.pieces != "rows" or "docno" not in frame.columns)
    if stage.pieces != "frame":
        lists = frame.groupby("qid" if "qid" in frame.columns else "docno", sort=False)
        cut = pd.concat([stage(one) for _, one in lists], ignore_index=True)
        assert_same(whole, cut)
    if not case.rowwise:
        return
    columns = [c for c in whole.columns if c != "rank" or stage.pieces == "rows"]  # a rank depends on the list, a score does not
    single = pd.concat([stage(frame.iloc[[i]]) for i in range(len(frame))], ignore_index=True)
    assert_same(whole[columns], single[columns])


def check_equality(case: Case) -> None:
    one, two, other = case.make(), case.make(), case.other()
    assert one == two
    assert hash(one) == hash(two)
    assert type(other) is type(one)
    assert one != other
    assert repr(one) == repr(two)
    assert len(repr(one)) < 300


class Counted:
    """Counts how often a class' transform sees rows."""

    def __init__(self, monkeypatch: Any, stage_class: type):
        self.calls = 0
        original = stage_class.transform

        def transform(stage, inp):
            self.calls += len(inp) > 0
            return original(stage, inp)

        monkeypatch.setattr(stage_class, "transform", transform)


def check_shared_prefix_runs_once(case: Case, monkeypatch: Any) -> None:
    frame = case.frame()
    # An evaluator's rows need not be of documents.
    if not {"qid", "docno"} <= set(frame.columns) or "docno" not in case.make()(frame).columns:
        return
    counted = Counted(monkeypatch, type(case.make()))
    first = pt.Transformer.from_df(frame)
    scored = [pt.apply.doc_score(lambda row, k=k: float(k) + len(row["docno"])) for k in (1, 2)]
    topics = frame[["qid"]].drop_duplicates().assign(query="any")
    qrels = frame[["qid", "docno"]].assign(label=range(len(frame))).drop_duplicates(["qid", "docno"])
    systems = [first >> case.make() >> scored[0], first >> case.make() >> scored[1]]
    tables = []
    for runs, how in ((2, {}), (1, {"plan": "tree"}), (1, {"precompute_prefix": True})):
        counted.calls = 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There are shared pipeline components", UserWarning)
            warnings.filterwarnings("ignore", ".*precompute_prefix", DeprecationWarning)
            table = pt.Experiment(
                systems, topics, qrels, [pt.measures.nDCG @ 10], names=["a", "b"], validate="ignore", **how
            )  # fmt: skip
        assert counted.calls == runs, how
        tables.append(table)
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])


def check_compiled_equals_uncompiled(case: Case) -> None:
    frame = case.frame()
    if not {"qid", "docno"} <= set(frame.columns):
        return
    pipeline = pt.Transformer.from_df(frame) >> case.make()
    if case.rowwise and "score" in case.make()(frame).columns:
        pipeline = pipeline % 2
    topics = frame[[c for c in ("qid", "query") if c in frame.columns]].drop_duplicates("qid")
    assert_same(pipeline(topics), pipeline.compile()(topics))


def check_pickles(case: Case) -> None:
    stage, frame = case.make(), case.frame()
    assert pickle.loads(pickle.dumps(stage)) == stage
    out = stage(frame)
    copy = pickle.loads(pickle.dumps(stage))
    assert copy == stage
    assert_same(out, copy(frame))


def check_documented(case: Case) -> None:
    stage = type(case.make())
    text = f"{stage.__doc__}\n{stage.__init__.__doc__}"
    assert "Example" in text, "no example"
    assert "when not to use" in text.lower(), "does not say when not to use it"
    for parameter in case.make().options():
        assert f"{parameter}:" in text or f"{parameter} (" in text, f"parameter {parameter} is not described"


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def assert_contract(case: Case, checks: Iterable[str] = tuple(CHECKS)) -> None:
    """Run all checks (or those that are named) and raise what they found together, each under its name."""
    broken = {}
    for name in checks:
        with pytest.MonkeyPatch.context() as monkeypatch:
            wanted = "monkeypatch" in inspect.signature(CHECKS[name]).parameters
            try:
                CHECKS[name](case, *[monkeypatch] * wanted)
            except Exception as error:
                broken[name] = error
    if broken:
        raise ExceptionGroup(f"{case.name} breaks: {', '.join(broken)}", list(broken.values()))
