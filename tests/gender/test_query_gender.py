"""Labels of queries: rules, a fitted head against scikit-learn's own, functions, folders, and the annotated queries."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.data.query_gender import LABELS, GenderClassifier, QueryGender, by_words, read_gender_queries
from tests.gender.letters import Letters, annotated


def topics():
    return pd.DataFrame({"qid": ["1", "2", "3", "4"], "query": ["her age", "his wife", "he is", "sea"]})


def test_words():
    out = QueryGender()(topics())
    assert out["gender"].tolist() == ["female", "other", "male", "neutral"]
    assert out[[f"gender_{label}" for label in LABELS]].sum(axis=1).tolist() == [1, 1, 1, 1]
    assert list(out.columns[:2]) == ["qid", "query"]
    documents = QueryGender(text_field="text")(pd.DataFrame({"docno": ["d"], "text": ["the king and his brother"]}))
    assert documents["gender"].tolist() == ["male"]
    with pytest.raises(InputError, match="give one with the groups female and male"):
        by_words(["a"], {"old": ["elder"]})


def test_the_fitted_head_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    texts, labels = annotated()
    fitted = GenderClassifier(Letters(), strength=2.0).fit(texts, labels)
    peer = LogisticRegression(C=2.0, max_iter=1000).fit(Letters().encode_queries(texts), labels)
    order = [list(peer.classes_).index(label) for label in fitted.labels]
    expected = peer.predict_proba(Letters().encode_queries(texts))[:, order]
    np.testing.assert_allclose(fitted.probabilities(texts), expected, atol=1e-9)
    assert fitted.labels == LABELS
    out = QueryGender(fitted)(pd.DataFrame({"qid": ["1"], "query": ["ffff"]}))
    assert out["gender"].tolist() == ["female"] and out["gender_female"][0] == pytest.approx(fitted.probabilities(["ffff"])[0, 0])


def test_two_labels_alone():
    from sklearn.linear_model import LogisticRegression

    texts, labels = ["fff", "ffm", "mmm", "mmf"] * 5, ["f", "f", "m", "m"] * 5
    fitted = GenderClassifier(Letters()).fit(texts, labels)
    peer = LogisticRegression(C=3.0, max_iter=1000).fit(Letters().encode_queries(texts), labels)
    np.testing.assert_allclose(fitted.probabilities(texts), peer.predict_proba(Letters().encode_queries(texts)), atol=1e-9)
    out = QueryGender(fitted)(topics().assign(query="ff"))
    assert (out[["gender_neutral", "gender_other"]] == 0).all(axis=None)


def test_cross_validation_counts_by_label():
    texts, labels = annotated()
    table = GenderClassifier(Letters()).cross_validate(texts, labels, folds=4).set_index("label")
    assert table.loc["all", "n"] == 120 and table.index.tolist() == ["all", *LABELS]
    weighted = (table.loc[list(LABELS), "n"] * table.loc[list(LABELS), "accuracy"]).sum() / 120
    assert table.loc["all", "accuracy"] == pytest.approx(weighted)
    assert ((table["low"] <= table["accuracy"]) & (table["accuracy"] <= table["high"])).all()
    assert table.loc["all", "accuracy"] > 0.7
    with pytest.raises(InputError, match="use fewer folds"):
        GenderClassifier(Letters()).cross_validate(["f", "m"] * 2, ["f", "m"] * 2, folds=5)


def test_folders(tmp_path):
    texts, labels = annotated()
    fitted = GenderClassifier(Letters()).fit(texts, labels)
    fitted.save(tmp_path / "head")
    loaded = GenderClassifier.load(tmp_path / "head", encoder=Letters())
    assert loaded == fitted and loaded.labels == fitted.labels
    assert QueryGender(loaded) == QueryGender(fitted)
    np.testing.assert_array_equal(loaded.probabilities(texts), fitted.probabilities(texts))
    assert fitted != GenderClassifier(Letters()).fit(texts[:60], labels[:60])
    with pytest.raises(InputError, match="exists already"):
        fitted.save(tmp_path / "head")
    with pytest.raises(InputError, match="holds no saved classifier"):
        GenderClassifier.load(tmp_path)
    for call in (lambda c: c.save(tmp_path / "x"), lambda c: c.probabilities(["a"])):
        with pytest.raises(InputError, match="must be called first"):
            call(GenderClassifier(Letters()))


def test_functions():
    out = QueryGender(lambda texts: ["f" if "her" in text else "neutral" for text in texts])(topics())
    assert out["gender"].tolist() == ["female", "neutral", "neutral", "neutral"]
    table = QueryGender(lambda texts: np.tile([0.1, 0.2, 0.3, 0.4], (len(texts), 1)))(topics())
    assert table["gender"].tolist() == ["other"] * 4 and table["gender_male"].tolist() == [0.2] * 4
    for function, words in (
        (lambda texts: ["x"] * len(texts), "label 'x'"),
        (lambda texts: ["f"], "must return one label per text"),
        (lambda texts: np.ones((len(texts), 4)), "sum to 1"),
    ):
        with pytest.raises(InputError, match=words):
            QueryGender(function)(topics())
    with pytest.raises(InputError, match="labeller='bert'"):
        QueryGender("bert")(topics())


def test_labels_that_cannot_be_learned():
    for texts, labels, words in (
        (["a"], ["f", "m"], "1 texts and 2 labels"),
        (["a", "b"], ["f", "q"], "label 'q'"),
        (["a", "b"], ["f", "female"], "same label"),
    ):
        with pytest.raises(InputError, match=words):
            GenderClassifier(Letters()).fit(texts, labels)


def test_an_empty_frame():
    empty = QueryGender()(topics().iloc[:0])
    assert len(empty) == 0 and list(empty.columns) == list(QueryGender()(topics()).columns)


def test_a_mark_of_the_byte_order_is_no_part_of_a_qid(tmp_path):
    (tmp_path / "queries.csv").write_text("1,a query, with a comma,f\n2,another,n\n", encoding="utf-8-sig")
    assert read_gender_queries(tmp_path / "queries.csv")["qid"].tolist() == ["1", "2"]


def test_the_annotated_queries(shared_data, tmp_path):
    frame = read_gender_queries(shared_data / "gender" / "rekabsaz_schedl_2020" / "queries_gender_annotated.csv")
    assert frame["gender"].value_counts().to_dict() == {"neutral": 1765, "male": 1202, "female": 742, "other": 41}
    assert frame["qid"].is_unique and (frame["query"].str.len() > 0).all()
    assert frame["query"].str.contains(",").any()
    right = (QueryGender()(frame.drop(columns="gender"))["gender"] == frame["gender"]).mean()
    assert right == pytest.approx(0.48, abs=0.02)  # the figure of the class' documentation
    (tmp_path / "bad.csv").write_text("1,a query,f\n2,no label\n")
    with pytest.raises(InputError, match="line 2"):
        read_gender_queries(tmp_path / "bad.csv")


# Fine-tuning


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    from pyterrier_debias import BiEncoder
    from tests.tiny_models import build_sentence_transformer

    return BiEncoder(str(build_sentence_transformer(tmp_path_factory.mktemp("encoder") / "model")))


def about_people():
    texts = [f"{who} {what}" for what in ("river", "sea", "bridge", "paris", "music") for who in ("king", "queen", "water")]
    return texts, ["male", "female", "neutral"] * 5


def test_one_step_of_fine_tuning_is_adams(encoder):
    # The first step of Adam moves each weight by the rate, against the sign of its gradient. Where logistic regression has its
    # least, the gradient of the cross-entropy is that of the penalty with the other sign: -W / (C n). So weights grow.
    texts, labels = about_people()
    frozen = GenderClassifier(encoder, strength=0.5).fit(texts, labels)
    encoder = copy.deepcopy(encoder)
    for part in encoder.module.modules():
        if hasattr(part, "p"):
            part.p = 0.0  # dropout would change the gradient
    tuned = GenderClassifier(encoder, strength=0.5, epochs=1, batch_size=15, learning_rate=1e-4).fit(texts, labels)
    large = np.abs(frozen._weights) > 1e-2
    assert large.sum() > 20
    np.testing.assert_allclose((tuned._weights - frozen._weights)[large], 1e-4 * np.sign(frozen._weights)[large], rtol=0.05)


def test_fine_tuning_trains_a_copy_and_can_be_repeated(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    texts, labels = about_people()
    before = encoder.encode_queries(texts)
    chance = torch.get_rng_state()
    options = {"epochs": 4, "batch_size": 4, "learning_rate": 5e-3, "strength": 0.1}
    tuned = GenderClassifier(encoder, **options).fit(texts, labels)
    np.testing.assert_array_equal(encoder.encode_queries(texts), before)
    assert torch.equal(torch.get_rng_state(), chance)
    found = tuned.probabilities(texts)
    frozen = GenderClassifier(encoder, strength=0.1).fit(texts, labels)

    def loss(probabilities):
        return -np.log(probabilities[np.arange(15), [LABELS.index(label) for label in labels]]).mean()

    assert loss(found) < 0.8 * loss(frozen.probabilities(texts))
    # Neither the order of queries nor what was fitted before counts; the seed does.
    order = np.random.default_rng(0).permutation(15)
    again = GenderClassifier(encoder, **options).fit(texts[:9], labels[:9])
    again.fit(pd.Series(texts).iloc[order], pd.Series(labels).iloc[order])
    np.testing.assert_allclose(again.probabilities(texts), found, atol=1e-5)
    assert np.abs(GenderClassifier(encoder, **options, seed=1).fit(texts, labels).probabilities(texts) - found).max() > 1e-4
    # What was trained is kept, in folders that others open.
    tuned.save(tmp_path / "head")
    loaded = GenderClassifier.load(tmp_path / "head")
    assert loaded.epochs == 4 and loaded == tuned
    np.testing.assert_allclose(loaded.probabilities(texts), found, atol=1e-6)
    vectors = SentenceTransformer(str(tmp_path / "head" / "encoder"), device="cpu").encode(texts)
    logits = vectors @ tuned._weights.T + tuned._bias
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), found, atol=1e-5)
    table = GenderClassifier(encoder, **options).cross_validate(texts, labels, folds=3)
    assert table["n"].tolist() == [15, 5, 5, 5]
    series = pd.Series(texts, index=range(15)[::-1])
    pd.testing.assert_frame_equal(GenderClassifier(encoder, **options).cross_validate(series, labels, folds=3), table)


@pytest.mark.parametrize("epochs", [0, 2])
def test_an_encoder_reads_as_it_did_when_it_was_saved(encoder, tmp_path, epochs):
    from pyterrier_debias import BiEncoder

    texts, labels = about_people()
    own = BiEncoder(encoder.model, similarity="cosine", max_length=3)
    kept = GenderClassifier(own, epochs=epochs, batch_size=4, learning_rate=5e-3).fit(texts, labels)
    kept.save(tmp_path / "head")
    for place in (None, own.model):
        loaded = GenderClassifier.load(tmp_path / "head", encoder=place)
        np.testing.assert_allclose(loaded.probabilities(texts), kept.probabilities(texts), atol=1e-6)
        assert loaded == kept
    assert not np.allclose(GenderClassifier(encoder).fit(texts, labels).probabilities(texts), kept.probabilities(texts))


def test_what_cannot_be_fine_tuned():
    with pytest.raises(InputError, match="Letters cannot be fine-tuned"):
        GenderClassifier(Letters(), epochs=1).fit(*annotated())


def test_annotated_queries_that_are_not_utf_8_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "queries.csv"
    path.write_bytes("1,谁是他,m\n".encode("gb18030"))
    with pytest.raises(InputError, match=r"queries.csv are not UTF-8; convert the file from its encoding, e.g. iconv -f"):
        read_gender_queries(path)
