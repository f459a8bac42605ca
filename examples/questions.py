"""Questions whose answer paragraph is known, and lists for labellers. Programs import this module.

The lists are those of BM25, of the lowest layer of a bi-encoder, and of both together (reciprocal rank fusion). With them a
ranker can be measured on questions that it did not choose itself.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from workshop import keep_layers

from pyterrier_debias import BiEncoder, InputError
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.data.answers import read_squad
from pyterrier_debias.data.base import Collection
from pyterrier_debias.report.first_stage import PisaIndexer, pisa_installed
from pyterrier_debias.report.models import find_model

#: Retrievers of the lists that labellers see.
BM25, ONE_LAYER, BOTH = "BM25", "one layer", "both"
#: The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009).
FUSION = 60


@dataclass(frozen=True)
class Questions:
    """A SQuAD file as a collection.

    Attributes:
        name: Name of the file.
        collection: The paragraphs of the file; each is a passage.
        topics: ``qid``, ``query`` and ``article``.
        qrels: The paragraph that each question was asked about.
    """

    name: str
    collection: Collection
    topics: pd.DataFrame
    qrels: pd.DataFrame

    @classmethod
    def of(cls, path: str | Path, most: int | None = None) -> "Questions":
        """Read a file. With ``most``, every n-th question is kept, so that at most ``most`` questions are left."""
        collection = read_squad(path)
        qrels = collection.get_qrels()
        titles = collection.get_corpus().set_index("docno")["title"]
        about = qrels.set_index("qid")["docno"].map(titles)
        topics = collection.get_topics().assign(article=lambda frame: frame["qid"].map(about))
        if most is not None:
            topics = topics.iloc[:: max(1, len(topics) // most)].head(most).reset_index(drop=True)
        return cls(collection.name, collection, topics, qrels[qrels["qid"].isin(topics["qid"])].reset_index(drop=True))

    def with_paragraphs(self) -> pd.DataFrame:
        """Each question with the text of its paragraph, as candidates to train on."""
        own = self.topics.merge(self.qrels[["qid", "docno"]], on="qid").assign(score=0.0, rank=0)
        return self.collection.text_loader()(own)


def train_and_test(train: str, test: str, most: int | None = None) -> tuple[Questions, Questions]:
    """The questions of two SQuAD files; at most ``most`` questions of the second.

    Raises:
        InputError: If the files have articles in common.
    """
    learned, tested = Questions.of(train), Questions.of(test, most)
    if set(learned.topics["article"]) & set(tested.topics["article"]):
        raise InputError("--train and --test have articles in common; name files whose questions do not share paragraphs")
    return learned, tested


def file_names(train: str | None, test: str | None) -> dict[str, str | None]:
    """The names of both files for the record of a run, without folders, because the files may be moved."""
    return {name: value and Path(value).name for name, value in (("train", train), ("test", test))}


def lowest_layers(model: str, layers: int | None, folder: Path) -> str:
    """The lowest layers of an encoder, kept in a folder, without dropout; the encoder itself if all layers are kept."""
    source = find_model(model, "bi").source
    if layers is None:
        return source
    cut = folder / f"encoder-{layers}"
    if not cut.is_dir():
        keep_layers(source, layers, cut, dropout=0.0)
    return str(cut)


def bi_encoder(model: str, layers: int | None, folder: Path, *, max_length: int | None = None, **options: Any) -> BiEncoder:
    """The lowest layers of a bi-encoder with mean pooling; the published model if all layers are kept."""
    given = {} if layers is None else {"pooling": "mean", "similarity": "cosine"}
    return BiEncoder(lowest_layers(model, layers, folder), max_length=max_length, **given, **options)


def over_layer(questions: Questions, model: str, folder: Path, **options: Any) -> BiEncoder:
    """A linear layer over the vectors of an encoder's lowest layer; before training it ranks by these vectors.

    A vector is the mean over a text's tokens. Each text is encoded once, and its vector is stored in the folder.
    """
    from fixed_vectors import adapter, read_once

    encoder = lowest_layers(model, 1, folder)
    texts = {"query": questions.topics["query"].tolist(), "document": questions.collection.get_corpus()["text"].tolist()}
    for task, own in texts.items():
        read_once(encoder, task, list(dict.fromkeys(own)), folder / "vectors")
    return adapter(encoder, dropout=0.0, **options)


def bm25(questions: Questions, depth: int) -> pd.DataFrame:
    """BM25 by PISA over all paragraphs.

    Raises:
        InputError: If PISA is not installed.
    """
    if not pisa_installed():
        raise InputError("BM25 needs PISA: pip install 'pyterrier-debias[pisa]' (Linux on x86-64)")
    with tempfile.TemporaryDirectory() as folder:
        return PisaIndexer(Path(folder), depth)(questions.collection.get_corpus_iter())(questions.topics)


def dense(questions: Questions, ranker: BiEncoder, depth: int) -> pd.DataFrame:
    """The results of a bi-encoder over all paragraphs."""
    return ranker.retriever(questions.collection, num_results=depth)(questions.topics)


def fused(runs: Sequence[pd.DataFrame], depth: int) -> pd.DataFrame:
    """Reciprocal rank fusion: a document's score is the sum over runs of 1 / (60 + its rank from 1)."""
    parts = [run.assign(score=1 / (FUSION + 1 + run["rank"]))[["qid", "docno", "score"]] for run in runs]
    both = pd.concat(parts, ignore_index=True).groupby(["qid", "docno"], as_index=False)["score"].sum()
    out = ranked(both)
    return out[out["rank"] < depth].reset_index(drop=True)


def kept(path: Path, make: Any) -> pd.DataFrame:
    """A run that an earlier call stored in a file, or a new one, which is then stored there."""
    if path.is_file():
        return pt.io.read_results(str(path))
    run = make()[["qid", "docno", "score", "rank"]]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        pt.io.write_results(run, str(made))
        write_whole(path, made.read_bytes())
    # Read the file back as later calls do: scores in files have fewer digits.
    return pt.io.read_results(str(path))


def lists(questions: Questions, model: str, folder: Path, *, depth: int) -> Mapping[str, pd.DataFrame]:
    """Lists that labellers could have been shown, each with ``depth`` documents, the first document first.

    Args:
        questions: The questions.
        model: The encoder whose lowest layer makes one of the lists.
        folder: The folder where runs are stored.
        depth: Documents per question.

    Returns:
        Name to run.
    """
    at = folder / "lists" / questions.name
    deep = 5 * depth
    lexical = kept(at / "bm25.trec.gz", lambda: bm25(questions, deep))
    layer = kept(at / "one_layer.trec.gz", lambda: dense(questions, over_layer(questions, model, folder), deep))
    runs = {BM25: lexical, ONE_LAYER: layer, BOTH: fused([lexical, layer], depth)}
    return {name: run[run["rank"] < depth].reset_index(drop=True) for name, run in runs.items()}
