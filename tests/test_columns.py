"""A missing column: which stage, which column, what to put before it."""

import pickle

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import CrossEncoder, HiddenJudgements, InputError, PositionSensitivity, RotatePassages
from pyterrier_debias.core.columns import MissingColumnError
from pyterrier_debias.core.frames import with_grades
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.systems import check_run
from tests.contract_cases import CASES, RESULTS

REMEDIES = {"text": "dataset.text_loader()", "query": "rename(columns=", "docno": "retriever >> ..."}
LOADER = r"dataset\.text_loader\(\)"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_stage_names_the_remedy(case):
    """Whichever of its columns is missing."""
    stage, frame = case.make(), case.frame()
    told = 0
    for column in ("qid", "query", "docno", "text", "score", "label", "gender", "complexity", "answer"):
        if column not in frame.columns:
            continue
        try:
            stage(frame.drop(columns=column).head(0))
        except MissingColumnError as error:
            told += 1
            assert str(error).startswith(f"{type(stage).__name__} needs ") and repr(column) in str(error)
            assert REMEDIES.get(column, column) in str(error)
            assert isinstance(error, InputError) and column in error.modes[0].missing_columns + error.modes[-1].missing_columns
        except (pt.validate.InputValidationError, KeyError) as error:  # pragma: no cover
            pytest.fail(f"{column}: {error!r}")
    assert told


@pytest.mark.parametrize("stage", [RotatePassages(), CrossEncoder("model"), PositionSensitivity(CrossEncoder("model"))], ids=repr)
def test_a_missing_text(stage):
    for run in (lambda: stage(RESULTS), lambda: (pt.Transformer.from_df(RESULTS) >> stage)(RESULTS[["qid", "query"]])):
        with pytest.raises(InputError, match=f"{type(stage).__name__} needs 'text' .*{LOADER}") as found:
            run()
        assert "TransformerMode" not in str(found.value)
    assert {"qid", "docno", "query", "text"} <= set(pt.inspect.transformer_inputs(CrossEncoder("model"))[0])


def test_other_columns_and_streams():
    with pytest.raises(InputError, match=r"CrossEncoder needs 'title', 'body' .*text_loader\(\['title', 'body'\]\)"):
        CrossEncoder("model", fields=["title", "body"])(RESULTS)
    with pytest.raises(InputError, match=rf"RotatePassages needs 'text'.*{LOADER}"):
        list(RotatePassages().transform_iter([{"docno": "d1"}]))
    with pytest.raises(InputError, match=r"column 'score' is missing.*put a retriever or a ranker before it"):
        check_run(RESULTS.drop(columns="score"), "mine")


def test_what_stages_inside_raise_is_theirs():
    class Inner(pt.Transformer):
        def transform(self, inp):
            pt.validate.result_frame(inp, extra_columns=["other"], context=self)
            return inp

    class Outer(Stage):
        def __init__(self, inner):
            self.inner = inner

        def transform(self, inp):
            return self.inner(inp)

    inner = Inner()
    with pytest.raises(pt.validate.InputValidationError, match="other") as found:
        Outer(inner)(RESULTS)
    assert not isinstance(found.value, MissingColumnError)
    with pytest.raises(MissingColumnError, match="RotatePassages needs 'text'"):
        Outer(RotatePassages() >> inner)(RESULTS)
    with pytest.raises(InputError, match=r"no column 'label'.*rename"):
        with_grades(pd.DataFrame({"qid": ["1"], "docno": ["d"], "relevance": [1]}), "example")


def test_a_constructor_tells_what_is_missing_before_its_object_has_a_text():
    run = pd.DataFrame({"qid": ["q"] * 2, "docno": ["a", "b"], "score": [2.0, 1.0]})
    with pytest.raises(InputError, match="HiddenJudgements: the judgements have no column 'docno'"):
        HiddenJudgements(run[["qid"]], run)


def test_the_error_is_the_same_in_another_process():
    with pytest.raises(MissingColumnError) as found:
        CrossEncoder("model")(RESULTS)
    again = pickle.loads(pickle.dumps(found.value))
    assert isinstance(again, MissingColumnError) and str(again) == str(found.value)
    assert [mode.missing_columns for mode in again.modes] == [["text"]]
