"""Word lists: our own, published ones, mappings; what is refused."""

import pickle

import pytest

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.data.words import DEBIAS, WordList, read_word_list


def test_our_own_list():
    ours = WordList.of("debias")
    assert ours.names == ("male", "female")
    assert not ours.groups["male"] & ours.groups["female"]
    assert {"he", "him", "his", "himself", "mr", "father"} <= ours.groups["male"]
    assert {"she", "her", "hers", "herself", "mrs", "mother"} <= ours.groups["female"]
    assert all(word == word.lower() and word.isalpha() for word in ours.words)
    assert ours.size == sum(map(len, DEBIAS.values()))
    assert (ours.group_of("HE"), ours.group_of("it")) == ("male", None)


PUBLISHED = [
    # file, groups and their sizes
    ("rekabsaz_schedl_2020/wordlist_genderspecific.txt", {"male": 32, "female": 32}),
    ("rekabsaz_2021_fair/wordlist_gender_representative.txt", {"male": 163, "female": 163}),
    ("gn_glove_wordlists", {"male": 207, "female": 202}),
    ("debiaswe_wordlists/equalize_pairs.json", {"male": 47, "female": 47}),
    ("debiaswe_wordlists/definitional_pairs.json", {"male": 10, "female": 10}),
    ("debiaswe_wordlists/gender_specific_full.json", {"gender_specific_full": 1282}),
    ("debiaswe_wordlists/gender_specific_seed.json", {"gender_specific_seed": 218}),
    ("gn_glove_wordlists/female_word_file.txt", {"female": 202}),
]


@pytest.mark.parametrize(("path", "sizes"), PUBLISHED)
def test_published_lists_load_from_a_path(shared_data, path, sizes):
    words = WordList.of(shared_data / "gender" / path)
    assert {group: len(own) for group, own in words.groups.items()} == sizes
    assert all(word == word.lower() for word in words.words)
    assert str(shared_data) not in str(words)


def test_capitalised_names_of_the_published_list_are_found(shared_data):
    words = WordList.of(shared_data / "gender/rekabsaz_2021_fair/wordlist_gender_representative.txt")
    assert words.group_of("willie") == "male"


def test_scores_are_no_groups(shared_data):
    with pytest.raises(InputError, match=r"professions\.json: give a JSON array"):
        WordList.of(shared_data / "gender/debiaswe_wordlists/professions.json")


def test_pairs_are_told_apart_by_known_words_or_by_name(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text('[["woman", "man"], ["ewe", "ram"]]')
    assert WordList.of(path).groups == {"male": {"man", "ram"}, "female": {"woman", "ewe"}}
    path.write_text('[["ewe", "ram"]]')
    with pytest.raises(InputError, match="are not known; name them"):
        WordList.of(path)
    assert read_word_list(path, groups=("female", "male"), name="sheep").names == ("male", "female")


def test_other_attributes_and_numbers_of_groups(tmp_path):
    path = tmp_path / "ages.txt"
    path.write_text("Young,young\nteen\tyoung\n\nelderly , old\nadult,middle\n")
    ages = WordList.of(str(path))
    assert ages.groups == {"young": {"young", "teen"}, "old": {"elderly"}, "middle": {"adult"}}
    assert ages.name == "ages"
    path.write_text('{"Male": ["a"], "other": ["b"]}')
    assert read_word_list(path.rename(tmp_path / "x.json")).names == ("male", "other")
    (tmp_path / "x.json").write_text('{"male": ["he", "his"], "men": ["boy"], "female": ["she"]}')
    assert WordList.of(tmp_path / "x.json").groups == {"male": {"he", "his", "boy"}, "female": {"she"}}
    for words in ('"he"', "1.5"):
        (tmp_path / "x.json").write_text(f'{{"male": {words}}}')
        with pytest.raises(InputError, match=rf"x\.json: group 'male' holds .*{words[1:-1]}.*; give a list of words"):
            WordList.of(tmp_path / "x.json")


@pytest.mark.parametrize("header", ["word,gender\n", "Word\tgroup\n", "term , gender\n", ""])
def test_a_header_is_no_word_and_no_group(tmp_path, header):
    path = tmp_path / "list.csv"
    path.write_text(f"{header}he,m\nshe,f\n")
    assert WordList.of(path).groups == {"male": {"he"}, "female": {"she"}}
    path.write_text("word\nhe\n")
    assert WordList.of(path).groups == {"list": {"he"}}
    path.write_text("word,gender\n")
    with pytest.raises(InputError, match=r"list\.csv has only a header"):
        WordList.of(path)


def test_what_is_compared():
    ages = WordList({"a": ["x"], "b": ["y"], "c": ["z"]})
    with pytest.raises(InputError, match="name the contrast"):
        ages.contrast()
    assert ages.contrast(("c", "a")) == {"a": -1.0, "b": 0.0, "c": 1.0}
    assert ages.contrast("a") == {"a": 1.0, "b": -0.5, "c": -0.5}
    assert WordList({"only": ["x"]}).contrast() == {"only": 1.0}
    for wrong in ("d", ("a", "a"), ("a", "b", "c"), ()):
        with pytest.raises(InputError, match="give one or two different groups"):
            ages.contrast(wrong)


REFUSED = [
    ({}, "has no groups"),
    ({"a": []}, "group 'a' has no words"),
    ({"a": ["x", " "]}, "holds ' ', which is not a word"),
    ({"a": ["x", None]}, "holds None, which is not a word"),
    ({"a": "word"}, "is one string; give a list"),
    ({"a": ["x", "Boss"], "b": ["boss"]}, "1 words are in group 'a' and in group 'b', e.g. 'boss'"),
    ("nowhere.txt", "neither 'debias' nor an existing file"),
    (7, "not an int"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
def test_what_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        WordList.of(spec)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty"), ("he,m\nshe\n", "line 2: there is no group"), ("he,\n", "line 1: word or group is empty")],
)
def test_files_that_are_refused(tmp_path, content, message):
    path = tmp_path / "list.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        WordList.of(path)
    (tmp_path / "list.json").write_text("[")
    with pytest.raises(InputError, match="is not JSON"):
        WordList.of(tmp_path / "list.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="give a JSON array of words"):
        WordList.of(tmp_path / "list.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no \.txt"):
        WordList.of(tmp_path / "empty")


def test_identity_is_name_and_content():
    one, other = WordList({"a": ["x", "y"], "b": ["z"]}), WordList({"a": ["Y", "x"], "b": ["z"]})
    assert (one, hash(one), one.fingerprint) == (other, hash(other), other.fingerprint)
    assert one != WordList({"a": ["x", "y"], "b": ["z"]}, "other")
    assert one != WordList({"b": ["z"], "a": ["x", "y"]})  # whose contrast has the other sign
    assert one != "words"
    assert one.fingerprint != WordList({"a": ["x"], "b": ["y", "z"]}).fingerprint
    assert str(one) == f"words (a 2, b 1; {one.fingerprint})"
    assert repr(one).startswith("<WordList words")
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.without(["X"]).groups == {"a": {"y"}, "b": {"z"}}
    assert one.without([" X "]) == one.without(["x"])
    with pytest.raises(InputError, match=r"without\('he'\) is one string; give a list of words, \['he'\]"):
        WordList.of("debias").without("he")
    assert WordList.of(one) is one


def test_a_list_that_is_not_utf_8_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("他,m\n她,f\n".encode("gb18030"))
    with pytest.raises(InputError, match=r"words.txt is not UTF-8; convert the file from its encoding, e.g. iconv -f"):
        read_word_list(path)
    with pytest.raises(InputError, match=r"missing.txt cannot be read: No such file or directory"):
        read_word_list(tmp_path / "missing.txt")
