"""The code of the documentation: where each block stands, and what takes the place of downloads when tests run it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "pyterrier_debias" / "pt_docs"
#: Name to file: README, and every page.
PAGES = {"README": ROOT / "README.md", **{path.stem: path for path in sorted(FOLDER.glob("*.rst"))}}

#: What stands in a page, and the expression that takes its place: everything that would be downloaded or is large. ``LOCAL``
#: is the mapping that ``tests/test_pages.py`` makes.
STAND_INS = {
    # collections
    "open_dataset('planted')": "LOCAL['planted']",
    "PlantedCollection(train_topics=200)": "LOCAL['planted']",
    "PlantedCollection(seed=0, topics=120, position=1)": "LOCAL['planted']",
    "PlantedCollection(seed=1, topics=30, train_topics=200, position=1)": "LOCAL['planted']",
    "open_dataset('irds:beir/nfcorpus/test')": "LOCAL['planted']",
    "open_dataset('irds:beir/nfcorpus/train')": "LOCAL['train']",
    "'irds:beir/nfcorpus/test'": "LOCAL['planted']",
    "open_dataset(f'irds:msmarco-qna/{split}')": "LOCAL['qna']",
    "open_dataset('irds:msmarco-qna/eval')": "LOCAL['qna']",
    "'data/msmarco_trec_dl'": "LOCAL['shared'] / 'msmarco_trec_dl'",
    "'data/dev-v2.0.json'": "LOCAL['squad']",
    "'data/xquad.en.json'": "LOCAL['shared'] / 'squad' / 'xquad.en.json.gz'",
    "'data/squad/dev-v1.1.json'": "LOCAL['squad']",
    # models
    "'all-MiniLM-L6-v2'": "LOCAL['sentence']",
    "'sentence-transformers/all-MiniLM-L6-v2'": "LOCAL['sentence']",
    "'cross-encoder/ms-marco-MiniLM-L6-v2'": "LOCAL['cross']",
    "'distilbert-base-uncased'": "LOCAL['encoder']",
    "'colbert-200000.dnn', base='bert-base-uncased'": "LOCAL['dnn'] / 'colbert.dnn', base=LOCAL['dnn'] / 'base'",
    "'bert-base-uncased'": "LOCAL['encoder']",
    "'castorini/tct_colbert-msmarco'": "LOCAL['tct-colbert']",
    "'folder/of/star'": "LOCAL['star']",
    "'folder/of/adore-star'": "LOCAL['adore']",
    "'t5-base'": "LOCAL['t5']",
    "batch_size=1, accumulation=16": "batch_size=2",
    "'glove.42B.300d.txt'": "LOCAL['glove']",
    "MonoT5ReRanker(batch_size=1)": "MonoT5ReRanker(tok_model=LOCAL['t5'], model=LOCAL['t5'], batch_size=1, verbose=False)",
    "device='cuda:1', ": "",
    "audit(dataset=collection) ": "audit(collection.retriever(), collection)",
    # lexicons, annotations, other people's packages
    "LexiconProfiles('LIWC.dic', columns='paper')": "LexiconProfiles(LOCAL['lexicon'])",
    "'queries_gender_annotated.csv'": "LOCAL['annotated']",
    "import jieba ": "jieba = LOCAL['jieba']",
    "import stanza": "stanza = LOCAL['stanza']",
    "parser='stanford'": "parser=LOCAL['trees']",
    "StanfordParser(grammar='cased', cache='trees')": "LOCAL['trees']",
    "from pyterrier_doc2query import Doc2Query": "Doc2Query = LOCAL['Doc2Query']",
    # long trainings
    "max_steps=1000": "max_steps=2",
    "max_steps=200": "max_steps=2",
    "max_steps=100,": "max_steps=2,",
    "epochs=2": "max_steps=2",
    "epochs=3": "max_steps=2",
    "training=Training(augment=": "training=Training(max_steps=2, augment=",
    "seeds=(0, 1, 2)": "seeds=(0, 1)",
    "untrained = CrossEncoder(encoder)": "untrained = CrossEncoder(encoder, training=LOCAL['short'])",
    "mended = CrossEncoder(model, head='mean')": "mended = CrossEncoder(model, head='mean', training=LOCAL['short'])",
}

#: Files that pages read from the working folder.
FILES = {
    "docs.tsv": "d1\thttp://a\tA title\tPress the red button to stop.\nd2\thttp://b\tA title\tPress green to start.\n",
    "my_queries.tsv": "q1\thow do I stop the machine\n",
    "judged.txt": "q1 0 d1 1\n",
    "codes.tsv": "qid\tcode\ntest01\t0\ntest02\t1\ntest03\t1\n",
    "first_stage.trec": "q1 Q0 d1 0 2.5 bm25\nq1 Q0 d2 1 1.5 bm25\n",
}

#: Blocks that no test runs: a page, a line of the block, and why. A missing download is no reason: see above.
NOT_RUN = {
    ("processes", "import ray"): "reads folders that are not there; tests/test_ray.py maps frames in the same way",
    ("processes", "def counted"): "needs the block above; tests/test_ray.py merges the same sums",
}

#: Pages on which every block needs Terrier. Elsewhere, the blocks of a section that names it do.
JAVA_PAGES = ("README", "terrier")
_JAVA = re.compile(r"pt\.terrier|TerrierCollection")


@dataclass(frozen=True)
class Block:
    """A block of Python."""

    page: str
    section: str
    code: str
    directive: str
    java: bool = False

    def replaced(self) -> str:
        """The code with local data and tiny models in the place of downloads."""
        code = self.code
        for written, stand_in in STAND_INS.items():
            code = code.replace(written, stand_in)
        return code

    @property
    def why_not_run(self) -> str | None:
        """Why no test runs it; None where one does."""
        return next((why for (page, line), why in NOT_RUN.items() if page == self.page and line in self.code), None)


def _sections(text: str, markdown: bool) -> list[tuple[str, str]]:
    """Title and text of each part."""
    if markdown:
        return [("", text)]
    found = re.split(r"^(.+)\n[-=~]{4,}$", text, flags=re.MULTILINE)
    return list(zip(["", *found[1::2]], found[::2]))


def _blocks(text: str, markdown: bool) -> list[tuple[str, str]]:
    """Directive and code of each block, in order."""
    if markdown:
        return [("python", code) for code in re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)]
    found = re.findall(r"^\.\. (code-block:: python|schematic::)\n((?:    .*\n|[ \t]*\n)+)", text + "\n", flags=re.MULTILINE)
    codes = [(name, textwrap.dedent(code).replace(":show_code:\n", "").lstrip("\n")) for name, code in found]
    return [("schematic" if name == "schematic::" else "python", code) for name, code in codes]


def blocks(page: str) -> list[Block]:
    """The blocks of a page."""
    markdown = PAGES[page].suffix == ".md"
    found = []
    for title, text in _sections(PAGES[page].read_text(encoding="utf-8"), markdown):
        codes = _blocks(text, markdown)
        java = page in JAVA_PAGES or any(_JAVA.search(code) for _, code in codes)
        found += [Block(page, title, code, name, java) for name, code in codes]
    return found
