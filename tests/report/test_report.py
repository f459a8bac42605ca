import base64
import copy
import itertools
import json
import pickle
import re
from dataclasses import replace
from html import unescape

import pandas as pd
import pytest

from pyterrier_debias import AuditResult, audit
from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.plots import GREY, PALETTE
from pyterrier_debias.report import html, text
from pyterrier_debias.report.pictures import DARK
from pyterrier_debias.report.templates import environment
from pyterrier_debias.report.treatments import Treatment
from pyterrier_debias.report.verdict import Answer, Verdict
from tests.biases import Made
from tests.report import toy
from tests.report.browser import in_a_browser, needs_chromium
from tests.report.html_page import Page

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def result():
    dataset = toy.collection(name=EVIL)
    systems = toy.systems(dataset)
    systems[EVIL] = systems["longest"]
    return audit(systems, dataset, biases=[toy.ORDER, toy.PICKY, toy.BROKEN], baseline="BM25")


@pytest.fixture(scope="module")
def page(result):
    return Page(result.to_html())


def test_numbers_read_alike():
    assert text.number(-0.0001) == "0.000"
    assert text.number(-0.0006) == "-0.001"
    assert text.number(float("nan")) == ""
    assert text.interval(-0.5, 0.25) == "[-0.500, 0.250]"
    assert text.interval(float("nan"), 1) == ""
    assert [text.probability(p) for p in (0.0, 0.00099, 0.001, 1.0, float("nan"))] == ["<0.001", "<0.001", "0.001", "1.000", ""]


def test_a_pickle_holds_what_json_holds_and_a_copy_everything(result):
    assert result.figures
    pickled, read = pickle.loads(pickle.dumps(result)), AuditResult.from_json(result.to_json())
    assert pickled.figures == read.figures == () and pickled.to_json() == read.to_json() == result.to_json()
    assert pickled.to_html() == read.to_html()
    for made in (copy.copy(result), copy.deepcopy(result)):
        assert type(made) is AuditResult and made.figures == result.figures and made.to_html() == result.to_html()
    deep = copy.deepcopy(result)
    deep.findings.loc[0, "value"] = deep.settings["seed"] = 7
    assert result.findings.loc[0, "value"] != 7 and result.settings["seed"] == 0


@pytest.mark.parametrize("width", [80, 100, 120])
def test_text_fits_the_terminal_and_says_everything(result, width):
    text = result.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    assert "longest\n" in text and "-0.5000  [-0.500, -0.500]" in text
    flat = " ".join(text.split())
    assert "picky: BM25: it has no ranker to probe" in flat
    assert "broken: RuntimeError: the bias fell down" in flat
    assert "FAILED WITH AN INTERNAL ERROR" in text and "SYSTEMS THAT RAISED" not in text
    assert flat.endswith(
        "* marks the primary test of a bias. p corr. is p after Holm's correction over the 5 primary tests. Further tests of a "
        "bias are corrected among themselves, and only for systems whose primary test is significant. All other figures are "
        "descriptive and have no p corr. Values below 0.05 are called significant."
    )


def test_what_was_corrected_is_told_where_something_was_tested(result):
    one = replace(result, settings={**result.settings, "correction": "fdr_bh"}, findings=result.findings[1:2])
    told = "p after Benjamini and Hochberg's correction over the 1 test. Values below 0.05 are called significant."
    assert text.correction_made(one) == told and f"<b>p corr.</b>: {told}" in unescape(one.to_html())
    none = replace(one, findings=one.findings.assign(p=float("nan")))
    for correction in ("fdr_bh", "two-step"):
        none.settings["correction"] = correction
        assert text.correction_made(none) == "" and none.to_text().rstrip().endswith("\n* marks the primary test of a bias.")
        assert "p corr.</b>:" not in none.to_html() and "p corr. is" not in none.card()


def test_systems_that_raised_are_not_called_an_internal_error(result):
    raised = result.failed.assign(system="mine", error="system 'mine' raised KeyError: 'x'")
    both = replace(result, failed=pd.concat([result.failed, raised], ignore_index=True))
    shown = both.to_text()
    heading, internal = "Systems that raised an error", "Failed with an internal error"
    assert shown.index(f"{heading.upper()}\n  - broken: system 'mine' raised") < shown.index(internal.upper())
    page = " ".join(Page(both.to_html()).text)
    assert page.index(heading) < page.index("raised KeyError") < page.index(internal)
    card = replace(result, failed=raised).card()
    assert "- broken: system 'mine' raised KeyError" in card and "internal error" not in card


def test_table_columns_are_aligned_and_empty_ones_left_out(result):
    lines = result.to_text(120).splitlines()
    start = lines.index("ORDER") + 2
    titles, rule = lines[start], lines[start + 1]
    assert "by chance" not in titles
    end = titles.index("value") + len("value")
    assert rule[end - 1] == "-" and rule[end : end + 2] == "  "
    rows = [line for line in lines[start + 2 : lines.index("", start + 2)] if line.startswith("  ")]
    assert len(rows) == len(result.findings.query("bias == 'order'"))
    assert all(re.match(r"-?\d\.\d{4}$", line[:end].split()[-1]) for line in rows)


def test_figures_under_different_conventions_carry_different_letters(result):
    lines = [line.split() for line in result.to_text(120).splitlines()]
    how = {line[-1] for line in lines if line[:2] == ["*", "RR@10"]}
    compared = {line[-1] for line in lines if "vs" in line and line[0] == "RR@10"}
    assert (how, compared) == ({"a"}, {"b"})
    assert ["b", "a;", "no", "query", "differs:", "not", "tested"] in lines
    marks = text.convention_marks([f"convention {i}" for i in range(60)])
    assert len(set(marks.values())) == 60


def test_data_is_escaped_everywhere(result, page):
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert EVIL not in result.to_html()
    assert any(EVIL in text for text in page.text)
    assert "<script>" not in result._repr_html_()


def test_numbers_stay_behind_names_and_queries_from_right_to_left(result):
    """An isolated name (bdi) does not reverse the numbers and signs behind it."""
    text = result.to_html()
    assert re.findall(r"<b>([^<]*)</b> <bdi>[^<]+</bdi>", text) and "<p><bdi>longest</bdi>: " in text
    named = environment().from_string("{{ text | named(['BM25', '<i>', 'דירוג']) }}")
    assert named.render(text="דירוג: 17.2 % of <i>") == "<bdi>דירוג</bdi>: 17.2 % of &lt;i&gt;"
    assert named.render(text="<i>: 5") == "<bdi>&lt;i&gt;</bdi>: 5" and named.render(text="tea: 5 <") == "tea: 5 &lt;"


@needs_chromium
def test_a_number_behind_a_hebrew_name_in_a_real_browser(tmp_path):
    sentence = environment().from_string("<p>{{ text | named(['דירוג']) }}</p></body>").render(text="דירוג: 17.2 % of them")
    places = """
      const last = document.querySelector("p").lastChild, range = document.createRange(), from = last.data.indexOf("17.2");
      range.setStart(last, from); range.setEnd(last, from + 4);
      top.document.title = range.getBoundingClientRect().left > document.querySelector("bdi").getBoundingClientRect().right;
    """
    assert in_a_browser(sentence, places, tmp_path) == "true"


def test_the_page_needs_no_network(page):
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "base"}
        if tag == "a":  # followed by a click only
            assert attributes["href"].startswith(("#", "https://"))
            continue
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith("data:")
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_figures_are_inside_with_words_for_those_who_cannot_see_them(result, page):
    images = [a for t, a in page.tags if t == "img"]
    assert [a["alt"] for a in images] == [figure.caption for _, figure in result.figures]
    for image in images:
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/svg+xml;base64" and b"prefers-color-scheme:dark" in base64.b64decode(data)


def test_the_page_shows_every_finding_and_why_others_are_missing(result, page):
    text = " ".join("".join(page.text).split())
    # A row for each finding and each of five queries of five primary figures; in each table a head, and a row for each system.
    tables = [a.get("class", "") for t, a in page.tags if t == "table"]
    systems = [a.get("class") for t, a in page.tags if t == "tr"].count("system")
    assert tables.count("") == 5 and systems >= 2 * 3
    assert [t for t, _ in page.tags].count("tr") == len(result.findings) + systems + len(tables) + 5 * 5
    for sentence in result.findings["text"]:
        assert sentence in text
    assert "it has no ranker to probe" in text and "the bias fell down" in text
    assert "BM25" in text and "\N{MINUS SIGN}0.5000" in text


@needs_chromium
def test_a_click_sorts_the_table_in_a_real_browser(result, tmp_path):
    probe = """
      const errors = []; addEventListener("error", e => errors.push(e.message));
      const head = [...document.querySelectorAll("th button")].find(b => b.textContent === "value");
      const bodies = [...head.closest("table").tBodies];
      const read = () => bodies.map(b => [...b.rows].slice(1).map(r => r.cells[2].dataset.value).join(" ")).join("|");
      head.click(); const up = read(); head.click();
      top.document.title = `up ${up} down ${read()} errors ${errors.length}`;
    """
    up, down = re.search(r"up (.*) down (.*) errors 0", in_a_browser(result.to_html(), probe, tmp_path)).groups()
    tested = result.findings.query("bias == 'order' and (primary or p_corrected.notna())")
    values = [sorted(own["value"]) for _, own in tested.groupby("system", sort=False)]
    assert [[float(v) for v in one.split()] for one in up.split("|")] == values
    assert [[float(v) for v in one.split()] for one in down.split("|")] == [one[::-1] for one in values]


NAME = "BM25 >> cross-encoder/ms-marco-MiniLM-L-6-v2-with-a-name-that-has-no-place-to-break-in-it"
TREATMENT = Treatment(
    "Train on rotated passages",
    "On SQuAD with answers planted early, the loss of .167 nDCG@10 under rotation was gone. Cost: .127 [.065, .185] on passages "
    "whose answers stand early.",
    "ranker = CrossEncoder('cross-encoder/ms-marco-MiniLM-L-6-v2', training=Training(augment=RotatePassages()))\nranker.fit(it)",
    "position_results",
)
YES = Answer("BM25", "yes", "Yes: 1.26 [0.87, 1.65] ranks on 50 queries (p = 0.003).", 1.26, 0.87, 1.65, "ranks")
UNSURE = Answer(
    "BM25 >> all-MiniLM-L6-v2", "cannot tell",
    "Cannot tell: -0.026 [-0.048, -0.005] nDCG@10 on 50 queries; about 130 would detect 0.02. The uncorrected p (0.016) "
    "points to yes.", -0.026, -0.048, -0.005, "nDCG@10", 130,
)  # fmt: skip
NO = Answer("BM25", "no", "No: any effect is below 0.012 nDCG@10.", 0.0, -0.012, 0.01, "nDCG@10")
MISSING = Answer("mine", "not examined", "Not examined: it has no ranker to probe")
QUESTION = "Does quality depend on how early labellers found an answer?"


def with_verdicts(result, monkeypatch, *made):
    """The page of an audit with verdicts of ours."""
    monkeypatch.setattr(html, "verdicts", lambda _: list(made))
    return result.to_html()


def test_each_outcome_has_a_mark_of_its_own_and_what_to_do(result, monkeypatch):
    verdict = Verdict("x", QUESTION, (YES, UNSURE, NO, MISSING), (TREATMENT,))
    page = Page(with_verdicts(result, monkeypatch, verdict, Verdict("y", EVIL, (YES,), (), "No treatment helps.")))
    marks = [a["class"] for _, a in page.tags if a.get("class", "").startswith("mark ")]
    assert marks[:5] == ["mark yes", "mark cannot-tell", "mark no", "mark not-examined", "mark yes"]
    told = " ".join(" ".join(page.text).split())
    assert "BM25 Yes: 1.26 [0.87, 1.65] ranks on 50 queries (p = 0.003)." in told
    assert f"What to do: {TREATMENT.name} {TREATMENT.sentence}" in told and "What to do: No treatment helps." in told
    assert f"{TREATMENT.imports}\n\n{TREATMENT.code}" in page.text
    assert TREATMENT.address in [a.get("href") for _, a in page.tags]
    first = next(i for i, (tag, _) in enumerate(page.tags) if tag == "h1")
    between = {tag for tag, _ in page.tags[first : page.tags.index(("div", {"class": "card verdict"}))]}
    assert between == {"h1", "section", "h2"}  # the verdicts come first


def test_a_phone_leaves_out_what_the_sections_say(result, monkeypatch):
    told = "Yes: down by 1.0 ranks; nDCG@10 changes by -0.03. Cost: nDCG@10 falls by 0.01 from BM25."
    moved = replace(YES, sentence=told, asides=("; nDCG@10 changes by -0.03",))
    few = ", too few to detect less than 0.13"
    wide = f"Cannot tell: 0.01 [-0.06, 0.07] nDCG@10 on 81 queries{few}; about 3,400 would detect 0.02."
    lists = replace(MISSING, sentence="Not examined: it has no ranker to probe; name one.")
    unsure = replace(UNSURE, sentence=wide, asides=(few,))
    text = with_verdicts(result, monkeypatch, Verdict("x", QUESTION, (moved, unsure, UNSURE, lists)))
    left_out = re.findall(r'<span class="less">(.*?)</span>', text)
    assert left_out == ["; nDCG@10 changes by -0.03", few]
    assert re.search(r"max-width: 44rem\) \{.*?\.less \{ display: none", text, re.DOTALL)
    told = " ".join("".join(Page(text).text).split())
    assert moved.sentence in told and wide in told and lists.sentence in told


def test_systems_of_which_the_same_is_said_share_a_line(result, monkeypatch):
    text = with_verdicts(result, monkeypatch, Verdict("x", QUESTION, (NO, replace(NO, system="mine"), YES)))
    assert '<p class="who">BM25, mine</p>' in text and text.count('<div class="answer">') == 2


def test_intervals_are_drawn_to_scale():
    answers = [
        replace(NO, effect=-0.5, low=-1.0, high=0.0), replace(NO, effect=0.5, low=0.0, high=1.0),
        YES, replace(YES, low=float("nan")), MISSING,
    ]  # fmt: skip
    first, second, other, bare, none = html._strips(answers)
    assert first["width"] == second["width"] and second["left"] == first["zero"] == pytest.approx(50)
    assert second["at"] - first["at"] == pytest.approx(first["width"], abs=0.02)
    assert 0 < first["left"] and second["left"] + second["width"] < 100
    # Another unit has another scale, from zero on.
    assert 0 < other["zero"] < other["left"] < other["at"] < 100 and "left" not in bare and none is None


def test_headings_are_in_order_and_links_lead_somewhere(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in itertools.pairwise(levels))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    leads = [a["href"][1:] for t, a in page.tags if t == "a" and a["href"].startswith("#")]
    assert set(leads) <= set(ids) and "methods" in leads and "bias-1" in leads
    assert all("scope" in a for t, a in page.tags if t == "th")
    order = [a["id"] for t, a in page.tags if t == "h2"]
    assert order[0] == "verdict" and order[-1] == "methods"


def luminance(colour):
    digits = colour.lstrip("#")
    parts = [int(2 * digits[i] if len(digits) == 3 else digits[2 * i : 2 * i + 2], 16) / 255 for i in range(3)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough_in_light_dark_and_print(result):
    """WCAG 2.2, 1.4.3 and 1.4.11: 4.5 for text, 3 for marks and lines of charts."""
    schemes = re.findall(r":root \{([^}]*)\}", result.to_html())
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", scheme))
        for ink, ground in itertools.product(("ink", "soft", "alarm", "calm"), ("page", "card", "track")):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground, scheme)
        for name in ("alarm", "calm"):
            assert contrast(colours[name], colours[f"{name}-back"]) >= 4.5
    dark = DARK["#ffffff"]
    assert {one.lower() for one in (*PALETTE, GREY)} <= set(DARK)
    assert min(contrast(DARK[one.lower()], dark) for one in (*PALETTE, GREY)) >= 3 and contrast(DARK["#000000"], dark) >= 4.5


WIDER = """
  const told = [];
  const name = e => `${e.tagName}.${e.className} in ${e.parentElement.className}: ${e.textContent.trim().slice(0, 40)}`;
  const look = when => {
    for (const e of document.querySelectorAll("main, main *:not(.unseen)")) {
      const style = getComputedStyle(e), own = e.getBoundingClientRect(), around = e.parentElement.getBoundingClientRect();
      if (!own.width || ["inline", "contents"].includes(style.display)) continue;
      const past = Math.max(e.scrollWidth - e.clientWidth, own.right - around.right, around.left - own.left);
      if (past > 1) told.push(`${when}: ${name(e)} by ${past}`);
    }
    if (document.documentElement.scrollWidth > innerWidth) told.push(`${when}: the page`);
  };
  look("folded");
  const end = document.querySelector("section").getBoundingClientRect().bottom;
  for (const one of document.querySelectorAll("details")) one.open = true;
  look("unfolded");
  top.document.title = JSON.stringify({wide: innerWidth, told, end});
"""


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_its_place_in_a_real_browser(width, monkeypatch, tmp_path):
    dataset = toy.collection()
    long = audit({NAME: toy.bm25_system(dataset), "mine": toy.bm25_system(dataset)}, dataset, biases=[toy.ORDER, toy.PICKY])
    long.findings["convention"] += f"; {NAME}"
    made = Verdict("order", QUESTION, (replace(YES, system=NAME), UNSURE, NO, MISSING), (TREATMENT,))
    found = json.loads(in_a_browser(with_verdicts(long, monkeypatch, made), WIDER, tmp_path, width))
    assert found["wide"] == width and found["told"] == []


@needs_chromium
@pytest.mark.parametrize(("width", "height"), [(390, 2 * 844), (1280, 900)])
def test_the_verdict_is_seen_at_once_in_a_real_browser(width, height, result, monkeypatch, tmp_path):
    made = [Verdict(str(i), QUESTION, (YES, UNSURE), (TREATMENT, TREATMENT) if i < 2 else ()) for i in range(5)]
    found = json.loads(in_a_browser(with_verdicts(result, monkeypatch, *made), WIDER, tmp_path, width))
    assert 0 < found["end"] <= height


def test_descriptive_figures_are_folded_and_say_so():
    dataset = toy.collection()
    back = audit(toy.systems(dataset), dataset, biases=[toy.ORDER], baseline="BM25")
    own = back.findings["contrast"].str.endswith(", vs BM25")
    assert own.sum() == 1 and not back.findings.loc[own, "primary"].any()
    back.findings.loc[own, ["p", "p_corrected"]] = 0.3, float("nan")
    back.findings.loc[back.findings["primary"], "detectable"] = 0.1234
    page = Page(back.to_html())
    cells = [text.strip() for text in page.text if text.strip()]
    assert cells.count("descriptive") == 1 and cells.count("0.123") == back.findings["primary"].sum()
    # What was tested comes first, and all others are folded under their number.
    others = f"{len(back.findings) - back.findings['primary'].sum()} other figures"
    assert cells.index("Tested figures") < cells.index("0.123") < cells.index(others) < cells.index("descriptive")


def test_the_page_is_the_same_for_the_same_audit(result):
    assert result.to_html() == result.to_html()


def test_findings_without_a_group_and_names_that_look_like_formulas(tmp_path):
    dataset = toy.collection()

    def run(context):
        return [Finding(system.name, "mine", "m", "", 0.5) for system in context.systems]

    systems = {r"price $\foo$": toy.bm25_system(dataset)}
    bare = audit(systems, dataset, biases=[Made("mine", run)])
    assert "0.500" in bare.to_text() and "0.500" in bare.to_html()
    named = audit(systems, dataset, biases=["pooling"], qrels=dataset.get_qrels().assign(label=[0, 1] * 3))
    assert r"price $\foo$" in named.to_html()
    assert (named.save(tmp_path / "saved") / "audit.json").is_file()


def test_an_audit_without_figures_or_tests_renders():
    dataset = toy.collection()
    back = audit({"BM25": toy.bm25_system(dataset)}, dataset, biases=[toy.ORDER])
    back.findings[["value", "low", "high", "p", "p_corrected"]] = float("nan")
    back.figures = ()
    Page(back.to_html())
    assert back.to_text().endswith("\n* marks the primary test of a bias.")
