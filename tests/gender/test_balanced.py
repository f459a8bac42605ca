"""Balanced pairs, training data with them, the choice of a ratio, and the trade at query time."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.data.balanced_pairs import BalancedPairs, plot_balance, save_pairs
from pyterrier_debias.gender.data.query_gender import QueryGender
from pyterrier_debias.gender.training.balanced import augment_balanced, choose_ratio
from pyterrier_debias.gender.training.neutral_reranker import NeutralReranker, normalised
from tests.gender.stereotypes import documents, labelled

# Pairs


def test_abbreviations_of_genders_are_not_those_of_other_groups():
    """"o" may be old, and "other" is then another group."""
    profiles = {"profile.x": [1.0, 1.0, 1.0, 0.2], "profile.y": [0.1, 0.3, 0.1, 1.0]}
    frame = pd.DataFrame({"qid": list("1234"), "docno": list("abcd"), **profiles})
    ages = BalancedPairs(group="age", groups=("y", "o"))(frame.assign(age=["y", "o", "other", "o"]))
    assert ages["qid"].tolist() == ["1", "2"]
    genders = BalancedPairs()(frame.assign(gender=["F", "male", "o", "m"]))
    assert sorted(genders["gender"]) == ["F", "male"]


def test_pairs_from_documents_to_matches():
    frame, stage = labelled(), BalancedPairs()
    out = stage(frame)
    assert len(out) == 40 and out["match"].tolist() == np.repeat(np.arange(20), 2).tolist()
    assert out["gender"].tolist() == ["female", "male"] * 20
    assert out["similarity"].is_monotonic_decreasing
    assert out["docno"].is_unique
    assert out.attrs["matching"]["matches"] == 20
    table = frame.set_index("docno")[["profile.work", "profile.home", "profile.money"]].to_numpy()
    places = {docno: i for i, docno in enumerate(frame["docno"])}
    for _, own in out.groupby("match"):
        a, b = (table[places[docno]] for docno in own["docno"])
        assert own["similarity"].iloc[0] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-8)
    assert "text" in out.columns
    shuffled = stage(frame.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(out, shuffled)


def test_matching_balances():
    frame = labelled(documents(900))
    women = frame[frame["gender"] == "female"].head(60)
    frame = pd.concat([women, frame[frame["gender"] != "female"]])
    stage = BalancedPairs(replacement=True)
    balance = stage.balance(frame, stage(frame)).set_index("category")
    assert (balance.loc[["work", "home"], "before"].abs() > 1).all()
    assert (balance["after"].abs() < balance["before"].abs()).all()
    tables = [frame.loc[frame["gender"] == g, "profile.work"] for g in ("female", "male")]
    expected = (tables[0].mean() - tables[1].mean()) / np.sqrt((tables[0].var() + tables[1].var()) / 2)
    assert balance.loc["work", "before"] == pytest.approx(expected, rel=1e-9)
    axes = plot_balance(balance.reset_index())
    assert [label.get_text() for label in axes.get_yticklabels()][-1] in ("work", "home")
    assert axes.get_xlabel() == "standardised mean difference (female minus male)"
    assert plot_balance(balance.reset_index(), axes) is axes
    plt.close(axes.figure)


def test_the_picture_of_balance_names_the_groups_that_were_matched():
    frame = labelled()
    stage = BalancedPairs(groups=("male", "female"))
    axes = plot_balance(stage.balance(frame, stage(frame)))
    assert axes.get_xlabel() == "standardised mean difference (male minus female)"
    plt.close(axes.figure)


def test_all_zero_profiles_and_other_groups_are_left_out_and_counted():
    frame = labelled()
    frame.loc[frame["docno"] == "d0", [c for c in frame if c.startswith("profile.")]] = 0.0
    out = BalancedPairs(min_similarity=0.99)(frame)
    about = out.attrs["matching"]
    assert about["female without a profile"] == 1 and about["female"] == 20
    assert "d0" not in set(out["docno"]) and (out["similarity"] >= 0.99).all()
    assert about["matches"] + about["below the least similarity or without a partner"] == 19


def test_a_missing_label_is_no_group():
    frame = labelled()
    missing = frame.assign(gender=frame["gender"].where(frame["gender"] != "neutral").astype("string"))
    assert missing["gender"].isna().sum() == 20
    stage = BalancedPairs()
    pd.testing.assert_series_equal(stage(missing)["docno"], stage(frame)["docno"])
    pd.testing.assert_frame_equal(stage.balance(missing, stage(missing)), stage.balance(frame, stage(frame)))


def test_an_empty_frame_and_one_group():
    frame = labelled()
    empty = BalancedPairs()(frame.iloc[:0])
    assert len(empty) == 0 and list(empty.columns) == list(BalancedPairs()(frame).columns)
    alone = BalancedPairs()(frame[frame["gender"] == "female"])
    assert len(alone) == 0 and alone.attrs["matching"]["matches"] == 0


@pytest.mark.parametrize("labels", [("f", "m"), ("Female", "MALE"), ("F", " male")])
def test_labels_in_short_and_in_any_case_are_the_same_groups(labels, caplog):
    frame, stage = labelled(), BalancedPairs()
    said = frame.assign(gender=frame["gender"].replace(dict(zip(("female", "male"), labels))))
    expected, found = stage(frame), stage(said)
    assert len(found) == 40
    pd.testing.assert_frame_equal(found.drop(columns="gender"), expected.drop(columns="gender"))
    pd.testing.assert_frame_equal(stage.balance(said, found), stage.balance(frame, expected))
    assert found["gender"].tolist() == list(labels) * 20
    pd.testing.assert_frame_equal(BalancedPairs(groups=labels)(frame), expected)
    assert not caplog.text


def test_other_labels_are_an_error_and_one_group_a_warning(caplog):
    frame = labelled()
    with pytest.raises(InputError, match="labels no row 'female' or 'male', only 'x', 'y'; name the two groups"):
        BalancedPairs()(frame.assign(gender=["x", "y"] * (len(frame) // 2)))
    BalancedPairs()(frame[frame["gender"] == "female"])
    assert "is of group male" in caplog.text


def test_complex_profiles_are_refused():
    frame = labelled()
    name = next(c for c in frame if c.startswith("profile."))
    for column in (frame[name] + 1j, (frame[name] + 1j).astype(object)):
        with pytest.raises(InputError, match=r"BalancedPairs: column 'profile\..*j\), not a number"):
            BalancedPairs()(frame.assign(**{name: column}))


def test_what_cannot_be_matched():
    frame = labelled()
    with pytest.raises(InputError, match="LexiconProfiles"):
        BalancedPairs()(documents().assign(gender="female"))
    with pytest.raises(InputError, match="method='best'"):
        BalancedPairs(method="best")(frame)
    with pytest.raises(InputError, match="two different groups"):
        BalancedPairs(groups=("a", "a"))(frame)
    with pytest.raises(InputError, match="occurs twice"):
        BalancedPairs()(pd.concat([frame, frame]))
    with pytest.raises(InputError, match="not a number"):
        BalancedPairs(columns=["text"])(frame)


def test_saved_pairs_tell_no_gender_unless_asked(tmp_path):
    out = BalancedPairs()(labelled())
    save_pairs(out, tmp_path / "pairs.tsv")
    read = pd.read_csv(tmp_path / "pairs.tsv", sep="\t")
    assert not [c for c in read if c.startswith(("gender", "profile"))]
    assert sorted(read["docno"]) == sorted(out["docno"])
    first = dict(zip(out["docno"], out["gender"]))
    share = np.mean([first[docno] == "female" for docno in read["docno"][::2]])
    assert 0.2 < share < 0.8  # the order does not tell it either
    save_pairs(out, tmp_path / "labelled.tsv", keep_labels=True)
    assert pd.read_csv(tmp_path / "labelled.tsv", sep="\t")["gender"].tolist() == out["gender"].tolist()
    with pytest.raises(InputError, match="tab or line break"):
        save_pairs(out.assign(text="a\tb"), tmp_path / "bad.tsv")
    with pytest.raises(InputError, match=r"save_pairs.*match"):
        save_pairs(labelled(), tmp_path / "bad.tsv")


def test_labels_and_profiles_of_other_names_are_not_saved_either(tmp_path):
    """The group's column and the profile's were written, as they are called neither ``gender`` nor ``profile.``."""
    frame = labelled()
    frame = frame.rename(columns={c: c.replace("profile.", "share of ").replace("gender", "sex") for c in frame})
    frame = frame.drop(columns=[c for c in frame if c.startswith("sex_")])
    out = BalancedPairs(group="sex", columns="share of ")(frame)
    save_pairs(out, tmp_path / "pairs.tsv")
    read = pd.read_csv(tmp_path / "pairs.tsv", sep="\t")
    assert set(read) == set(out) - {"sex", *(c for c in out if c.startswith("share of "))} and len(read) == len(out)
    topics, qrels = original()
    more, _ = augment_balanced(topics.assign(sex="x"), qrels, out, 0.5)
    assert more["sex"].isna().tolist() == [False] * 40 + [True] * (len(more) - 40) and len(more) > 40


def test_profiles_of_hundreds_of_columns():
    """Which pandas would complain about, were they added one by one; warnings are errors here."""
    frame = QueryGender()(documents())
    profiles = np.random.default_rng(0).random((len(frame), 150))
    wide = pd.DataFrame(profiles, columns=[f"profile.category{i}" for i in range(150)], index=frame.index)
    assert len(BalancedPairs()(pd.concat([frame, wide], axis=1))) == 40


# Training data


def original(n=40):
    topics = pd.DataFrame({"qid": [str(i) for i in range(n)], "query": [f"query {i}" for i in range(n)]})
    return topics, pd.DataFrame({"qid": topics["qid"], "docno": [f"d{i}" for i in range(n)], "label": 1})


@pytest.mark.parametrize("ratio", [0, 0.05, 0.25, 0.5, 1.0])
def test_half_of_what_is_added_is_of_each_group(ratio):
    pairs = BalancedPairs()(labelled())
    topics, qrels = augment_balanced(*original(), pairs, ratio)
    added = topics.iloc[40:]
    assert len(added) == 2 * round(ratio * 40 / 2) == len(qrels) - 40
    gender = dict(zip(pairs["qid"], pairs["gender"]))
    genders = added["qid"].str.removeprefix("balanced-").map(gender)
    assert (genders == "female").sum() == (genders == "male").sum() == len(added) / 2
    assert set(qrels["qid"]) == set(topics["qid"]) and (qrels["label"] == 1).all()
    assert list(topics.columns) == ["qid", "query"]
    labelled_topics, _ = augment_balanced(*original(), pairs, ratio, keep_labels=True)
    assert ratio == 0 or labelled_topics["gender"].iloc[40:].notna().all()


@pytest.mark.parametrize(("ratio", "added"), [(0.05, 0), (0.1, 2), (0.25, 2), (0.3, 4), (0.5, 6), (0.7, 8), (np.float32(0.5), 6)])
def test_ten_pairs_round_halves_upwards(ratio, added):
    pairs = BalancedPairs()(labelled())
    assert len(augment_balanced(*original(10), pairs, ratio)[1]) == 10 + added


def test_all_pairs_where_more_are_asked_for(caplog):
    pairs = BalancedPairs()(labelled())
    topics, qrels = augment_balanced(*original(), pairs, 5, on_short="all")
    assert len(topics) == len(qrels) == 80
    assert "needs 100 matches, but there are only 20; all are added, which is a ratio of 1" in caplog.text
    caplog.clear()
    assert len(augment_balanced(*original(), pairs, 0.5, on_short="all")[0]) == 60 and not caplog.text


def test_larger_ratios_add_to_smaller_ones_and_order_does_not_matter():
    pairs = BalancedPairs()(labelled())
    few, many = (set(augment_balanced(*original(), pairs, r)[0]["qid"]) for r in (0.25, 0.75))
    assert few < many
    assert set(augment_balanced(*original(), pairs.iloc[::-1], 0.25)[0]["qid"]) == few
    assert set(augment_balanced(*original(), pairs, 0.25, seed=1)[0]["qid"]) != few


def test_matches_are_drawn_by_their_names_alone():
    """Against one hash a match, of its two pairs in the order of their names."""
    pairs = BalancedPairs()(labelled())
    pairs = pairs.assign(match=[f"m{(7 * i) % 20:02}" for i in pairs["match"]]).sample(frac=1, random_state=3)
    found = augment_balanced(*original(), pairs, 0.4, seed=6)[0]["qid"].iloc[40:]
    keys = {
        name: keyed_hash(6, "match", *sorted(f"{q}\0{d}" for q, d in zip(own["qid"], own["docno"])))
        for name, own in pairs.groupby("match")
    }
    chosen = sorted(keys, key=keys.get)[:8]
    assert found.tolist() == ("balanced-" + pairs.loc[pairs["match"].isin(chosen), "qid"]).tolist()
    lost = pairs.assign(match=pairs["match"].where(pairs["match"] != "m00"))  # rows of no match are left out
    assert augment_balanced(*original(), lost, 0.9)[0]["qid"].nunique() == 40 + 36


def test_what_cannot_be_added():
    pairs = BalancedPairs()(labelled())
    for given, ratio, words in (
        (pairs, -1, "ratio=-1"),
        (pairs, 1.1, "at most 1,"),
        (pairs, True, "ratio=True"),
        (pairs, "1", "ratio='1'"),
        (pairs.iloc[1:], 0.5, "match 0 has 1 rows"),
        (pairs.assign(match=[b"0", *pairs["match"].iloc[1:]]), 0.5, "column 'match' is a bytes, not a name"),
    ):
        with pytest.raises(InputError, match=words):
            augment_balanced(*original(), given, ratio)
    with pytest.raises(InputError, match="on_short='most' is not known"):
        augment_balanced(*original(), pairs, 0.5, on_short="most")
    with pytest.raises(InputError, match="already among the topics; give another prefix"):
        augment_balanced(*original(), pairs.assign(qid=[str(i) for i in range(40)]), 1.0, prefix="")


# The choice of a ratio


def test_the_papers_rule_and_the_other_one():
    generator = np.random.default_rng(3)
    base = generator.random(200)
    values = {0: base, 0.15: base + generator.normal(0, 0.02, 200), 0.35: base - 0.03 + generator.normal(0, 0.02, 200)}
    values[0.05] = base + generator.normal(0, 0.3, 200)  # so noisy that nothing is shown, a loss neither
    choice = choose_ratio(values, {0: {"ARaB@10": 0.07}, 0.35: {"ARaB@10": 0.05}}, margin=0.01)
    table = choice.table.set_index("ratio")
    assert choice.table["ratio"].tolist() == [0, 0.05, 0.15, 0.35]
    assert choice.chosen == 0.15 and choice.noninferior == 0.0
    for ratio in (0.05, 0.15, 0.35):
        test = stats.ttest_rel(values[ratio], base)
        assert table.loc[ratio, "t"] == pytest.approx(test.statistic) and table.loc[ratio, "p"] == pytest.approx(test.pvalue)
        one_sided = stats.ttest_1samp(values[ratio] - base, -0.01, alternative="greater").pvalue
        assert table.loc[ratio, "p_noninferior"] == pytest.approx(one_sided)
        other = stats.ttest_1samp(values[ratio] - base, 0.01, alternative="less").pvalue
        assert table.loc[ratio, "p_equivalent"] == pytest.approx(max(one_sided, other))
    assert table["loss"].tolist() == [False, False, False, True]
    assert table["ARaB@10"].tolist()[0] == 0.07 and np.isnan(table["ARaB@10"].tolist()[1])
    axes = choice.plot(measure="MRR@10")
    assert [panel.get_ylabel() for panel in (axes, *axes.child_axes)] == ["MRR@10", "bias"]
    assert choice.plot(axes) is axes
    plt.close(axes.figure)
    quiet = choose_ratio({ratio: values[ratio] for ratio in (0, 0.15)})
    assert quiet.noninferior == 0.15
    plt.close(quiet.plot().figure)


def test_a_gain_is_no_loss():
    base = np.linspace(0, 1, 50)
    assert choose_ratio({0: base, 0.1: base + 0.1}).chosen == 0.1
    assert choose_ratio({0: base, 0.1: base - 0.1}).chosen == 0.0


def test_values_of_other_queries_are_refused():
    with pytest.raises(InputError, match="ratio 0"):
        choose_ratio({0.1: [1.0, 2.0]})
    with pytest.raises(InputError, match="each of the original's 2"):
        choose_ratio({0: [1.0, 2.0], 0.1: [1.0]})
    one, other = pd.Series([0.1, 0.2, 0.4], index=["a", "b", "c"]), pd.Series([0.4, 0.2, 0.1], index=["c", "b", "a"])
    assert choose_ratio({0: one, 0.1: other}).table["difference"].tolist() == [0, 0]
    with pytest.raises(InputError, match="same queries"):
        choose_ratio({0: one, 0.1: other.rename({"a": "z"})})
    for options, words in (({"margin": 0}, "margin"), ({"level": 2}, "level")):
        with pytest.raises(InputError, match=words):
            choose_ratio({0: one}, **options)


# The trade at query time


def run():
    texts = ["he and his son", "people", "a sea", "her sister", "tea"]
    frame = pd.DataFrame({"qid": ["1", "1", "1", "2", "2"], "docno": list("abcde"), "text": texts})
    return frame.assign(score=[3.0, 2.5, 1.0, 0.2, 0.1], query="x")


def test_the_trade_in_numbers():
    out = NeutralReranker(0.25)(run()).set_index("docno")
    # Relevance 1, .75, 0; bias ln 4, 0, 0 -> 1, 0, 0. Of the second query 1, 0 and 1, 0.
    expected = {"a": 0.75 - 0.25, "b": 0.75 * 0.75, "c": 0.0, "d": 0.75 - 0.25, "e": 0.0}
    assert out["score"].to_dict() == pytest.approx(expected)
    assert out.loc["a", "bias"] == pytest.approx(np.log(4)) and out.loc["a", "score_0"] == 3.0
    assert out.loc["b", "rank"] == 0 and out.loc["a", "rank"] == 1
    raw = NeutralReranker(0.5, normalise=None, method="tc")(run()).set_index("docno")
    assert raw["score"].to_dict() == pytest.approx({"a": 0.0, "b": 1.25, "c": 0.5, "d": -0.9, "e": 0.05})
    same = NeutralReranker(0.0)(run())
    assert same["docno"].tolist() == list("abcde")
    given = NeutralReranker(1.0, bias="known")(run().drop(columns="text").assign(known=[0.0, -1, 0, 0, 0]))
    assert given[given["qid"] == "1"]["docno"].tolist() == ["c", "a", "b"]


def test_lists_of_one_scale():
    values = np.array([2.0, 4.0, 9.0])
    assert normalised(values, "zscore").mean() == pytest.approx(0) and normalised(values, "zscore").std() == pytest.approx(1)
    assert normalised(np.full(3, 7.0), "zscore").tolist() == normalised(np.full(3, 7.0), "minmax").tolist() == [0, 0, 0]
    assert normalised(values, None).tolist() == values.tolist()


def test_what_cannot_be_traded():
    for stage, words in ((NeutralReranker(2), "strength=2"), (NeutralReranker(normalise="rank"), "normalise='rank'")):
        with pytest.raises(InputError, match=words):
            stage(run())
    for stage in (NeutralReranker(), NeutralReranker(normalise="zscore"), NeutralReranker(1.0, normalise=None)):
        with pytest.raises(InputError, match=r"NeutralReranker: column 'score' is infinite at row 3 \(qid='2', docno='d'\)"):
            stage(run().assign(score=[3.0, 2.5, 1.0, np.inf, 0.1]))
    with pytest.raises(InputError, match="column 'known' is infinite at row 0"):
        NeutralReranker(bias="known")(run().assign(known=[np.inf, 0, 0, 0, 0]))
    # Scores as they are stay above, or below, all others.
    out = NeutralReranker(normalise=None)(run().assign(score=[-np.inf, 2.5, 1.0, 0.2, 0.1]))
    assert out["docno"].tolist()[2] == "a" and out["score"].iloc[2] == -np.inf
    empty = NeutralReranker()(run().iloc[:0])
    assert len(empty) == 0 and list(empty.columns) == list(NeutralReranker()(run()).columns)
