"""The coverage of the papers: rows have a source, a state of a closed list, code that exists, and the figures of the tables."""

import ast
import importlib
import inspect
import re
import runpy

import pytest

import pyterrier_debias
from tests.conftest import ROOT

COVERAGE = ROOT / "docs" / "coverage.rst"
#: What a row is about: a numbered item, a place in the text, or the paper that a measure is from.
SOURCE = re.compile(
    r"(Table|Figure|Equation|Section|Chapter|Appendix|Algorithm|Future work|Text|Released code|[A-Z][a-z]+ (and|et al)\b)"
)
STATES = re.compile(r"reproduced|reproduced where planted|cannot tell at this scale|not reproduced: \S.*")
#: What stands in the last column where nothing is computed.
NO_FIGURE = ("–", "not computed", "not run")
SECTIONS = ("Position", "Pooling", "Linguistic", "Survivorship", "Gender")
#: What must have a row of its own, by section: numbered items, and systems that the papers name.
NAMED = {
    "Position": ["Equation 4", "Equation 5", "Equation 6", *(f"Table {n}," for n in range(1, 6)), "Figure 2",
                 "Table 2, MATS of TK on MS MARCO", "Table 2, MATS of TK on SQuAD",
                 "Figure 1, positions of answers before and after rotation: SQuAD",
                 "Figure 1, positions of answers before and after rotation: MS MARCO", "Text, BERT_CAT", "Text, BERT_DOT",
                 "Future work, relation-aware", "Future work, encodings of dependency trees", "Text, re-ranking depth"],
    "Pooling": [*(f"Equation {n}," for n in range(1, 21)), "Algorithm 1", "Table 1,", "Table 2,",
                "Table 5,", "Table 6,", "Table 4, PROP", "Table 4, CEDR-KNRM", "Table 4, PARADE-Max", "Figure 1",
                "Figure 2", "Figure 3", "Figure 5", "Text, BM25", "Text, RepBERT", "Text, ADORE", "Text, ANCE", "Text, DML",
                "Text, RocketQA", "Text, RANCE (Prakash, Killingback and Zamani, SIGIR 2021)", "Table 3, passages of MS MARCO",
                "Table 3, documents of MS MARCO"],
    "Linguistic": ["Equation 3", "Equation 4", "Text, 45 indices", *(f"Figure {n}," for n in range(1, 6)), "Figure 2(b)",
                   "Table 1", "Table 2, SciFact", "Table 2, FiQA", "Table 2, NFCorpus", "Table 2, MS MARCO",
                   "Table 3, significance tests on SciFact",
                   *(f"Table {n}," for n in range(5, 9)), "Text, RankT5", "Text, Multiview", "Text, KernelWhitening", "Text, DPR",
                   "Text, BM25", "Text, ColBERT", 'Text, "LC as Rev Weight"'],
    "Survivorship": ["Figure 5.1", "Appendix A", "Section 3.4", "Section 3.5", "Figure 3.6", "Figure 3.7", "Future work 2",
                     "Future work, queries", "Future work, training", "Chapter 3, table of types by first relevant rank",
                     "Text, BM25's first 1,000", "Text, monoT5", "Text, ANCE", "Text, ColBERT"],
    "Gender": ["Table 1", "Table 2", "Text, QS1", "Text, QS2", "Rekabsaz et al. 2021, AdvBERT", "Rekabsaz et al. 2021, NFaiRR",
               "Rekabsaz et al. 2021, FaiRR", "Rekabsaz and Schedl 2020, RaB", "Text, the 22 columns",
               "Table 3, the column", *(f"Table 3, original and balanced judgements, QS{n}" for n in (1, 2)),
               *(f"Table 4, balanced judgements beside AdvBERT, QS{n}" for n in (1, 2))],
}  # fmt: skip


def read(text):
    """Section to its rows: what, here, state, figure."""
    found = {}
    for title, body in zip(*[iter(re.split(r"^(.+)\n-{4,}$", text, flags=re.MULTILINE)[1:])] * 2):
        table = re.split(r"\n\n(?! )", body.split(".. list-table::")[1])[0]
        cells = [re.split(r"\n     - ", block.strip()) for block in re.split(r"^   \* - ", table, flags=re.MULTILINE)[1:]]
        found[title.split(":")[0]] = [[cell.replace("\\@", "@").strip() for cell in row] for row in cells[1:]]
    return found


@pytest.fixture(scope="module")
def rows():
    return read(COVERAGE.read_text(encoding="utf-8"))


def resolve(name):
    """The object that a dotted name means: a public name, or a place inside the package.

    Raises:
        LookupError: If there is none.
    """
    first, *rest = name.split(".")
    if first in pyterrier_debias.__all__:
        found = getattr(pyterrier_debias, first)
    else:
        found = pyterrier_debias
        rest = [first, *rest]
    for part in rest:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError) as error:
                raise LookupError(f"{name}: {found!r} has no {part}") from error
        found = getattr(found, part)
    return found


def check(reference):
    """Refuse what does not exist: a file, an option of the command line, a name, or an argument of a call.

    Raises:
        LookupError: If it does not.
    """
    if re.match(r"[\w.]+/|full\.json|irds:", reference):
        if "/" in reference and not reference.startswith("irds:") and not (ROOT / reference).exists():
            raise LookupError(f"there is no file {reference}")
        return
    if reference.startswith(("pyterrier-debias ", "--")):
        return
    if reference in ("min_label", "first_ranks_by_type", "duplicates", "table_2") or reference.startswith("figure_"):
        return  # named beside the call that has them
    tree = ast.parse(reference, mode="eval").body
    call = tree if isinstance(tree, ast.Call) else None
    found = resolve(ast.unparse(call.func if call else tree))
    if call:
        parameters = inspect.signature(found).parameters
        known = set(parameters) if not any(p.kind == p.VAR_KEYWORD for p in parameters.values()) else None
        for keyword in call.keywords:
            if known is not None and keyword.arg not in known:
                raise LookupError(f"{reference}: there is no argument {keyword.arg}")
        for inner in (node for value in call.keywords for node in ast.walk(value.value) if isinstance(node, ast.Call)):
            check(ast.unparse(inner))


def test_rows_have_a_source_and_a_state_of_the_list(rows):
    assert tuple(rows) == SECTIONS
    for section, table in rows.items():
        assert len(table) > 20, section
        assert len({row[0] for row in table}) == len(table), section
        for row in table:
            assert len(row) == 4 and all(row), row
            assert SOURCE.match(row[0]), row[0]
            assert STATES.fullmatch(row[2]), row
            # No row stands for two tables, figures or equations.
            assert not re.match(r"(Tables|Figures|Equations)|\w+ \d+ and \d+", row[0]), row[0]


def test_every_named_item_has_a_row(rows):
    for section, items in NAMED.items():
        lacking = [item for item in items if not any(row[0].startswith(item) for row in rows[section])]
        assert lacking == [], section


def test_what_rows_name_exists(rows):
    for table in rows.values():
        for what, here, state, _ in table:
            references = re.findall(r"``([^`]+)``", here)
            for reference in references:
                check(reference)
            assert references or state.startswith("not reproduced") or "the programs" in here, what


def test_a_name_that_does_not_exist_is_found():
    for wrong in ("examples/none.py", "NoSuchStage", "RotatePassages(scopes='pair')", "position.formulas.mats.none",
                  "Training(augment=RotatePassages(x=1))"):  # fmt: skip
        with pytest.raises(LookupError):
            check(wrong)


def test_figures_are_those_of_the_tables(rows):
    """Each smallest detectable effect is computed anew, and stands in its row."""
    names = runpy.run_path(str(ROOT / "docs" / "detectable.py"))
    expected = {}
    for effect in names["EFFECTS"]:
        (row,) = [row for row in rows[effect.section] if row[0].startswith(effect.item) and row[3] not in NO_FIGURE]
        expected.setdefault((effect.section, row[0]), []).append(names["said"](effect))
    for section, table in rows.items():
        for what, _, state, figure in table:
            said = expected.get((section, what))
            assert figure == " / ".join(said) if said else figure in NO_FIGURE, (what, said)
            if state == "cannot tell at this scale":
                assert said, what


def test_detectable_effects_of_a_known_interval():
    """For many queries an effect of (1.96 + .84) standard errors is found in four of five samples."""
    names = runpy.run_path(str(ROOT / "docs" / "detectable.py"))
    effect = next(one for one in names["EFFECTS"] if one.table == "pooling_nfcorpus")
    estimate, low, high = names["found"](effect)
    assert (estimate, low, high) == (-0.0019, -0.0073, 0.0034)
    assert names["detectable"](effect) == pytest.approx((high - low) / 2 / 1.96 * (1.96 + 0.8416), rel=0.01)
    assert names["said"](effect) == "NFCorpus, nDCG@10: .008; paper .008 (MRR@10)"
    from dataclasses import replace

    with pytest.raises(ValueError, match="0 rows are"):
        names["found"](replace(effect, where={"correction": "none"}))
    with pytest.raises(ValueError, match="has no interval"):
        names["found"](replace(effect, column="p"))
