"""Public stages and functions on frames with random flaws: which calls end in an error that does not say what is wrong?

    python benchmarks/fuzz.py [--calls 10000] [--seed 0] [--only NAME] [--show 20]

Every stage of ``tests/contract_cases.py``, and every function of :func:`functions`, is called with its own example frame, which
gets one to three flaws: other dtypes, missing or repeated columns, cells of a wrong kind, no rows, repeated rows, odd indexes.
The outcome of a call is one of these:

- fine: a result;
- clear: ``InputError``, or PyTerrier's ``InputValidationError``, in one line that names the stage or function;
- obscure: any other exception, or a message that does not name the stage or function;
- different: the only flaws were other dtypes, and the result differs from that of the frame without flaws;
- changed: the call modified the frame that it was given.

The same seed gives the same calls. The exit status is 1 if a call was obscure, different or changed.
"""

import argparse
import random
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyterrier_debias import (
    AddJudged,
    Answerability,
    AnswerPositions,
    ARaB,
    ARaBEvaluator,
    BalancedPairs,
    Collection,
    CrossEncoder,
    Disparity,
    ExcludeNegatives,
    ExpectedNDCG,
    FaiRR,
    HiddenJudgements,
    InputError,
    LinguisticComplexity,
    MATSProbe,
    NFaiRR,
    OnlyJudged,
    OverQueries,
    PlantedRanker,
    PositionSensitivity,
    QueryGroupGap,
    SurvivorshipCurve,
    SurvivorshipSubset,
    Training,
    WordingSensitivity,
    intervene,
)
from pyterrier_debias.core.stage import parts_of
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.gender.training import balanced
from pyterrier_debias.pooling.data.relabel import relabel
from pyterrier_debias.pooling.measures.unjudged import infer_judgements, leave_one_out
from pyterrier_debias.survivorship.data.annotations import check_annotations
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks
from pyterrier_debias.survivorship.training.rank_filtered import training_subsets
from tests import contract_cases

Frame = pd.DataFrame
#: Values that no column, or not every column, can take.
CELLS = [
    None, np.nan, pd.NA, pd.NaT, np.inf, -np.inf, 0, -1, 1.5, 1e308, 2**63, 10**30, True, 2j,
    "", " ", "\n", "7", "1e5", "x\0y", "\ud800", "caf\u00e9", "\u0915\u093f", "\U0001f600", "word " * 300, "a" * 3000,
    b"d1", Decimal("2.5"), pd.Timestamp(0), (1, 2), [], ["a"], {}, {"a": 1.0}, {3}, np.zeros(2), np.array(["a", "b"]), object,
]  # fmt: skip
#: Columns that some stages read and others write.
NAMES = [
    "qid", "query", "docno", "text", "score", "rank", "label", "docid", "title", "query_0", "gender", "complexity",
    "rotation", "query_vec", "profile.a", "answer", "start", "name", "measure", "value", "features", "index", "level_0",
    "passage", "arm", "draw", "group", "",
]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A stage or function that takes a frame.

    Attributes:
        name: Name in the output, and for ``--only``.
        run: The function that is called with a frame.
        frame: A frame without flaws.
        known_as: Names; the message of an error must contain one of them.
    """

    name: str
    run: Callable[[Frame], Any]
    frame: Frame
    known_as: tuple[str, ...]


# Flaws that keep the content of a frame.


def with_dtype(rng: random.Random, frame: Frame) -> Frame:
    def other(column: pd.Series) -> pd.Series:
        kinds: list[Any] = ["category", object]
        if column.map(lambda value: isinstance(value, str)).all():
            kinds += ["string", "string[pyarrow]", pd.StringDtype("python"), "large_string[pyarrow]"]
        elif pd.api.types.is_numeric_dtype(column):
            kinds += ["Float64", "double[pyarrow]"]
        elif not column.map(pd.api.types.is_hashable).all():
            kinds = [object]
        return column.astype(rng.choice(kinds))

    return pd.concat([other(frame.iloc[:, i]) for i in range(frame.shape[1])], axis=1) if frame.shape[1] else frame


def nullable(rng: random.Random, frame: Frame) -> Frame:
    return frame.convert_dtypes(dtype_backend=rng.choice(["numpy_nullable", "pyarrow"]))


def numbers_as_text(rng: random.Random, frame: Frame) -> Frame:
    return frame.assign(**{name: [str(value) for value in frame[name].tolist()] for name in ("score", "rank") if name in frame})


# Flaws that change the content of a frame.


def bad_cell(rng: random.Random, frame: Frame) -> Frame:
    if not frame.size:
        return frame
    row, column = rng.randrange(len(frame)), rng.randrange(frame.shape[1])
    values = frame.iloc[:, column].tolist()
    values[row] = rng.choice(CELLS)
    return replaced(frame, column, values)


def bad_column(rng: random.Random, frame: Frame) -> Frame:
    if not frame.size:
        return frame
    return replaced(frame, rng.randrange(frame.shape[1]), [rng.choice(CELLS)] * len(frame))


def replaced(frame: Frame, column: int, values: list) -> Frame:
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None] * len(values)
    for row, value in enumerate(values):
        cells[row] = value
    columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
    columns[column] = pd.Series(cells, index=frame.index, name=columns[column].name)
    return pd.concat(columns, axis=1)


def without_column(rng: random.Random, frame: Frame) -> Frame:
    return frame.drop(columns=rng.choice(list(frame.columns))) if frame.shape[1] else frame


def repeated_column(rng: random.Random, frame: Frame) -> Frame:
    if not frame.shape[1]:
        return frame
    return pd.concat([frame, frame.iloc[:, [rng.randrange(frame.shape[1])]]], axis=1)


def other_label(rng: random.Random, frame: Frame) -> Frame:
    if not frame.shape[1]:
        return frame
    labels = list(frame.columns)
    labels[rng.randrange(len(labels))] = rng.choice([0, 1.5, None, ("a", "b"), b"qid", *NAMES])
    return frame.set_axis(pd.Index(labels, tupleize_cols=False), axis=1)


def further_column(rng: random.Random, frame: Frame) -> Frame:
    label = rng.choice([*NAMES, 0, 1, None, ("a", "b")])
    values = pd.Series(rng.choices([1, 2.5, "x", "", None, [1], True], k=len(frame)), index=frame.index, dtype=object, name=label)
    return pd.concat([frame, values], axis=1) if label not in frame.columns else frame


def levels_of_columns(rng: random.Random, frame: Frame) -> Frame:
    if not frame.shape[1]:
        return frame
    return frame.set_axis(pd.MultiIndex.from_tuples([("a", name) for name in frame.columns], names=["x", "y"]), axis=1)


def no_rows(rng: random.Random, frame: Frame) -> Frame:
    return frame.iloc[:0]


def one_row(rng: random.Random, frame: Frame) -> Frame:
    return frame.iloc[rng.randrange(len(frame)) :][:1] if len(frame) else frame


def nothing(rng: random.Random, frame: Frame) -> Frame:
    return rng.choice([pd.DataFrame(), pd.DataFrame(index=range(3))])


def repeated_rows(rng: random.Random, frame: Frame) -> Frame:
    return pd.concat([frame, frame.iloc[: rng.randint(1, 3)]])


def other_order(rng: random.Random, frame: Frame) -> Frame:
    return frame.sample(frac=1, random_state=rng.randrange(1000))


def other_index(rng: random.Random, frame: Frame) -> Frame:
    rows = len(frame)
    index = rng.choice(
        [
            pd.Index([0] * rows), pd.Index([np.nan] * rows), pd.Index(["a"] * rows),
            pd.Index(range(rows, 0, -1), name=rng.choice(["qid", "docno"])),
            pd.MultiIndex.from_tuples([(0, i % 2) for i in range(rows)], names=["qid", "docno"]),
            pd.Index([f"r{i}" for i in range(rows)], name="text"), pd.date_range("2020", periods=rows),
        ]
    )  # fmt: skip
    return frame.set_axis(index)


def single(frame: Frame, names: Iterable[Any]) -> list[str]:
    """The names that are the label of exactly one column."""
    return [name for name in names if isinstance(name, str) and list(frame.columns).count(name) == 1]


def one_value(rng: random.Random, frame: Frame) -> Frame:
    names = single(frame, ("qid", "docno", "query", "text", "score", "rank", "label"))
    if not names or not len(frame):
        return frame
    name = rng.choice(names)
    return frame.assign(**{name: [frame[name].iloc[0]] * len(frame)})


def odd_numbers(rng: random.Random, frame: Frame) -> Frame:
    names = single(frame, frame.select_dtypes("number").columns)
    if not names:
        return frame
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e300, 5e-324, -7, 2.0**70]
    return frame.assign(**{rng.choice(names): rng.choices(odd, k=len(frame))})


def numeric_ids(rng: random.Random, frame: Frame) -> Frame:
    names = single(frame, ("qid", "docno"))
    kind = rng.choice([int, float, object, "Int64", "int64[pyarrow]"])
    return frame.assign(**{name: pd.Series(pd.factorize(frame[name])[0], index=frame.index).astype(kind) for name in names})


#: Flaws that do not change the result.
LOSSLESS = [with_dtype, nullable, numbers_as_text]
FLAWS = [
    *LOSSLESS, bad_cell, bad_cell, bad_cell, bad_column, without_column, repeated_column, other_label, further_column,
    levels_of_columns, no_rows, one_row, nothing, repeated_rows, other_order, other_index, one_value, odd_numbers, numeric_ids,
]  # fmt: skip


def flawed(rng: random.Random, frame: Frame) -> tuple[Frame, list[str], bool]:
    """A frame with one to three flaws, the names of the flaws, and whether its meaning is unchanged."""
    chosen = [rng.choice(FLAWS) for _ in range(rng.choice([1, 1, 2, 3]))]
    done = []
    for flaw in chosen:
        try:
            frame = flaw(rng, frame)
        except Exception:  # an earlier flaw leaves no room for this one
            continue
        done.append(flaw)
    return frame, [flaw.__name__ for flaw in done], bool(done) and all(flaw in LOSSLESS for flaw in done)


def fingerprint(frame: Frame) -> tuple:
    """The content of a frame as text."""
    columns = [list(map(repr, frame.iloc[:, i].tolist())) for i in range(frame.shape[1])]
    return repr(frame.columns), list(map(str, frame.dtypes)), repr(frame.index), columns


def same_content(left: Any, right: Any) -> bool:
    """Whether two results have the same content, whatever their dtypes."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same_content, left, right))
    if not isinstance(left, Frame):
        return repr(left) == repr(right)
    if list(left.columns) != list(right.columns) or len(left) != len(right):
        return False
    for name in left.columns:
        for one, other in zip(left[name].tolist(), right[name].tolist(), strict=True):
            numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
            if numbers and not np.isclose(one, other, equal_nan=True, rtol=0, atol=1e-6):
                return False
            if not numbers and repr(one) != repr(other) and not (pd.api.types.is_scalar(one) and pd.isna(one) and pd.isna(other)):
                return False
    return True


def names_of(stage: pt.Transformer) -> tuple[str, ...]:
    """The names that a stage's error may use: that of its class, or of a stage that it calls."""
    return (type(stage).__name__, *(name for part in parts_of(stage) for name in names_of(part)))


def stages(only: str) -> list[Call]:
    """The public stages whose names match a regular expression."""
    made = [(case.name, case.make(), case.frame()) for case in contract_cases.CASES if re.search(only, case.name)]
    return [Call(name, stage.transform, frame, (name.split(".")[0], *names_of(stage))) for name, stage, frame in made]


TOPICS, JUDGED, RUN = contract_cases.topics(), contract_cases.JUDGED, contract_cases.RESULTS
SHOWN, LABELS, ASKED = (getattr(contract_cases.survivorship, name) for name in ("SHOWN", "LABELS", "ASKED"))


def a_collection(**frames: Any) -> Collection:
    """The toy collection, with some of its frames replaced."""
    given = {"corpus": contract_cases.CORPUS, "topics": TOPICS, "qrels": JUDGED, **frames}
    return Collection("toy", **{**given, "topics": {"test": given["topics"]}, "qrels": {"test": given["qrels"]}})


def values_of(measure: Any, run: Frame) -> list[tuple[str, float]]:
    """A measure's values of a run, computed as ``pt.Evaluate`` does."""
    named = {"qid": "query_id", "docno": "doc_id"}
    qrels = JUDGED.rename(columns={**named, "label": "relevance"})
    return [(value.query_id, value.value) for value in measure.runtime_impl(qrels, run.rename(columns=named))]


def functions() -> list[Call]:
    """Functions other than ``transform`` that take frames: evaluations, readers of judgements, constructors."""
    texts, women, blank = contract_cases.texts(), contract_cases.women(), RUN.drop(columns=["score", "rank"])
    planted, values, passages = PlantedRanker(), contract_cases.values(), contract_cases.CORPUS[["docno", "text"]]
    pairs = BalancedPairs()(contract_cases.profiled())
    runs = {"a": RUN, "b": RUN.assign(score=RUN["score"] % 3)}
    answered = contract_cases.survivorship.answerable(60, 1)[0]
    groups = TOPICS.assign(gender=["female", "male"])
    dots = values[["qid", "complexity"]].assign(qid=["q1", "q2", "q3", "q4"])
    codes = pd.DataFrame({"qid": ["a", "b", "a", "b"], "annotator": ["x", "x", "y", "y"], "code": [0, 3, 1, 3]})
    found = JUDGED.assign(docno=["d0", "d5", "d2"])
    sensitivity, wording = PositionSensitivity(planted, draws=1), WordingSensitivity(planted, rewrites=["keywords"], resamples=9)
    subset = SurvivorshipSubset(SHOWN, LABELS)
    disparity, bare = Disparity(resamples=9), values.drop(columns="complexity")
    calls: list[tuple[str, Callable[[Frame], Any], Frame]] = [
        ("Collection(corpus)", lambda frame: a_collection(corpus=frame).text_loader()(blank), passages),
        ("Collection(topics)", lambda frame: a_collection(topics=frame).get_topics(), TOPICS),
        ("Collection(qrels)", lambda frame: a_collection(qrels=frame).get_qrels(), JUDGED),
        ("Collection(candidates)", lambda frame: a_collection(candidates=frame).get_candidates(), RUN),
        ("TextLoader(corpus)", lambda frame: TextLoader(frame)(blank), passages),
        ("AddJudged(qrels)", lambda frame: AddJudged(frame)(blank), JUDGED),
        ("OnlyJudged(qrels)", lambda frame: OnlyJudged(frame)(RUN), JUDGED),
        ("SurvivorshipSubset(candidates)", lambda frame: SurvivorshipSubset(frame, LABELS)(ASKED), SHOWN),
        ("SurvivorshipSubset(qrels)", lambda frame: SurvivorshipSubset(SHOWN, frame)(ASKED), LABELS),
        ("SurvivorshipCurve.evaluate", lambda frame: curve().evaluate(frame).table, ASKED),
        ("SurvivorshipCurve(systems)", lambda frame: curve(systems={"mine": frame}).evaluate(ASKED).table, curve_run()),
        ("SurvivorshipCurve(candidates)", lambda frame: curve(candidates=frame).evaluate(ASKED).table, SHOWN),
        ("SurvivorshipCurve(qrels)", lambda frame: curve(qrels=frame).evaluate(ASKED).table, LABELS),
        ("PositionSensitivity.evaluate", lambda frame: sensitivity.evaluate(frame, JUDGED).table, texts),
        ("PositionSensitivity.evaluate(qrels)", lambda frame: sensitivity.evaluate(texts, frame).table, JUDGED),
        ("WordingSensitivity.evaluate", lambda frame: wording.evaluate(frame, JUDGED).table, texts),
        ("WordingSensitivity.evaluate(qrels)", lambda frame: wording.evaluate(texts, frame).table, JUDGED),
        ("WordingSensitivity.evaluate(topics)", lambda frame: wording.evaluate(texts, JUDGED, topics=frame).table, TOPICS),
        ("Disparity.evaluate", lambda frame: disparity.evaluate(frame).table, values),
        ("Disparity.evaluate(topics)", lambda frame: disparity.evaluate(bare, frame).table, values[["qid", "complexity"]]),
        ("ARaBEvaluator.evaluate", lambda frame: ARaBEvaluator([2]).evaluate(frame).table, women),
        ("ARaBEvaluator.evaluate(topics)", lambda frame: ARaBEvaluator([2]).evaluate(women, frame).table, TOPICS),
        ("ARaBEvaluator.contributions", lambda frame: ARaBEvaluator([2]).contributions(frame), women),
        ("ARaB", lambda frame: values_of(ARaB() @ 2, frame), women),
        ("FaiRR", lambda frame: values_of(FaiRR() @ 2, frame), women),
        ("NFaiRR(background)", lambda frame: values_of(NFaiRR(background=frame) @ 2, women), women),
        ("QueryGroupGap(groups)", lambda frame: values_of(gap_between(frame) @ 2, women), groups),
        ("OverQueries(complexity)", lambda frame: values_of(OverQueries(pt.measures.nDCG @ 2, "gap", frame), RUN), dots),
        ("ExpectedNDCG(judgements)", lambda frame: values_of(ExpectedNDCG(frame) @ 2, RUN), JUDGED),
        ("augment_balanced(topics)", lambda frame: balanced.augment_balanced(frame, JUDGED, pairs, 0.5), TOPICS),
        ("augment_balanced(qrels)", lambda frame: balanced.augment_balanced(TOPICS, frame, pairs, 0.5), JUDGED),
        ("augment_balanced(pairs)", lambda frame: balanced.augment_balanced(TOPICS, JUDGED, frame, 0.5), pairs),
        ("infer_judgements(run)", lambda frame: infer_judgements(frame, JUDGED), RUN),
        ("infer_judgements(qrels)", lambda frame: infer_judgements(RUN, frame), JUDGED),
        ("leave_one_out(run)", lambda frame: leave_one_out({**runs, "a": frame}, JUDGED), RUN),
        ("leave_one_out(qrels)", lambda frame: leave_one_out(runs, frame), JUDGED),
        ("relabel(candidates)", lambda frame: relabel(frame, JUDGED, planted), texts),
        ("relabel(qrels)", lambda frame: relabel(texts, frame, planted), JUDGED),
        ("HiddenJudgements(qrels)", lambda frame: HiddenJudgements(frame, RUN).pooled, found),
        ("HiddenJudgements(pool_run)", lambda frame: HiddenJudgements(found, frame).pooled, RUN),
        ("HiddenJudgements.evidence", lambda frame: HiddenJudgements(found, RUN).evidence(frame), RUN),
        ("ExcludeNegatives(pairs)", lambda frame: sorted(ExcludeNegatives(frame).pairs), JUDGED),
        ("LinguisticComplexity.fit", lambda frame: LinguisticComplexity().fit(frame)(TOPICS), TOPICS),
        ("LinguisticComplexity.report", lambda frame: LinguisticComplexity().report(frame), TOPICS),
        ("Answerability.fit", lambda frame: Answerability().fit(frame)(answered.head(3)), answered),
        ("Answerability.evaluate", lambda frame: Answerability().fit(answered).evaluate(frame).table, answered.head(12)),
        ("training_subsets", lambda frame: [part.frame for part in training_subsets(frame, subset, [1, None])], ASKED),
        ("first_relevant_ranks(candidates)", lambda frame: first_relevant_ranks(frame, LABELS), SHOWN),
        ("first_relevant_ranks(qrels)", lambda frame: first_relevant_ranks(SHOWN, frame), LABELS),
        ("check_annotations", check_annotations, codes),
        ("AnswerPositions.measure", lambda frame: AnswerPositions().measure(frame).frame, contract_cases.answers()),
        ("MATSProbe.mats", lambda frame: MATSProbe(contract_cases.blind).mats(frame), passages),
        ("intervene(candidates)", lambda frame: intervene(planted, frame, passages={"up": str.upper}, resamples=9).table, texts),
        ("CrossEncoder.fit(candidates)", lambda frame: trained(frame, found), texts),
        ("CrossEncoder.fit(qrels)", lambda frame: trained(texts, frame), found),
    ]  # fmt: skip
    others = {
        "Collection": ("toy", "TextLoader"), "SurvivorshipCurve": ("SurvivorshipSubset",), "infer_judgements": ("run ",),
        "QueryGroupGap": ("lexicon 'groups'",), "leave_one_out": ("run ",), "check_annotations": ("annotations",),
        "OverQueries": ("gap(",), "relabel": ("PlantedRanker",), "training_subsets": ("SurvivorshipSubset",),
        "intervene": ("PlantedRanker",),
    }  # fmt: skip
    known_as = [(own := re.split(r"[.(]", name)[0], *others.get(own, ())) for name, _, _ in calls]
    return [Call(*call, names) for call, names in zip(calls, known_as, strict=True)]


def curve_run() -> Frame:
    return contract_cases.survivorship.RESULTS


def curve(**more: Any) -> SurvivorshipCurve:
    given = {"systems": {"mine": curve_run()}, "candidates": SHOWN, "qrels": LABELS, **more}
    return SurvivorshipCurve(**given, ranks=3, resamples=9)


def gap_between(groups: Frame) -> QueryGroupGap:
    return QueryGroupGap(lexicon={"tea": ["tea", "water"]}, category="tea", groups=groups)


def trained(candidates: Frame, qrels: Frame) -> Frame:
    ranker = CrossEncoder(contract_cases.folder("build"), training=Training(max_steps=1, batch_size=2))
    return ranker.fit(candidates, qrels)(contract_cases.texts())


def run_call(call: Call, expected: Callable[[], Any], seed: str) -> tuple[str, str, list[str]]:
    """Make one call; returns its outcome, the error and its place, and the flaws."""
    rng = random.Random(seed)
    frame, flaws, lossless = flawed(rng, call.frame)
    before = fingerprint(frame)
    ended, detail = "fine", ""
    try:
        result = call.run(frame)
        if lossless and not same_content(expected(), result):
            ended = "different"
    except (InputError, pt.validate.InputValidationError) as error:
        message = str(error)
        named = any(name in message for name in call.known_as)
        ended = "clear" if named and (isinstance(error, pt.validate.InputValidationError) or "\n" not in message) else "obscure"
        ended, detail = ("different", message) if lossless and ended == "clear" else (ended, message)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)
        ours = [entry for entry in place if "pyterrier_debias" in entry.filename] or place
        ended = "obscure"
        detail = f"{type(error).__name__}: {error} at {ours[-1].filename.rpartition('pyterrier_debias/')[2]}:{ours[-1].lineno}"
    if fingerprint(frame) != before:
        ended = "changed"
    return ended, detail, flaws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="regular expression for the names of calls; other calls are left out")
    parser.add_argument("--show", type=int, default=20, help="number of bad calls that are printed")
    options = parser.parse_args()
    counts, bad = fuzz(options.calls, options.seed, options.only)
    for line in bad[: options.show]:
        print(line)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("fine", "clear", "obscure", "different", "changed"))
    print(f"{sum(counts.values())} calls: {kinds}")
    sys.exit(bool(bad))


def fuzz(calls: int, seed: int = 0, only: str = "") -> tuple[Counter, list[str]]:
    """Call all stages and functions that take a frame, in turn.

    Args:
        calls: Number of calls.
        seed: Seed of the flaws.
        only: A regular expression that the names of calls must match.

    Returns:
        The number of calls by outcome, and a line for each bad call.
    """
    every = [*stages(only), *(call for call in functions() if re.search(only, call.name))]
    expected = [cache(lambda call=call: call.run(call.frame)) for call in every]
    counts: Counter = Counter()
    bad = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(calls):
            which = number % len(every)
            ended, detail, flaws = run_call(every[which], expected[which], f"{seed}:{every[which].name}:{number}")
            counts[ended] += 1
            if ended not in ("fine", "clear"):
                bad.append(f"{ended}: {every[which].name} ({', '.join(flaws)}): {detail}")
    return counts, bad


if __name__ == "__main__":
    main()
