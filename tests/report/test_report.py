import base64
import re
import shutil
import subprocess

import pytest

from pyterrier_debias import audit
from pyterrier_debias.core.bias import Finding
from pyterrier_debias.report import html, text
from tests.biases import Made
from tests.report import toy
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


@pytest.mark.parametrize("width", [80, 100, 120])
def test_text_fits_the_terminal_and_says_everything(result, width):
    text = result.to_text(width)
    assert max(map(len, text.splitlines())) <= width
    assert "longest\n" in text and "-0.5000  [-0.500, -0.500]" in text
    flat = " ".join(text.split())
    assert "picky: BM25: it has no ranker to probe" in flat
    assert "broken: RuntimeError: the bias fell down" in flat
    assert "p corr.: p corrected for 3 primary tests (Holm); further tests of a bias" in flat


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
    assert ["b", "a;", "paired", "t-test"] in lines
    marks = text.convention_marks([f"convention {i}" for i in range(60)])
    assert len(set(marks.values())) == 60


def test_data_is_escaped_everywhere(result, page):
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert EVIL not in result.to_html()
    assert any(EVIL in text for text in page.text)
    assert "<script>" not in result._repr_html_()


def test_the_page_needs_no_network(page):
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "base"}
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith("data:")
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_figures_are_inside_with_words_for_those_who_cannot_see_them(result, page):
    images = [a for t, a in page.tags if t == "img"]
    assert [a["alt"] for a in images] == [figure.caption for _, figure in result.figures]
    for image in images:
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/svg+xml;base64" and b"<svg" in base64.b64decode(data)


def test_the_page_shows_every_finding_and_why_others_are_missing(result, page):
    text = " ".join(" ".join(page.text).split())
    # A row for each finding and each of five queries of five primary figures, and a head in each table.
    assert [t for t, _ in page.tags].count("tr") == len(result.findings) + 2 + 5 * (5 + 1)
    for sentence in result.findings["text"]:
        assert sentence in text
    assert "it has no ranker to probe" in text and "the bias fell down" in text
    assert "BM25" in text and "\N{MINUS SIGN}0.5000" in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_click_sorts_the_table_in_a_real_browser(result, tmp_path):
    probe = """<script>
      const errors = []; addEventListener("error", e => errors.push(e.message));
      const head = [...document.querySelectorAll("th button")].find(b => b.textContent === "value");
      const read = () => [...head.closest("table").tBodies[0].rows].map(r => r.cells[3].dataset.value).join(" ");
      head.click(); const up = read(); head.click();
      document.title = `up ${up} down ${read()} errors ${errors.length}`;
    </script>"""
    page = tmp_path / "page.html"
    page.write_text(result.to_html().replace("</body>", f"{probe}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    up, down = re.search(r"<title>up (.*) down (.*) errors 0</title>", done.stdout).groups()
    values = sorted(result.findings.query("bias == 'order'")["value"])
    assert [float(v) for v in up.split()] == values and [float(v) for v in down.split()] == values[::-1]


@pytest.mark.parametrize(
    ("p", "corrected", "verdict"),
    [
        (0.001, 0.04, "significant"),
        (0.04, 0.3, "only before correction"),
        (0.3, 1.0, "not significant"),
        (float("nan"), float("nan"), "not tested"),
    ],
)
def test_what_correction_takes_away_is_told_from_what_was_never_there(p, corrected, verdict):
    dataset = toy.collection()
    back = audit({"BM25": toy.bm25_system(dataset)}, dataset, biases=[toy.ORDER])
    back.findings.loc[back.findings["primary"], ["p", "p_corrected"]] = p, corrected
    assert re.search(rf'<span class="badge[^>]*>{verdict}</span>', back.to_html())


def test_intervals_are_drawn_to_scale():
    dataset = toy.collection()
    frame = audit(toy.systems(dataset), dataset, biases=[toy.ORDER]).findings
    frame.loc[frame["primary"], ["value", "low", "high"]] = [[-0.5, -1.0, 0.0], [0.5, 0.0, 1.0]]
    (group,) = html._strip(frame)
    first, second = group["findings"]
    scale = 100 / (group["high"] - group["low"])
    assert first["width"] == pytest.approx(scale, abs=0.02) and second["left"] == pytest.approx(group["zero"], abs=0.02)
    assert second["at"] - first["at"] == pytest.approx(scale, abs=0.02)
    assert group["zero"] == pytest.approx(50) and 0 < first["left"] and second["left"] + second["width"] < 100


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
    assert "corrected for 0 primary tests" in " ".join(back.to_text().split())
