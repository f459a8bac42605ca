"""The documentation's own directives do what those of PyTerrier's site do, in a project of one page."""

import inspect
import pkgutil
import re
import runpy
import sys
from pathlib import Path

import pytest

import pyterrier_debias

pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")

DOCS = Path(__file__).resolve().parent.parent / "docs"

PAGE = """
Rotation
========

.. py:class:: pyterrier_debias.RotatePassages

   Rotates.

Use it
------

.. related:: pyterrier_debias.RotatePassages

.. schematic::
   :show_code:
   :input_columns: qid, query, docno, text

   from pyterrier_debias import RotatePassages
   # FOLD
   (
       RotatePassages()
       % 10
   )

.. cite.dblp:: journals/corr/abs-2101-06980
"""


def built(tmp_path, page, *options):
    """The page as HTML, and what Sphinx complained of."""
    from sphinx.cmd.build import build_main

    source = tmp_path / "source"
    source.mkdir()
    (source / "conf.py").write_text(f"import sys\nsys.path.insert(0, {str(DOCS)!r})\nextensions = ['directives']\n")
    (source / "index.rst").write_text(page)
    log = tmp_path / "log"
    code = build_main(["-q", "-w", str(log), *options, str(source), str(tmp_path / "out")])
    sys.path[:] = [name for name in sys.path if name != str(DOCS)]
    return code, (tmp_path / "out" / "index.html").read_text(), log.read_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_directives(tmp_path):
    code, html, log = built(tmp_path, PAGE)
    assert (code, log) == (0, "")
    assert "pts-transformer" in html and "RotatePassages" in html
    text = re.sub(r"<[^>]+>", "", html)
    assert "RotatePassages()\n    % 10" in text and "from pyterrier_debias import" not in text
    assert 'href="https://dblp.org/rec/journals/corr/abs-2101-06980.html"' in html
    # The class's documentation leads to the section.
    assert re.search(r'<div class="related admonition seealso">.*?href="#use-it">Use it</a>', html, re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_schematic_that_cannot_be_drawn_is_named(tmp_path):
    page = "Page\n====\n\n.. schematic::\n\n   import pyterrier_debias\n   pyterrier_debias.Rotate()\n"
    _, _, log = built(tmp_path, page)
    assert re.search(r"index\.rst:4: .*this schematic cannot be drawn: AttributeError: .*'Rotate'", log)


def cited():
    """Public names to the keys of DBLP in their docstrings."""
    told = {name: getattr(pyterrier_debias, name).__doc__ for name in pyterrier_debias._PUBLIC}
    return {name: keys for name, doc in told.items() if (keys := re.findall(r"\.\. cite\.dblp:: (\S+)", doc))}


def test_public_classes_cite_their_papers():
    """Each of the five biases' papers, by the key that DBLP gives to an arXiv number."""
    keys = cited()
    papers = {
        "RotatePassages": "2101.06980", "SurvivorshipCurve": "2204.12852", "ARaB": "2005.00372", "NFaiRR": "2104.13640",
        "CETReranker": "2209.05072", "EqualizeReranker": "2504.07115",
    }  # fmt: skip
    for name, number in papers.items():
        assert keys[name] == [f"journals/corr/abs-{number.replace('.', '-')}"]
    assert all(re.fullmatch(r"journals/corr/abs-\d{4}-\d{5}|conf/\w+/\w+", key) for one in keys.values() for key in one)


def test_every_public_class_has_a_related_section():
    """A section of a page is about it, to which its API page links; and no such line names what does not exist."""
    pages = (Path(pyterrier_debias.__file__).parent / "pt_docs").glob("*.rst")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    targets = {line.partition(":: ")[2] for line in lines if line.startswith(".. related:: ")}
    assert [name for name in targets if not callable(pkgutil.resolve_name(name))] == []
    further = {name for names in runpy.run_path(str(DOCS / "build.py"))["FURTHER"].values() for name in names}
    named = {name.partition(".")[2] for name in targets}
    assert named <= {*pyterrier_debias._PUBLIC, *further}, "a name without an API page"
    classes = {f"pyterrier_debias.{n}" for n in pyterrier_debias._PUBLIC if inspect.isclass(getattr(pyterrier_debias, n))}
    # Errors are told of where they are raised.
    assert len(classes) > 60 and classes - targets == {"pyterrier_debias.InputError"}


def test_every_ranker_and_every_way_of_training_cites_one():
    from pyterrier_debias.rankers.base import Ranker
    from pyterrier_debias.rankers.trained_reranker import TrainedRanker

    public = {name: getattr(pyterrier_debias, name) for name in pyterrier_debias._PUBLIC}
    kinds = {name for name, kind in public.items() if inspect.isclass(kind) and issubclass(kind, (Ranker, TrainedRanker))}
    # The paper of the one has no number at arXiv.
    assert len(kinds) > 10 and kinds - set(cited()) == {"BiasAwareReranker"}
