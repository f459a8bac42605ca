"""The four pipelines of Gupta (2021) by name: BM25, and monoT5, ANCE and ColBERT over its first documents.

    python examples/survivorship_bias/pipelines.py --dataset irds:msmarco-passage/dev --run bm25.trec.gz --out runs

reranks a BM25 run with each of the models and writes a run file for each; without `--run` it takes the dataset's first run. The
models are downloaded when they are first used. Each pipeline is a function that you can use in your own programs.

`colbert` is loaded through sentence-transformers. If you have the ColBERT fork that `pyterrier_colbert` needs (it is not on PyPI,
and needs a JVM), you can use its stage instead: `first % depth >> texts >> pyterrier_colbert.ranking.ColBERTFactory(
checkpoint, None, None).text_scorer()`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias import InputError, MultiVector, T5Reranker, open_dataset
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.data.readers import read_run

#: How many documents of the first stage are reranked, as in the thesis.
DEPTH = 1000


def bm25(source: Any) -> pt.Transformer:
    """BM25, from an existing run, an index or a retriever.

    Args:
        source: A result frame; an index with ``bm25()`` (Terrier's, PISA's); or a retriever, which is returned unchanged.

    Returns:
        A retriever.
    """
    if isinstance(source, pd.DataFrame):
        return pt.Transformer.from_df(source)
    return source.bm25() if hasattr(source, "bm25") else source


def monot5(
    first: pt.Transformer, texts: pt.Transformer, model: str = "castorini/monot5-base-msmarco", *, tokenizer: str = "t5-base",
    depth: int = DEPTH,
) -> pt.Transformer:  # fmt: skip
    """monoT5 as in the thesis, from pyterrier_t5, with one pair per batch: in larger batches, padding changes scores.

    Args:
        first: The first stage.
        texts: A stage that adds the documents' texts.
        model: Hub name or folder.
        tokenizer: Tokenizer of the model; monoT5 uses that of T5.
        depth: How many documents are reranked.

    Returns:
        A pipeline.
    """
    from pyterrier_t5 import MonoT5ReRanker

    try:
        ranker = MonoT5ReRanker(tokenizer, model, batch_size=1, verbose=False)
    except OSError as error:
        raise InputError(f"monot5: {model!r} or {tokenizer!r} cannot be opened ({error}); name a folder or hub model") from error
    return first % depth >> texts >> ranker


def t5(
    first: pt.Transformer, texts: pt.Transformer, model: str = "castorini/monot5-base-msmarco", *, depth: int = DEPTH
) -> pt.Transformer:
    """monoT5 by our reranker, which gives the same scores in batches.

    Args:
        first: The first stage.
        texts: A stage that adds the documents' texts.
        model: Hub name or folder.
        depth: How many documents are reranked.

    Returns:
        A pipeline.
    """
    return first % depth >> texts >> T5Reranker(model)


def ance(
    first: pt.Transformer, texts: pt.Transformer, model: str = "sentence-transformers/msmarco-roberta-base-ance-firstp", *,
    depth: int = DEPTH,
) -> pt.Transformer:  # fmt: skip
    """ANCE from pyterrier_dr, as a reranker.

    Args:
        first: The first stage.
        texts: A stage that adds the documents' texts.
        model: Hub name or folder of a sentence-transformers model.
        depth: How many documents are reranked.

    Returns:
        A pipeline.
    """
    from pyterrier_dr import Ance

    try:
        encoder = Ance(model)
    except OSError as error:
        raise InputError(f"ance: {model!r} cannot be opened ({error}); name a folder or hub model") from error
    return first % depth >> texts >> encoder.text_scorer()


def colbert(
    first: pt.Transformer, texts: pt.Transformer, model: str = "colbert-ir/colbertv2.0", *, depth: int = DEPTH
) -> pt.Transformer:
    """ColBERT through sentence-transformers, as a reranker.

    Args:
        first: The first stage.
        texts: A stage that adds the documents' texts.
        model: Hub name or folder of a ColBERT checkpoint.
        depth: How many documents are reranked.

    Returns:
        A pipeline.
    """
    return first % depth >> texts >> MultiVector(model)


#: Functions by name; each makes a pipeline from a first stage and a text loader.
RERANKERS: dict[str, Callable[..., pt.Transformer]] = {"monot5": monot5, "t5": t5, "ance": ance, "colbert": colbert}


def pipelines(source: Any, texts: pt.Transformer, names: list[str], depth: int = DEPTH) -> dict[str, pt.Transformer]:
    """BM25 and some of the rerankers by name.

    Args:
        source: See :func:`bm25`.
        texts: A stage that adds the documents' texts.
        names: Names of :data:`RERANKERS`.
        depth: How many documents are reranked.

    Returns:
        Name to pipeline, ``bm25`` first.

    Raises:
        InputError: For an unknown name.
    """
    unknown = [name for name in names if name not in RERANKERS]
    if unknown:
        raise InputError(f"--pipelines {unknown[0]} is not known; use some of {', '.join(RERANKERS)}")
    first = bm25(source)
    return {"bm25": first, **{name: RERANKERS[name](first, texts, depth=depth) for name in names}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="a folder, or an id of ir_datasets as irds:...")
    parser.add_argument("--run", type=Path, help="BM25's run (default: the dataset's first)")
    parser.add_argument("--pipelines", nargs="*", default=["monot5", "ance", "colbert"], help=f"some of {', '.join(RERANKERS)}")
    parser.add_argument("--depth", type=int, default=DEPTH, help=f"documents that are reranked (default {DEPTH})")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    options = parser.parse_args()
    try:
        dataset = open_dataset(options.dataset)
        run = read_run(options.run) if options.run else next(iter((provided(dataset, "get_runs") or {}).values()), None)
        if run is None:
            raise InputError(f"{options.dataset} has no run; name one with --run")
        topics = dataset.get_topics()
        options.out.mkdir(parents=True, exist_ok=True)
        for name, pipeline in pipelines(run, dataset.text_loader(), options.pipelines, options.depth).items():
            results = pipeline(topics)
            pt.io.write_results(results, str(options.out / f"run.{name}.trec.gz"), format="trec", run_name=name)
            print(f"{name}: {results['qid'].nunique()} queries, {len(results)} documents")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
