"""The planted collection: what it promises, what is planted, and that nothing else is."""

import hashlib
import importlib.util
import re
import string
from collections import Counter

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, Judged, R, nDCG
from scipy import stats

from pyterrier_debias import InputError, PlantedCollection, PlantedRanker
from pyterrier_debias.core.dataset import Dataset
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data import planted_material as material
from pyterrier_debias.data.planted import bm25

BIASES = ("position", "pooling", "gender", "linguistic", "survivorship")
NOTHING = dict.fromkeys(BIASES, 0.0)
#: The collection of seed 0 at the defaults. It is frozen: a change of this number is a change of every published result.
FINGERPRINT = "185e880d5da35548a8f47e35d17f41ff8381741e827ebc0983d7b68d5758d2c3"


def fingerprint(collection: PlantedCollection) -> str:
    frames = [
        collection.get_corpus(),
        collection.get_topics("full"),
        collection.get_topics("test"),
        collection.get_qrels("full").query("label > 0"),
        collection.get_qrels("test"),
        collection.get_candidates(),
        collection.get_answers().sort_values(["qid", "docno"]),
        collection.get_runs()["bm25"][["qid", "docno", "rank"]],
    ]
    digest = hashlib.sha256()
    for frame in frames:
        digest.update(frame.to_csv(index=False, lineterminator="\n").encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def default() -> PlantedCollection:
    return PlantedCollection()


@pytest.fixture(scope="module")
def null() -> PlantedCollection:
    return PlantedCollection(0, **NOTHING)


@pytest.fixture(scope="module")
def several(default) -> list[PlantedCollection]:
    """Enough collections to measure shares in."""
    return [default, PlantedCollection(1), PlantedCollection(2)]


def content(text: str) -> set[str]:
    return set(regex_word(text)) - material.FUNCTION_WORDS


def ndcg(run: pd.DataFrame, qrels: pd.DataFrame) -> float:
    return pt.Evaluate(run, qrels, metrics=[nDCG @ 10])["nDCG@10"]


# ------------------------------------------------------------------------------------------------ shape


def test_it_is_a_dataset_of_the_stated_size(default):
    assert isinstance(default, Dataset)
    assert len(default.get_topics("full")) == 60
    assert len(default.get_corpus()) == 1200
    assert len(list(default.get_corpus_iter())) == 1200
    assert list(default.get_topics().columns) == ["qid", "query", "type", "gender"]
    assert set(default.get_topics("full")["type"]) == {"NUMERIC", "PERSON", "LOCATION", "ENTITY", "DESCRIPTION"}
    assert set(default.get_topics("full")["gender"]) == {"neutral", "female", "male"}
    assert default.get_topics("full")["query"].is_unique
    assert default.get_corpus()["text"].is_unique


def test_the_generator_is_frozen(default):
    assert fingerprint(default) == FINGERPRINT


def test_seed_and_options_decide_everything():
    small = {"topics": 12, "passages": 120}
    assert fingerprint(PlantedCollection(5, **small)) == fingerprint(PlantedCollection(5, **small))
    assert fingerprint(PlantedCollection(5, **small)) != fingerprint(PlantedCollection(6, **small))


@pytest.mark.parametrize(
    "options", [{"topics": 1}, {"topics": 7, "passages": 56}, {"topics": 90, "passages": 1111}, {"depth": 5}]
)
def test_any_size(options):
    collection = PlantedCollection(2, **options)
    assert len(collection.get_topics("full")) == options.get("topics", 60)
    assert len(collection.get_corpus()) == options.get("passages", 20 * options.get("topics", 60))
    per_topic = collection.get_runs()["bm25"].groupby("qid").size()
    assert per_topic.max() <= options.get("depth", 100)
    assert collection.truth["topics"]["answering"].min() >= 2


def test_the_name_tells_collections_of_other_strengths_apart():
    small = {"topics": 3, "passages": 30}
    assert PlantedCollection(4, **small, gender=0.5).name == "planted-4"
    assert PlantedCollection(4, **small, position=1, gender=0.25).name == "planted-4-position1-gender0.25"
    assert PlantedCollection(4, **small, paraphrased=0.0).name == "planted-4-paraphrased0"


def test_training_topics_are_others():
    plain, trained = PlantedCollection(3, topics=20), PlantedCollection(3, topics=20, train_topics=150)
    assert "train" not in plain.topics
    train, test = trained.get_topics("train"), trained.get_topics("full")
    assert len(train) == 150
    assert test["query"].tolist() == plain.get_topics("full")["query"].tolist()
    asked = trained.truth["topics"][["kind", "property", "attribute"]]
    assert not asked.duplicated().any()
    assert set(trained.get_qrels("train")["qid"]) <= set(train["qid"])
    assert set(trained.get_qrels("train_full")["qid"]) == set(train["qid"])
    assert (trained.get_qrels("train_full").groupby("qid")["label"].max() == 2).all()
    assert set(trained.get_qrels("full")["qid"]) == set(test["qid"])
    known = trained.get_qrels("train").merge(trained.get_qrels("train_full"), how="left", on=["qid", "docno", "label"])
    assert len(known) == len(trained.get_qrels("train")) < len(trained.get_qrels("train_full"))


@pytest.mark.parametrize(
    "options, named",
    [
        ({"seed": 1.5}, "seed"),
        ({"topics": 0}, "topics"),
        ({"topics": True}, "topics"),
        ({"train_topics": -1}, "train_topics"),
        ({"topics": 2600, "train_topics": 2000}, "questions"),
        ({"passages": 100}, "passages"),
        ({"passages": "many"}, "passages"),
        ({"depth": 0}, "depth"),
        ({"position": 1.1}, "position"),
        ({"pooling": -0.1}, "pooling"),
        ({"gender": "strong"}, "gender"),
        ({"linguistic": float("nan")}, "linguistic"),
        ({"survivorship": None}, "survivorship"),
        ({"paraphrased": 2}, "paraphrased"),
    ],
)
def test_wrong_options_are_refused_by_name(options, named):
    with pytest.raises(InputError, match=named):
        PlantedCollection(**options)


# ------------------------------------------------------------------------------------------------ truth


def test_spans_are_exact_and_complete(default):
    answers = default.get_answers().merge(default.get_corpus(), on="docno")
    assert (answers["end"] > answers["start"]).all()
    for row in answers.itertuples():
        assert row.text[row.start : row.end] == row.answer
        assert not row.text[row.end].isalnum()
        assert row.start == 0 or not row.text[row.start - 1].isalnum()
    full = default.get_qrels("full")
    answering = full[full["label"] == 2]
    assert set(zip(answering["qid"], answering["docno"])) == set(zip(answers["qid"], answers["docno"]))


def states(text: str, templates: tuple[str, ...]) -> bool:
    """Whether a sentence of the text was made from one of the templates."""
    for template in templates:
        parts = [re.escape(part) for part, *_ in string.Formatter().parse(template) if part.strip(" .,:")]
        if any(re.search(".*?".join(parts), sentence, re.I) for sentence in re.split(r"(?<=\.) ", text)):
            return True
    return False


def test_labels_follow_from_what_the_passage_says(default):
    """Read off the texts again: 2 states kind, property and attribute, 1 kind and property, 0 something else."""
    groups = {kind.noun: group for group in material.GROUPS for kind in group.kinds}
    documents = default.truth["documents"].merge(default.get_corpus(), on="docno")
    full = default.get_qrels("full").set_index(["qid", "docno"])["label"]
    for topic in default.truth["topics"].itertuples():
        group = groups[topic.kind]
        kind = next(k for k in group.kinds if k.noun == topic.kind)
        wanted = next(p for p in group.properties if p.name == topic.property)
        asked = next(a for a in group.attributes if a.name == topic.attribute)
        labels = full[topic.qid]
        same_kind = documents["kind"] == topic.kind
        assert (labels[documents.loc[~same_kind, "docno"]] == 0).all()
        for document in documents[same_kind].itertuples():
            assert re.search(rf"\b({kind.noun}|{kind.synonym})\b", document.text.split(". ")[0])
            on_topic = states(document.text, wanted.literal + wanted.paraphrase)
            answered = on_topic and states(document.text, asked.literal + asked.paraphrase)
            meant = topic.gender in ("neutral", document.gender)
            assert labels[document.docno] == on_topic + (answered and meant), (topic, document)


def test_paraphrases_share_no_content_word_with_their_question(default):
    documents = default.truth["documents"].set_index("docno")
    texts = default.get_corpus().set_index("docno")["text"]
    pairs = default.get_qrels("full").query("label > 0").merge(default.get_topics("full"), on="qid")
    paraphrased = documents["paraphrased"].loc[pairs["docno"]].to_numpy()
    shared = [len(content(query) & content(texts[docno])) for query, docno in zip(pairs["query"], pairs["docno"])]
    assert max(np.array(shared)[paraphrased]) == 0
    assert np.mean(np.array(shared)[~paraphrased] > 0) > 0.85


@pytest.mark.parametrize("share", [0.0, 0.35, 0.8, 1.0])
def test_the_share_of_paraphrases_is_the_one_asked_for(share):
    documents = PlantedCollection(4, paraphrased=share).truth["documents"]
    planned = documents[documents["role"] != "any"]
    for _, role in planned.groupby("role"):
        assert role["paraphrased"].mean() == pytest.approx(share, abs=0.03)
    assert documents["paraphrased"].mean() == pytest.approx(share, abs=0.05)


def test_the_material_is_read_when_a_table_is_first_asked_for():
    spec = importlib.util.find_spec(material.__name__)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    with pytest.raises(AttributeError, match="no attribute 'tables'"):
        _ = fresh.tables
    assert "GROUPS" not in vars(fresh)
    assert fresh.GROUPS is fresh.GROUPS
    assert fresh.GROUPS == material.GROUPS


def test_the_material_shares_no_stem_between_questions_and_paraphrases():
    tokenize = pytest.importorskip("pyterrier_pisa").tokenize

    def stems(text: str) -> set[str]:
        return set(tokenize(re.sub(r"\{\w+\}", " ", text), "porter2"))

    function = stems(" ".join(material.FUNCTION_WORDS))
    for group in material.GROUPS:
        questions = [k.noun for k in group.kinds] + [p.clause for p in group.properties] + [a.question for a in group.attributes]
        asked = stems(" ".join(questions)) - function
        openings = material.PERSON_OPENINGS if group.name == "persons" else material.OPENINGS
        said = [text for p in (*group.properties, *group.attributes) for text in p.paraphrase]
        said += [k.synonym for k in group.kinds] + [*group.remarks, *group.at, *group.adjectives, *group.pattern]
        said += [*openings, *material.ENDINGS, *material.ROLES["female"], *material.ROLES["male"]]
        said += [value for a in group.attributes for value in material.VALUES.get(a.value, ())]
        for text in said:
            assert not stems(text) & asked, (group.name, text)
        for stated in (*group.properties, *group.attributes):
            needed = stems(stated.clause if hasattr(stated, "clause") else stated.question) - function
            for text in stated.literal:
                assert needed <= stems(text), text


# ------------------------------------------------------------------------------------------------ English


def test_it_reads_as_english(several):
    for collection in several:
        for text in collection.get_corpus()["text"]:
            assert not re.search(r"[{}\x01\x02]|  |,,|,\.|\.\.| ,| \.", text), text
            assert not re.search(r"\b[Aa] (?:[aeio]|annual)", text), text
            assert not re.search(r"\b[Aa]n (?!hour|heir)[^aeiouAEIOU]", text), text
            assert not re.search(r"\b(of|at|for|on|in|from|to|by|through|with|after|around|than) (he|she)\b", text), text
            for sentence in re.split(r"(?<=\.) ", text):
                assert sentence[0].isupper() or not sentence[0].isalpha(), text
                assert sentence.endswith("."), text
            doubled = re.search(r"\b(\w+) \1\b", text)
            assert not doubled, text
    lengths = np.array([len(text.split()) for c in several for text in c.get_corpus()["text"]])
    assert 55 < lengths.mean() < 80
    assert np.quantile(lengths, 0.05) > 40
    assert np.quantile(lengths, 0.95) < 100


def test_near_duplicates_are_rare(default):
    shingles = []
    for text in default.get_corpus()["text"]:
        words = regex_word(text)
        shingles.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)})
    holders: dict[tuple, list[int]] = {}
    for number, own in enumerate(shingles):
        for shingle in own:
            holders.setdefault(shingle, []).append(number)
    closest = []
    for number, own in enumerate(shingles):
        shared = Counter(other for shingle in own for other in holders[shingle] if other != number)
        closest.append(max((n / len(own | shingles[other]) for other, n in shared.items()), default=0.0))
    assert max(closest) < 0.3
    sentences = Counter(s for text in default.get_corpus()["text"] for s in re.split(r"(?<=\.) ", text))
    assert sum(n for n in sentences.values() if n > 1) / sum(sentences.values()) < 0.05


@pytest.mark.parametrize("position", [0.0, 1.0])
def test_a_passage_does_not_tell_by_itself_that_it_is_relevant(position):
    """AUC of simple features for relevant against other passages of the kinds that are asked for."""
    features: dict[str, list[float]] = {}
    for seed in range(3):
        collection = PlantedCollection(seed, position=position)
        documents = collection.truth["documents"]
        asked = documents["kind"].isin(set(collection.truth["topics"]["kind"])).to_numpy()
        full = collection.get_qrels("full")
        relevant = documents["docno"].isin(full.loc[full["label"] == 2, "docno"]).to_numpy()[asked]
        words = [regex_word(text) for text in collection.get_corpus()["text"]]
        frequency = Counter(word for text in words for word in set(text))
        own = {
            "length": [len(text) for text in words],
            "place in the corpus": list(range(len(words))),
            "type-token ratio": [len(set(text)) / len(text) for text in words],
            "length of words": [np.mean([len(word) for word in text]) for text in words],
            "rare words": [np.mean([frequency[word] <= 2 for word in text]) for text in words],
            "digits": [sum(word.isdigit() for word in text) for text in words],
            "pronouns": [sum(word in {"he", "she", "his", "her"} for word in text) for text in words],
            "sentences": documents["sentences"].tolist(),
            "paraphrased": documents["paraphrased"].tolist(),
            "place of the answer": documents["answer_sentence"].tolist(),
        }
        for name, values in own.items():
            chosen = np.array(values, dtype=float)[asked]
            wins = stats.mannwhitneyu(chosen[relevant], chosen[~relevant]).statistic
            features.setdefault(name, []).append(wins / relevant.sum() / (~relevant).sum())
    for name, areas in features.items():
        assert abs(np.mean(areas) - 0.5) < 0.07, (name, areas)


def test_every_statement_occurs_in_relevant_and_in_other_passages():
    """No template is a sign of relevance: what relevant passages state, others of the same kind state too."""
    collection = PlantedCollection(1, topics=30)
    documents = collection.truth["documents"].set_index("docno")
    full = collection.get_qrels("full")
    for topic in collection.truth["topics"].itertuples():
        labels = full[full["qid"] == topic.qid].set_index("docno")["label"]
        same_kind = documents.index[documents["kind"] == topic.kind]
        assert (labels[same_kind] == 2).sum() >= 2
        assert (labels[same_kind] == 1).sum() >= 1
        planned = documents[documents["planned_for"] == topic.qid]
        hard = planned.index[planned["role"] == "attribute"]
        assert len(hard) >= 1
        assert (labels[hard] == 0).all()


# ------------------------------------------------------------------------------------------------ strengths


def first_sentence_share(collection: PlantedCollection) -> float:
    return (collection.truth["documents"]["answer_sentence"] == 0).mean()


def test_position_goes_from_uniform_to_first():
    documents = [PlantedCollection(seed, topics=10, passages=800, position=0.0).truth["documents"] for seed in range(2)]
    for sentences, group in pd.concat(documents).groupby("sentences"):
        if len(group) > 200:
            observed = np.bincount(group["answer_sentence"], minlength=sentences)
            assert stats.chisquare(observed).pvalue > 0.001
    worlds = [PlantedCollection(0, topics=20, passages=600, position=s) for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    shares = [first_sentence_share(world) for world in worlds]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    expected = (1 / worlds[0].truth["documents"]["sentences"]).mean()
    for strength, share in zip((0.0, 0.25, 0.5, 0.75), shares):
        assert share == pytest.approx(strength + (1 - strength) * expected, abs=0.07)
    full = worlds[-1]
    first_stop = full.get_corpus().set_index("docno")["text"].str.find(". ")
    answers = full.get_answers()
    planned = full.truth["documents"].query("role == 'relevant'")
    own = answers.merge(planned, left_on=["qid", "docno"], right_on=["planned_for", "docno"])
    assert len(own) > 100
    assert (own["start"] < first_stop.loc[own["docno"]].to_numpy()).all()


def test_pooling_goes_from_all_judged_to_one(null):
    whole = null
    pd.testing.assert_frame_equal(whole.get_qrels("test"), whole.get_qrels("full"))
    assert len(whole.get_qrels("full")) == 60 * 1200
    before = None
    for strength in (0.0, 0.3, 0.6, 1.0):
        collection = PlantedCollection(0, **NOTHING | {"pooling": strength}) if strength else null
        judged = collection.get_qrels()
        pairs = set(zip(judged["qid"], judged["docno"]))
        assert before is None or pairs < before
        before = pairs
        depth = int(np.ceil(1200 ** (1 - strength)))
        assert collection.truth["pool"] == {"system": "bm25", "depth": depth}
        run = collection.get_runs()["bm25"]
        top = run[run["rank"] < min(depth, 100)]
        assert set(zip(top["qid"], top["docno"])) <= pairs
        assert len(pairs) <= 60 * (depth + 10)
    shown = collection.get_candidates()
    top = run[run["rank"] == 0]
    assert pairs == set(zip(shown["qid"], shown["docno"])) | set(zip(top["qid"], top["docno"]))
    merged = judged.merge(collection.get_qrels("full"), on=["qid", "docno"])
    assert (merged["label_x"] == merged["label_y"]).all()


def test_pooled_judgements_favour_the_system_that_was_pooled(default):
    run = default.get_runs()["bm25"]
    judged, all_judged = default.get_qrels(), default.get_qrels("full")
    assert pt.Evaluate(run, judged, metrics=[Judged @ 10])["Judged@10"] == 1.0
    assert ndcg(run, judged) > ndcg(run, all_judged)
    other = PlantedRanker(strength=0.0, noise=2.0)(default.text_loader()(run.merge(default.get_topics(), on="qid")))
    assert pt.Evaluate(other, judged, metrics=[Judged @ 10])["Judged@10"] < 0.9


def stereotyped(collection: PlantedCollection, own: str, expected: str) -> pd.Series:
    documents = collection.truth["documents"]
    documents = documents[(documents[expected] != "") & ~documents["role"].isin(["relevant", "partial"])]
    return documents[own] == documents[expected]


@pytest.mark.parametrize("own, expected", [("gender", "stereotype"), ("trade_gender", "trade_stereotype")])
def test_gender_goes_from_even_chances_to_the_stereotype(own, expected):
    shares = []
    for strength in (0.0, 0.5, 1.0):
        worlds = [PlantedCollection(seed, topics=5, passages=500, gender=strength) for seed in (1, 2)]
        matched = pd.concat([stereotyped(world, own, expected) for world in worlds])
        assert stats.binomtest(int(matched.sum()), len(matched), 0.5 + strength / 2).pvalue > 0.001
        shares.append(matched.mean())
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_gendered_questions_follow_the_stereotype_too():
    def matched(strength: float) -> pd.Series:
        topics = PlantedCollection(0, topics=200, passages=1600, gender=strength).truth["topics"]
        asked = topics[topics["gender"] != "neutral"]
        assert (asked["stereotype"] != "").all()
        words = {"female": "her", "male": "his"}
        assert all(words[g] in q.split() for g, q in zip(asked["gender"], asked["query"]))
        return asked["gender"] == asked["stereotype"]

    assert matched(1.0).all()
    even = matched(0.0)
    assert stats.binomtest(int(even.sum()), len(even), 0.5).pvalue > 0.001


def test_a_gendered_question_is_answered_by_people_of_that_gender_only(several):
    seen = 0
    for collection in several:
        gender = collection.truth["documents"].set_index("docno")["gender"]
        answering = collection.get_qrels("full").query("label == 2").merge(collection.get_topics("full"), on="qid")
        answering = answering[answering["gender"] != "neutral"]
        seen += len(answering)
        assert (gender.loc[answering["docno"]].to_numpy() == answering["gender"]).all()
    assert seen > 10


def rho(collection: PlantedCollection, column: str) -> float:
    topics = collection.truth["topics"].query("split == 'test'")
    topics = topics[topics["first_shown"] > 0] if column == "first_shown" else topics
    return stats.spearmanr(topics["difficulty"], topics[column]).statistic


@pytest.mark.parametrize("bias, column", [("linguistic", "complexity"), ("survivorship", "first_shown")])
def test_coupling_with_difficulty_goes_from_none_to_full(bias, column):
    big = {"topics": 120, "passages": 960}
    none, half, full = (rho(PlantedCollection(1, **big, **{bias: s}), column) for s in (0.0, 0.5, 1.0))
    assert abs(none) < 3.3 / np.sqrt(120)
    assert none < 0.3 < half < 0.75 < full
    assert full > 0.95


def test_difficulty_is_what_makes_bm25_fail(several):
    for collection in several[:3]:
        qrels = collection.get_qrels("full").query("label > 0").rename(columns={"qid": "query_id", "docno": "doc_id"})
        run = collection.get_runs()["bm25"].rename(columns={"qid": "query_id", "docno": "doc_id"})
        values = {
            m.query_id: m.value
            for m in ir_measures.iter_calc([nDCG @ 10], qrels.rename(columns={"label": "relevance"}), run)
        }
        topics = collection.truth["topics"].set_index("qid")
        assert stats.spearmanr(topics["difficulty"], pd.Series(values).reindex(topics.index)).statistic < -0.6


def test_survivorship_drops_the_questions_that_nothing_shown_answers(default, null):
    assert len(null.get_topics()) == len(null.get_topics("full")) == 60
    sizes = [len(PlantedCollection(0, passages=480, survivorship=s).get_topics()) for s in (0.0, 0.4, 0.7, 1.0)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(45, abs=2)
    for collection in (default, null):
        shown = collection.get_candidates().merge(collection.get_qrels("full"), on=["qid", "docno"])
        shown = shown.sort_values(["qid", "rank"])
        assert (shown.groupby("qid").size() == 10).all()
        assert not shown.duplicated(["qid", "docno"]).any()
        first = shown[shown["label"] > 0].groupby("qid")[["rank", "label"]].first()
        assert (first["label"] == 2).all()
        assert set(first.index) == set(collection.get_topics()["qid"])
        told = collection.truth["topics"].set_index("qid")["first_shown"]
        assert (told.loc[first.index] == first["rank"] + 1).all()
        assert set(collection.get_qrels()["qid"]) == set(first.index)


@given(
    seed=st.integers(-5, 2**40),
    topics=st.integers(1, 6),
    more=st.integers(0, 40),
    train_topics=st.integers(0, 3),
    strengths=st.tuples(*[st.sampled_from([0.0, 0.3, 1.0])] * 5),
    paraphrased=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=25)
def test_any_options_give_a_consistent_collection(seed, topics, more, train_topics, strengths, paraphrased):
    passages = 8 * topics + 6 * train_topics + more
    collection = PlantedCollection(
        seed, topics=topics, passages=passages, train_topics=train_topics, paraphrased=paraphrased, **dict(zip(BIASES, strengths))
    )
    texts = collection.get_corpus().set_index("docno")["text"]
    assert len(texts) == passages
    answers = collection.get_answers()
    assert all(texts[row.docno][row.start : row.end] == row.answer for row in answers.itertuples())
    full = collection.get_qrels("full")
    assert len(full) == topics * passages
    shown = collection.get_candidates().merge(full, on=["qid", "docno"])
    assert len(shown) == len(collection.get_candidates())
    assert not shown.duplicated(["qid", "docno"]).any()
    first = shown[shown["label"] > 0].groupby("qid")["rank"].min() + 1
    told = collection.truth["topics"].query("split == 'test'").set_index("qid")["first_shown"]
    assert first.to_dict() == told[told > 0].to_dict()
    assert collection.get_topics()["qid"].tolist() == told.index[told > 0].tolist()


# ------------------------------------------------------------------------------------------------ independence


def same(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    return left.reset_index(drop=True).equals(right.reset_index(drop=True))


def test_pooling_survivorship_and_wording_leave_texts_and_labels_alone(null):
    for bias in ("pooling", "survivorship", "linguistic"):
        changed = PlantedCollection(0, **NOTHING | {bias: 1.0})
        assert same(changed.get_corpus(), null.get_corpus())
        assert same(changed.get_qrels("full"), null.get_qrels("full"))
        assert same(changed.get_runs()["bm25"], null.get_runs()["bm25"])
        assert same(changed.get_topics("full"), null.get_topics("full")) == (bias != "linguistic")
        assert same(changed.get_candidates(), null.get_candidates()) == (bias != "survivorship")
        assert same(changed.get_topics(), null.get_topics()) == (bias == "pooling")


def test_the_list_shown_does_not_depend_on_the_pool(null):
    shallow = PlantedCollection(0, **NOTHING | {"pooling": 1.0})
    assert same(shallow.get_candidates(), null.get_candidates())


def test_position_changes_the_order_of_sentences_and_how_they_name_their_subject(null):
    changed = PlantedCollection(0, **NOTHING | {"position": 1.0})
    assert same(changed.get_topics("full"), null.get_topics("full"))
    assert same(changed.get_qrels("full"), null.get_qrels("full"))
    assert same(changed.get_candidates(), null.get_candidates())
    told = changed.truth["documents"].drop(columns="answer_sentence")
    assert same(told, null.truth["documents"].drop(columns="answer_sentence"))
    answers = [c.get_answers().sort_values(["qid", "docno"])["answer"].tolist() for c in (changed, null)]
    assert answers[0] == answers[1]


def test_gender_changes_names_and_pronouns_only():
    plain, changed = (PlantedCollection(0, **NOTHING | {"gender": s}) for s in (0.0, 1.0))
    names = {name.lower() for names in material.FIRST_NAMES.values() for name in names}
    pronouns = {"he", "she", "him", "her", "his", "himself", "herself"}
    differing = 0
    for before, after in zip(plain.get_corpus()["text"], changed.get_corpus()["text"]):
        pairs = [(a, b) for a, b in zip(regex_word(before), regex_word(after), strict=True) if a != b]
        differing += bool(pairs)
        assert all({a, b} <= pronouns | names for a, b in pairs)
    assert 100 < differing < 900
    assert same(changed.get_runs()["bm25"], plain.get_runs()["bm25"])


def test_complex_wording_adds_no_word_that_a_passage_holds(several):
    parts = " ".join((*material.FRONT, *material.MIDDLE, *material.END, *material.TAIL))
    for collection in several:
        vocabulary = set(regex_word(" ".join(collection.get_corpus()["text"])))
        assert not content(parts) & vocabulary


def test_wording_is_the_more_complex_the_longer(default):
    topics = default.truth["topics"]
    assert set(topics["complexity"]) == {0, 1, 2, 3, 4}
    lengths = topics.assign(length=topics["query"].str.split().str.len()).groupby("complexity")["length"].mean()
    assert lengths.is_monotonic_increasing


# ------------------------------------------------------------------------------------------------ retrieval


@pytest.mark.parametrize("seed", range(3))
def test_bm25_is_neither_perfect_nor_useless(several, seed):
    run, full = several[seed].get_runs()["bm25"], several[seed].get_qrels("full")
    found = pt.Evaluate(run, full, metrics=[nDCG @ 10, R(rel=2) @ 100])
    assert 0.45 < found["nDCG@10"] < 0.75
    assert 0.5 < found["R(rel=2)@100"] < 1.0


def test_the_frozen_run_is_what_pisa_ranks(default, tmp_path):
    pisa = pytest.importorskip("pyterrier_pisa")
    index = pisa.PisaIndex(str(tmp_path / "index"), text_field="text", stemmer="none", stops="none")
    index.index(default.get_corpus_iter())
    topics = default.get_topics("full")
    kept = [" ".join(w for w in regex_word(q) if w not in material.FUNCTION_WORDS) for q in topics["query"]]
    theirs = index.bm25(num_results=100)(topics[["qid"]].assign(query=kept))
    both = default.get_runs()["bm25"].merge(theirs, on=["qid", "docno"], how="outer", suffixes=("", "_pisa"))
    matched = both.dropna(subset=["score", "score_pisa"])
    assert len(matched) > 0.99 * len(both)  # the rest are ties at the last rank
    np.testing.assert_allclose(matched["score"], matched["score_pisa"], atol=2e-5)


def test_pisas_own_settings_stay_in_the_band(default, tmp_path):
    pisa = pytest.importorskip("pyterrier_pisa")
    index = pisa.PisaIndex(str(tmp_path / "index"), text_field="text")
    index.index(default.get_corpus_iter())
    run = index.bm25(k1=0.9, b=0.4, num_results=100)(default.get_topics("full"))
    assert 0.45 < ndcg(run, default.get_qrels("full")) < 0.75


def test_bm25_against_a_literal_formula():
    texts = ["a red owl sat", "the owl and the other owl", "red sea", "nothing here"]
    scores = list(bm25(texts, ["red owl", "which owl is red red", ""], k1=1.2, b=0.75))
    lengths = [4, 6, 2, 2]

    def score(words: list[str], number: int) -> float:
        total = 0.0
        for word in words:
            tf = texts[number].split().count(word)
            df = sum(word in text.split() for text in texts)
            idf = max(1e-6, np.log((4 - df + 0.5) / (df + 0.5)))
            total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * lengths[number] / 3.5))
        return total

    np.testing.assert_allclose(scores[0], [score(["red", "owl"], i) for i in range(4)], atol=1e-6)
    np.testing.assert_allclose(scores[1], [score(["owl", "red", "red"], i) for i in range(4)], atol=1e-6)
    assert (scores[2] == 0).all()


def test_it_works_in_an_experiment(default):
    run = pt.Transformer.from_df(default.get_runs()["bm25"])
    pipeline = run >> pt.apply.generic(lambda f: f.drop(columns="query", errors="ignore").merge(default.get_topics(), on="qid"))
    table = pt.Experiment(
        [run, pipeline >> default.text_loader() >> PlantedRanker(strength=0.0)],
        default.get_topics(),
        default.get_qrels(),
        [nDCG @ 10, RR @ 10],
        names=["bm25", "planted"],
        plan="tree",
        validate="ignore",
    )
    assert (table["nDCG@10"] > 0.4).all()
