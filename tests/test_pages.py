"""The documentation: every block runs as it is written, paragraphs are short, and each page says whom it is for."""

import ast
import doctest
import re
from types import SimpleNamespace

import nltk
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import HiddenJudgements, Lexicon, PlantedCollection, Training, open_dataset
from tests import pages, tiny_models
from tests.conftest import small_pictures

LONGEST = 120
RST = [name for name in pages.PAGES if name != "README"]


# ------------------------------------------------------------------------------------------------------------ code


class Doc2Query:
    """Two words of a document as its query."""

    def __init__(self, **options):
        pass

    def __call__(self, documents):
        return documents.assign(querygen=documents["text"].str.split().str[:2].str.join(" "))


def _sentences(text):
    tree = nltk.Tree.fromstring("(ROOT (S (NP (PRP it)) (VP (VBZ is))))")
    return SimpleNamespace(sentences=[SimpleNamespace(constituency=tree)])


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """What takes the place of downloads: small planted collections, random models, a few words."""
    folder = tmp_path_factory.mktemp("local")
    # Enough of everything that a page asks for: people of both genders, questions that nobody answered.
    planted = PlantedCollection(seed=1, topics=10, passages=160, train_topics=10, depth=16)
    glove = folder / "glove.txt"
    words = " ".join(tiny_models.WORDS).split()
    glove.write_text("".join(f"{word} {' '.join(str((i * j) % 7 / 7) for j in range(1, 21))}\n" for i, word in enumerate(words)))
    annotated = folder / "annotated.csv"
    kinds = {"a man": "m", "a woman": "f", "a river": "n", "a king and a queen": "o"}
    rows = [(f"{i}{n}", f"where does {who} live in {n}", mark) for i, (who, mark) in enumerate(kinds.items()) for n in range(6)]
    annotated.write_text("".join(f"{','.join(row)}\n" for row in rows))
    return {
        "planted": planted,
        "train": open_dataset(planted, split="train"),
        "qna": open_dataset(PlantedCollection(seed=2, topics=40, passages=320, survivorship=1), split="full"),
        "squad": planted,
        "cross": str(tiny_models.build(folder / "cross")),
        "encoder": str(tiny_models.build(folder / "encoder", labels=None, layers=3)),
        "sentence": str(tiny_models.build_sentence_transformer(folder / "sentence")),
        "t5": str(tiny_models.build_t5(folder / "t5", extra=True)),
        "dnn": tiny_models.build_dnn(folder / "dnn"),
        **{name: str(tiny_models.build_published(folder / name, name=name)) for name in ("tct-colbert", "star", "adore")},
        "glove": str(glove),
        "annotated": str(annotated),
        "lexicon": Lexicon({"people": ["man", "woman", "singer"], "places": ["river", "city", "house"], "time": ["year", "day"]}),
        "short": Training(max_steps=2),
        "jieba": SimpleNamespace(lcut=list),
        "trees": lambda texts: ["(ROOT (NP (NN tea)))"] * len(texts),
        "stanza": SimpleNamespace(Pipeline=lambda *args, **options: _sentences),
        "Doc2Query": Doc2Query,
    }


def run(block, names):
    """Run a block in these names; the value of the last line of a schematic is a pipeline."""
    code = block.replaced()
    if code.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(code, names, f"<{block.page}: {block.section}>", None, None)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0
        names.update(test.globs)
        return
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    where = f"<{block.page}: {block.section}>"
    exec(compile(tree, where, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        if isinstance(value, pd.DataFrame):
            assert len(value), code


@pytest.fixture
def names(local, tmp_path, monkeypatch):
    """The names that all pages use, in an empty folder. Figures are made there, and drawn by other tests."""
    import matplotlib.pyplot as plt

    small_pictures(monkeypatch, laid_out=False)
    monkeypatch.chdir(tmp_path)
    for name, text in pages.FILES.items():
        (tmp_path / name).write_text(text)
    found = {"LOCAL": local}
    (shared,) = [block for block in pages.blocks("start") if block.section == "Names that all pages use"]
    run(shared, found)
    yield found
    plt.close("all")


def run_page(page, names, java, request):
    """Run blocks of a page: without ``java`` those that need no Terrier, with it the sections that do. Gives how many ran."""
    ran, over = 0, {block.section for block in pages.blocks(page) if block.java}
    for block in pages.blocks(page):
        if block.why_not_run or (block.java and not java) or (java and block.section not in over):
            continue
        if "LOCAL['shared']" in block.replaced():
            names["LOCAL"]["shared"] = request.getfixturevalue("shared_data")
        if "PisaIndex" in block.code:
            pytest.importorskip("pyterrier_pisa", reason="PISA is published for Linux on x86-64 only")
        run(block, dict(names, pt=pt) if block.directive == "schematic" else names)
        ran += 1
    return ran


PLAIN = [page for page in pages.PAGES if any(not block.java and not block.why_not_run for block in pages.blocks(page))]
JAVA = [page for page in pages.PAGES if any(block.java for block in pages.blocks(page))]


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_runs_as_it_is_written(page, names, request, capsys):
    assert run_page(page, names, False, request)


@pytest.mark.java
@pytest.mark.parametrize("page", JAVA)
def test_a_page_runs_over_terrier(page, names, request, capsys):
    assert run_page(page, names, True, request)


def test_every_stand_in_is_in_a_page():
    every = [block for page in pages.PAGES for block in pages.blocks(page)]
    written = "\n".join(block.code for block in every)
    assert [one for one in pages.STAND_INS if one not in written] == []
    assert [block.page for block in every if "irds:" in block.replaced()] == []


def test_what_is_not_run_says_why():
    for (page, line), why in pages.NOT_RUN.items():
        assert sum(line in block.code for block in pages.blocks(page)) == 1 and len(why.split()) > 5


def test_every_block_is_found():
    for page, path in pages.PAGES.items():
        mark = "```python" if path.suffix == ".md" else r"\.\. (?:code-block:: python|schematic::)"
        marks = re.findall(f"^ *{mark}$", path.read_text(), flags=re.MULTILINE)
        assert len(marks) == len(pages.blocks(page)), page
    assert sum(len(pages.blocks(page)) for page in pages.PAGES) > 80


@pytest.mark.parametrize("shift", [0, 100])
def test_the_direction_of_a_pool_does_not_depend_on_the_sign_of_its_scores(shift):
    """Log-probabilities are below 0; hidden documents, which the pool did not retrieve, are still its weakest."""
    rows = [(f"q{q}", f"d{d}", shift - 20.0 - d) for q in range(3) for d in (*range(5), *range(10, 40))]
    labels = [(f"q{q}", f"d{d}", int(d < 10)) for q in range(3) for d in range(40)]
    known = pd.DataFrame(labels, columns=["qid", "docno", "label"])
    judgements = HiddenJudgements(known, pd.DataFrame(rows, columns=["qid", "docno", "score"]), depth=5)
    names = {"judgements": judgements, "train": judgements.evidence(known[["qid", "docno"]])}
    (code,) = (block.code for block in pages.blocks("hidden_judgements") if "import auc" in block.code)
    *lines, measured = code.strip().splitlines()
    exec("\n".join(lines), names)
    assert eval(measured, names) == 1


def test_recipes_state_their_lines():
    """Lines of code: neither blank nor a comment or a docstring alone."""
    recipes = [block for block in pages.blocks("recipes") if block.directive == "python"]
    assert len(recipes) == 11
    for block in recipes:
        lines = [line for line in block.code.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
        stated = re.search(r"\((at most )?(\d+) lines\)$", block.section)
        assert len(lines) <= int(stated[2]) if stated[1] else len(lines) == int(stated[2]), (block.section, len(lines))


# ------------------------------------------------------------------------------------------------------------ text


def paragraphs(page):
    """The paragraphs of a page as plain text, items of lists and cells of tables included."""
    text = pages.PAGES[page].read_text(encoding="utf-8")
    if page == "README":
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        return [part for block in re.split(r"\n\s*\n", text) for part in re.split(r"\n(?=[-|])", block)]
    return [node.astext() for node in parsed(text, pages.PAGES[page])]


def parsed(text, path):
    """The paragraphs of reStructuredText; what Sphinx would turn into a mail address is refused."""
    pytest.importorskip("docutils", reason="the extra 'docs' is not installed")
    import docutils.frontend
    import docutils.nodes
    import docutils.utils
    from docutils.parsers.rst import Parser

    plain = re.sub(r":[a-z.]+:`([^`]*)`", r"``\1``", text)
    settings = docutils.frontend.get_default_settings(Parser)
    settings.report_level, settings.file_insertion_enabled = 5, False
    document = docutils.utils.new_document(str(path), settings)
    Parser().parse(plain, document)
    addresses = [node.astext() for node in document.findall(docutils.nodes.reference) if "mailto:" in node.get("refuri", "")]
    assert addresses == [], "write nDCG\\@10: this is no mail address"
    return document.findall(docutils.nodes.paragraph)


@pytest.mark.parametrize("path", sorted(pages.FOLDER.glob("*.inc")), ids=lambda path: path.stem)
def test_what_pages_include_has_no_mail_addresses(path):
    assert list(parsed(path.read_text(encoding="utf-8"), path))


@pytest.mark.parametrize("page", pages.PAGES)
def test_paragraphs_are_short(page):
    assert [text for text in paragraphs(page) if len(text.split()) > LONGEST] == []


@pytest.mark.parametrize("page", RST)
def test_a_page_says_whom_it_is_for_and_what_they_can_do_afterwards(page):
    assert re.match(r"For [^?!]+?\. After this page you can [^?!]+\.$", " ".join(paragraphs(page)[0].split()))


def test_every_page_is_reached_from_the_landing_page():
    def children(page):
        trees = re.findall(r"\.\. toctree::\n((?:   .*\n|\n)+)", pages.PAGES[page].read_text() + "\n")
        return [line.strip() for tree in trees for line in tree.splitlines() if line.strip() and not line.strip().startswith(":")]

    assert len(children("index")) <= 6
    reached, new = set(), ["index"]
    while new:
        reached |= set(new)
        new = [child for page in new for child in children(page) if child not in reached]
    assert reached == set(RST)


def test_code_of_the_landing_page_needs_no_scrolling():
    """At 1280 pixels, 92 characters of a block are seen."""
    code = re.findall(r"^\.\. code-block:: \w+\n((?: {3,4}.*\n|\n)+)", pages.PAGES["index"].read_text(), flags=re.MULTILINE)
    assert len(code) == 2 and max(len(line.strip()) for block in code for line in block.splitlines()) <= 92


BIASES = ["position", "survivorship", "gender", "wording", "pooling"]
TREATMENTS = ["rotation", "gender_mending", "equalize", "cet", "false_negatives"]


@pytest.mark.parametrize("page", BIASES + TREATMENTS)
def test_a_page_of_the_gallery_has_its_parts(page):
    text = pages.PAGES[page].read_text()
    (picture, *_) = re.findall(r"\.\. figure:: (\S+)", text)
    if page in BIASES:
        assert (pages.FOLDER / picture).stat().st_size < 100_000 and re.search("[Cc]ommand", text)
    for part in ("**The question.**", "How to read it", "What it costs\n---", "When not to use it\n---"):
        assert part in text, part
    ours = next(block for block in pages.blocks(page) if block.directive == "python")
    assert len([line for line in ours.code.splitlines() if line.strip() and not line.strip().startswith("#")]) <= 14


def test_pages_name_the_files_that_lie_beside_them_and_nothing_outside():
    """PyTerrier's site copies this folder, and nothing else of the repository."""
    texts = {path.name: path.read_text() for path in pages.FOLDER.glob("*.rst")}
    named = {name for text in texts.values() for name in re.findall(r"\.\. (?:figure|image|include):: (\S+)", text)}
    assert named == {path.name for path in pages.FOLDER.iterdir() if path.suffix in (".png", ".inc")}
    documents = {name for text in texts.values() for name in re.findall(r":doc:`(?:[^`<]*<)?([^`<>]+)>?`", text)}
    assert documents <= {path.stem for path in pages.FOLDER.glob("*.rst")}
    labels = [label for text in texts.values() for label in re.findall(r"^\.\. _([^:`]+):$", text, flags=re.MULTILINE)]
    assert [label for label in labels if not label.startswith("debias-")] == [], "labels are shared with other packages there"
