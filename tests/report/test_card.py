import ast
import re
import textwrap
from dataclasses import replace

import pandas as pd
import pyterrier as pt
import pytest
import yaml
from huggingface_hub import ModelCard, RepoCard

from pyterrier_debias import InputError, audit
from pyterrier_debias.report.card import BEGIN, END, merged
from pyterrier_debias.report.compare import compare
from pyterrier_debias.report.treatments import treatments
from pyterrier_debias.report.verdict import verdicts
from tests.report import toy
from tests.report.toy import BROKEN, CONTRAST, ORDER, PICKY
from tests.report.verdicts import found, made

AUTHORS = """---
# what the author wrote
license: apache-2.0
tags: [sentence-transformers]
model-index:
- name: mine
  results:
  - task: {type: retrieval}
    dataset: {name: NFCorpus, type: nfcorpus}
    metrics: [{type: ndcg, value: 0.3}]
---
# My ranker

Words of the author: naïve | pipes.

## Licence
"""


@pytest.fixture(scope="module")
def result():
    dataset = toy.collection()
    return audit(toy.systems(dataset), dataset, biases=[ORDER, PICKY, BROKEN])


def test_a_card_is_one_that_hugging_face_reads(result):
    card = ModelCard(result.card("longest"))
    (found,) = [r for r in card.data.eval_results if r.metric_type == "order-bias"]
    assert found.metric_value == result.findings.query("system == 'longest' and bias == 'order' and primary")["value"].item()
    assert found.metric_name == f"RR@10 ({CONTRAST})" and found.dataset_name == "toy"
    assert found.metric_args == {"low": -0.5, "high": -0.5} or found.metric_args["low"] <= found.metric_value
    assert card.data.tags == ["bias-audit", "pyterrier-debias"]
    assert "upside down, RR@10 changes by" in card.text
    assert "- Seed 0;" in card.text and "a: trec\\_eval" in card.text
    assert "broken: failed with an internal error (RuntimeError: the bias fell down)" in card.text


def test_a_card_of_one_system_tells_of_its_own_failures_and_of_those_of_a_bias():
    dataset = toy.collection()

    def run_out(row):
        raise RuntimeError("out of memory")

    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    systems = {"good": first, "bad": first >> dataset.text_loader() >> pt.apply.doc_score(run_out)}
    result = audit(systems, dataset, biases=[ORDER, BROKEN])
    own, others, whole = result.card("bad"), result.card("good"), result.card()
    assert "out of memory" in own and "out of memory" in whole and "out of memory" not in others
    assert all("broken: failed with an internal error" in card for card in (own, others, whole))


def test_without_a_system_all_are_shown_and_the_metadata_names_none(result):
    text = result.card()
    assert "| BM25 | order |" in text and "| longest | order |" in text and "it has no ranker to probe" in text
    assert "model-index" not in text
    with pytest.raises(InputError, match="system 'DPH' is not in this audit; use one of BM25, longest"):
        result.card("DPH")


def test_figures_are_not_shown_under_the_name_of_another_system(result):
    """Where of two systems only one has a primary figure, metadata of both would be that one's."""
    rows = result.findings
    one = replace(result, findings=rows.assign(value=rows["value"].where(rows["system"] == "longest")))
    assert "model-index" not in one.card() and "model-index" not in one.card("BM25")
    alone = replace(one, settings={**one.settings, "systems": ["longest"]}, findings=rows[rows["system"] == "longest"])
    for card in (one.card("longest"), alone.card()):
        assert [entry["name"] for entry in RepoCard(card).data.to_dict()["model-index"]] == ["longest"]


def test_a_saved_rankers_card_keeps_its_authors_words(result, tmp_path):
    (tmp_path / "README.md").write_text(AUTHORS, encoding="utf-8")
    path = result.write_card(tmp_path, "longest")
    text = path.read_text(encoding="utf-8")
    assert "# My ranker\n\nWords of the author: naïve | pipes.\n\n## Licence\n" in text
    data = yaml.safe_load(text.split("---")[1])
    assert data["license"] == "apache-2.0" and data["tags"] == ["sentence-transformers", "bias-audit", "pyterrier-debias"]
    tasks = [r["task"].get("name") for r in data["model-index"][0]["results"]]
    assert tasks == [None, "Bias audit by pyterrier-debias"]
    # Writing again changes nothing; what stands behind our part stays as well.
    path.write_text(text + "\nAn afterword.\n", encoding="utf-8")
    result.write_card(tmp_path, "longest")
    assert path.read_text(encoding="utf-8") == text + "\nAn afterword.\n"
    assert [f.name for f in tmp_path.iterdir()] == ["README.md"]


def test_a_later_audit_replaces_its_own_part_only(result):
    first = merged(AUTHORS, result, "longest")
    later = audit({"longest": toy.systems(toy.collection())["longest"]}, toy.collection(name="second"), biases=[ORDER])
    second = merged(first, later, "longest")
    assert "second" in second and "toy" not in second and second.count(BEGIN) == second.count(END) == 1
    assert second == merged(merged(AUTHORS, later), later)
    results = yaml.safe_load(second.split("---")[1])["model-index"][0]["results"]
    assert [r["dataset"]["name"] for r in results] == ["NFCorpus", "second"]


def test_metadata_names_the_system_whose_figures_it_shows(result):
    one, other = replace(result, findings=result.findings.assign(system="BM25")), result
    first = merged("", one, "BM25")
    index = yaml.safe_load(merged(first, other, "longest").split("---")[1])["model-index"]
    assert yaml.safe_load(first.split("---")[1])["model-index"][0]["name"] == "BM25"
    assert [entry["name"] for entry in index] == ["longest"]
    assert index == yaml.safe_load(merged("", other, "longest").split("---")[1])["model-index"]


def test_entries_without_results_are_their_authors(result):
    planned = AUTHORS.replace("---\n# My", "- name: planned\n  results: []\n---\n# My")
    index = yaml.safe_load(merged(planned, result, "longest").split("---")[1])["model-index"]
    assert [entry["name"] for entry in index] == ["mine", "planned"]


def test_line_ends_and_comments_of_the_author_stay(result, tmp_path):
    path = tmp_path / "README.md"
    path.write_bytes(b"\xef\xbb\xbf" + AUTHORS.replace("\n", "\r\n").encode())
    result.write_card(tmp_path, "longest")
    first = path.read_bytes()
    assert first.count(b"\n") == first.count(b"\r\n") and b"# My ranker\r\n\r\nWords of the author" in first
    assert ModelCard(first.decode()).data.license == "apache-2.0"
    # Metadata that the audit does not change is not written anew.
    commented = first.replace(b"license:", b"# a comment\r\nlicense:")
    path.write_bytes(commented)
    result.write_card(tmp_path, "longest")
    assert path.read_bytes() == commented


def test_the_model_index_is_the_one_that_hugging_face_writes(result):
    from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results

    index = yaml.safe_load(result.card("longest").split("---")[1])["model-index"]
    name, found = model_index_to_eval_results(index)
    assert name == "longest" and found and eval_results_to_model_index(name, found) == index


def test_an_empty_folder_gets_a_card(result, tmp_path):
    text = result.write_card(tmp_path, "longest").read_text()
    assert text == result.card("longest") and text.startswith("---\n") and text.rstrip().endswith(END)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"words\n{BEGIN}\n", "markers do not match"),
        (f"{END}\n{BEGIN}\n", "markers do not match"),
        (f"{BEGIN}{END}{BEGIN}{END}", "markers do not match"),
        ("---\ntags: [\n---\n", "not YAML"),
        ("---\n- a\n---\n", "not a YAML mapping"),
        ("---\nmodel-index: 3\n---\n", "model-index is not a list"),
        (AUTHORS.replace("{name: NFCorpus, type: nfcorpus}", "NFCorpus"), "Hugging Face cannot read .*model_index"),
    ],
)
def test_cards_that_cannot_be_merged_stay_as_they_are(result, tmp_path, text, message):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(InputError, match=message):
        result.write_card(tmp_path)
    assert (tmp_path / "README.md").read_text() == text


def test_folders_that_are_not_there(result, tmp_path):
    with pytest.raises(InputError, match="save the ranker there first"):
        result.write_card(tmp_path / "nowhere")


def test_the_verdict_leads_the_card():
    """Each bias' question, the answer, and what to do, of the card's own system."""
    worse, none = "BM25 >> mine", found("survivorship", 0.01, -0.01, 0.02, 0.6, 1.0, system="BM25 >> mine")
    findings = [found(system="BM25", value=-0.05), found(system=worse), none, found("linguistic", system=worse)]
    result = made(findings, systems=["BM25", worse], biases=["position", "survivorship", "linguistic", "pooling"])
    part = result.card(worse).split("### Verdict\n\n")[1].split("\n\n### Figures")[0]
    asked = re.findall(r"^\*\*(\w+: .*\?)\*\*$", part, re.MULTILINE)
    assert asked == [f"{one.bias}: {one.question}" for one in verdicts(result)] and len(asked) == 4
    assert "- Yes: nDCG@10 falls by 0.030 \\[0.010, 0.050\\] when passages are rotated." in part and "0.05 \\[" not in part
    assert "- No: any effect is below a rank correlation of 0.02 (on 50 queries)." in part
    assert "- What to do: No treatment has been shown to help yet." in part
    assert "- Not examined: the audit has no primary figure for this bias." in part
    several = treatments("position", worse, result.settings)
    assert all(f"- What to do: [{one.name}]({one.address}). " in part for one in several)
    codes = re.findall(r"^  ```python\n(.*?)^  ```$", part, re.MULTILINE | re.DOTALL)
    assert [textwrap.dedent(code).rstrip() for code in codes] == [f"{one.imports}\n{one.code}" for one in several] != []
    # Of several systems each is named; the code is for the last one that has the bias.
    both = result.card()
    assert "- BM25: Yes: nDCG@10 falls by 0.050" in both and "- BM25 >> mine: Yes: nDCG@10 falls by 0.030" in both
    assert both.count("```python") == len(several) and all(one.code.splitlines()[0] in both for one in several)


def test_a_name_with_markers_in_the_code(result):
    evil = f"BM25 >> a|b {BEGIN} `x`"
    card = made([found("gender", system=evil)], systems=[evil], biases=["gender"]).card()
    body = ModelCard(card).text
    assert body.count(BEGIN) == body.count(END) == 1 and ModelCard(merged(card, result)).text.count(BEGIN) == 1
    code, *_ = re.findall(r"^  ```python\n(.*?)^  ```$", card, re.MULTILINE | re.DOTALL)
    assert BEGIN not in code
    names = [node.value for node in ast.walk(ast.parse(textwrap.dedent(code))) if isinstance(node, ast.Constant)]
    assert evil in names


def test_a_system_is_found_under_the_name_that_the_user_gave(tmp_path):
    dataset, name = toy.collection(), "my\nranker\u202e"
    systems = toy.systems(dataset)
    result = audit({"BM25": systems["BM25"], name: systems["longest"]}, dataset, biases=[ORDER])
    shown = result.settings["systems"][1]
    assert shown != name and result.card(name) == result.card(shown) == result.write_card(tmp_path, name).read_text()
    pd.testing.assert_frame_equal(result.worst(system=name), result.worst(system=shown))
    assert compare(result, systems=(name, "BM25")).table["system"].unique().tolist() == [f"{shown} -> BM25"]


def test_a_name_with_a_number_begins_no_list():
    names = ["1. BM25", "2) mine", "3.5 billion"]
    card = made([found(system=name, text=f"{name}: it falls.") for name in names], systems=names, biases=["position"]).card()
    assert all(f"\n- {name}: it falls." in card for name in ("1\\. BM25", "2\\) mine", "3.5 billion"))


def test_data_is_no_markup(result):
    evil = f"a|b <b>*bold*</b> {BEGIN} [x](y)\n## heading"
    dataset = toy.collection()
    systems = {evil: toy.systems(dataset)["longest"]}
    text = audit(systems, dataset, biases=[ORDER]).card()
    _, _, body = text.split("---\n", 2)
    assert body.count(BEGIN) == 1 and "<b>" not in body and "\n## heading" not in text
    assert "a\\|b" in body and merged(text, result).count(BEGIN) == 1
