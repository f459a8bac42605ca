import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import InputError, RewriteQueries, RotatePassages
from pyterrier_debias.report.interventions import intervene

WORDS = "tea rain boats salt stone river bread glass night coal".split()


def candidates(queries=8, depth=6, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(queries):
        query = WORDS[q]
        for d in range(depth):
            text = rng.permutation([*rng.choice(WORDS, 5), query])
            rows.append({"qid": f"q{q}", "query": query, "docno": f"d{q}-{d}", "text": " ".join(text)})
    return pd.DataFrame(rows)


class Early(pt.Transformer):
    """Loves passages that name the query early."""

    def __init__(self):
        self.seen = []

    def transform(self, inp):
        self.seen.append(inp)
        words = [(text.split() + [query]).index(query) for text, query in zip(inp["text"], inp["query"])]
        return pt.model.add_ranks(inp.assign(score=[-float(w) for w in words]))


class Bag(pt.Transformer):
    """Counts words wherever they stand."""

    def transform(self, inp):
        counts = [len(set(q.split()) & set(t.split())) for t, q in zip(inp["text"], inp["query"])]
        return pt.model.add_ranks(inp.assign(score=np.array(counts, dtype=float)))


def brute_force(frame, change):
    """Each passage changed alone, the whole list ranked anew."""
    found = {}
    for _, own in frame.groupby("qid"):
        before = order(own)
        for place in range(len(own)):
            texts = own["text"].tolist()
            texts[place] = change(texts[place])
            docno = own["docno"].iloc[place]
            found[docno] = (before.index(docno), order(own.assign(text=texts)).index(docno))
    return found


def order(own):
    scored = Early()(own)
    return scored.sort_values(["score", "docno"], ascending=False)["docno"].tolist()


def turned(text):
    return " ".join(reversed(text.split()))


def test_displacements_are_those_of_ranking_each_list_anew():
    frame = candidates()
    items = intervene(Early(), frame, passages={"turned": turned}).items
    expected = brute_force(frame, turned)
    moved = {d for d, t in zip(frame["docno"], frame["text"]) if turned(t) != t}
    assert {d: (b, a) for d, b, a in zip(items["docno"], items["before"], items["after"])} == {d: expected[d] for d in moved}


def test_a_ranker_that_does_not_look_at_positions_does_not_move():
    found = intervene(Bag(), candidates(), passages={"rotated": RotatePassages(seed=1)})
    row = found.table.iloc[0]
    assert row["displacement"] == 0 and np.isnan(row["p"]) and row["down"] == row["up"] == 0 and row["score_change"] == 0
    assert "the change never reached it" in str(found) and "nan" not in str(found)


def test_the_test_is_paired_by_query():
    frame = candidates(queries=10)
    judged = frame.groupby("qid").head(2)[["qid", "docno"]].assign(label=[1, 0] * 10)
    found = intervene(Early(), frame, passages={"late": lambda t: t + " end", "turned": turned}, items=judged, resamples=999)
    assert set(found.items["docno"]) <= set(judged.query("label == 1")["docno"])
    row = found.table.set_index("change").loc["turned"]
    own = found.items.query("change == 'turned'")
    means = own.groupby("qid")["displacement"].mean()
    assert row["displacement"] == pytest.approx(means.mean()) and row["n"] == len(means) and row["items"] == len(own)
    # All 2^10 sign patterns are more than 999 resamples, so that p is a sample of what scipy enumerates.
    peer = stats.permutation_test((means,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert row["p"] == pytest.approx(peer, abs=0.06)
    late = found.table.set_index("change").loc["late"]
    assert late["score_change"] == 0 and np.isnan(late["p_corrected"])


def test_an_interval_that_is_not_defined_is_left_out_of_the_sentence():
    found = intervene(Early(), candidates(queries=1), passages={"turned": turned})
    row = found.table.iloc[0]
    assert row["n"] == 1 and np.isnan(row["low"]) and row["displacement"] != 0
    own = found.items[found.items["displacement"] != 0]
    assert "ranks on average; " in str(found) and "[" not in str(found) and "nan" not in str(found)
    (one,) = own["docno"].tolist()[:1]
    alone = str(intervene(Early(), candidates(queries=1), passages={"turned": turned}, items=own[own["docno"] == one]))
    assert alone.startswith("turned: 1 item of 1 query moves ") and "ranks; " in alone
    several = intervene(Early(), candidates(), passages={"turned": turned})
    displacement, low, high = several.table.loc[0, ["displacement", "low", "high"]]
    assert displacement < 0, "up by: the interval is that of the size, too"
    assert f"up by {-displacement:.2f} ranks on average [{-high:+.2f}, {-low:+.2f}]; " in str(several)


def test_a_reworded_query_reorders_its_whole_list():
    frame = candidates()
    found = intervene(Bag(), frame, queries={"framed": RewriteQueries("question_frame"), "shout": str.upper})
    assert found.items.query("change == 'shout'").groupby("qid")["displacement"].sum().eq(0).all()
    framed = found.items.query("change == 'framed'")
    assert (framed["kind"] == "query").all() and set(framed["qid"]) == set(frame["qid"])
    one = frame[frame["qid"] == "q0"]
    after = Bag()(one.assign(query="TEA")).sort_values(["score", "docno"], ascending=False)["docno"].tolist()
    got = found.items.query("change == 'shout' and qid == 'q0'")
    assert dict(zip(got["docno"], got["after"])) == {d: i for i, d in enumerate(after)}


def test_no_cache_can_hide_a_change_and_names_come_back():
    ranker = Early()
    frame = candidates(2)
    found = intervene(ranker, frame, passages={"turned": turned}, queries={"shout": str.upper})
    seen = pd.concat(ranker.seen)
    assert not seen.duplicated(["qid", "docno"]).any()
    assert set(found.items["docno"]) <= set(frame["docno"])


@pytest.mark.parametrize("name", ["original", "", "i1", "q0"])
def test_a_change_may_have_any_name(name):
    changes = {"other": lambda text: text.replace("coal", "ash"), "turned": turned}
    expected = intervene(Early(), candidates(), passages=changes)
    found = intervene(Early(), candidates(), passages={"other": changes["other"], name: turned})
    for one, other in ((found.items, expected.items), (found.table, expected.table)):
        pd.testing.assert_frame_equal(one, other.assign(change=other["change"].replace("turned", name)))


def test_the_order_of_rows_makes_no_difference():
    frame = candidates()
    shuffled = frame.sample(frac=1, random_state=3)
    one = intervene(Early(), frame, passages={"turned": turned})
    other = intervene(Early(), shuffled, passages={"turned": turned})
    pd.testing.assert_frame_equal(one.table, other.table)


def test_items_that_a_change_leaves_alone_are_counted_apart():
    found = intervene(Early(), candidates(3), passages={"nothing": lambda t: t, "swap": lambda t: t.replace("coal", "ash")})
    rows = found.table.set_index("change")
    assert rows.loc["nothing", "items"] == 0 and rows.loc["nothing", "unchanged"] == 18 and np.isnan(rows.loc["nothing", "p"])
    assert rows.loc["swap", "items"] + rows.loc["swap", "unchanged"] == 18
    assert "no passage was changed" in str(found)


def test_no_candidates():
    ranker = Early()
    none, changes = candidates().iloc[:0], {"keywords": RewriteQueries("keywords")}
    found = intervene(ranker, none, passages={"turned": turned}, queries=changes)
    assert found.items.empty and found.table["n"].tolist() == [0, 0] and ranker.seen == []


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (candidates(), {}, "there is no change"),
        (candidates(), {"passages": {"a": turned}, "queries": {"a": turned}}, "'a' is a change of passages and"),
        (candidates(), {"passages": {"a": 3}}, "change 'a' is an int"),
        (candidates(), {"passages": {"a": lambda t: None}}, "returned None as 'text'"),
        (candidates(), {"passages": {"a": pt.apply.generic(lambda df: df.head(1))}}, "returned 1 rows for 48"),
        (candidates().assign(text=None), {"passages": {"a": turned}}, "column 'text' has no value at row 0"),
        (pd.concat([candidates()] * 2), {"passages": {"a": turned}}, "more than once"),
    ],
)
def test_what_cannot_be_changed(frame, options, message):
    with pytest.raises(InputError, match=message):
        intervene(Early(), frame, **options)


def test_a_ranker_that_cuts_its_list():
    with pytest.raises(InputError, match="left out 32 of 48 candidates, so they"):
        intervene(Early() % 2, candidates(), passages={"a": turned})


def test_a_ranker_that_leaves_out_what_was_changed():
    def whole(inp):
        return Early()(inp[~inp["text"].str.endswith(".") & ~inp["query"].str.endswith("?")])

    ranker = pt.apply.generic(whole)
    with pytest.raises(InputError, match="left out 48 of 48 candidates after the change 'stop'"):
        intervene(ranker, candidates(), passages={"stop": lambda text: f"{text} ."})
    with pytest.raises(InputError, match="left out 6 of 48 candidates after the change 'asked'"):
        intervene(ranker, candidates(), queries={"asked": lambda query: f"{query}?" if query == WORDS[0] else query})


def test_labels_of_items_may_be_text():
    items = candidates()[["qid", "docno"]].assign(label="0")
    items.loc[:3, "label"] = "1"
    assert len(intervene(Early(), candidates(), passages={"a": turned}, items=items).items) == 4


def test_an_expression_for_terrier_is_no_query_to_rewrite():
    frame = candidates(2).assign(query="applypipeline:off tea^0.036")
    with pytest.warns(UserWarning, match=r"intervene: .*'applypipeline:off tea\^0.036'.*pt.rewrite.reset\(\)"):
        intervene(pt.apply.generic(lambda inp: inp.assign(score=1.0)), frame, queries={"louder": str.upper})
