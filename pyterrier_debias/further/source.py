"""The source bias in an audit: do rankers prefer text written by a language model to text of the same meaning written by people?

Null hypothesis of the primary test: if a relevant document and its rewritten counterpart are in one list, neither is ahead on
average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.counterfactuals import Arm, score_arms
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.decomposition import without_cutoff
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.frames import check_text, ranked, with_string_ids
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.retrieval import answered
from pyterrier_debias.core.statistics import Interval, bootstrap_interval
from pyterrier_debias.core.systems import Context, System, check_run, named_where_it_raises
from pyterrier_debias.core.text import digest, keyed_hash, keyed_integer
from pyterrier_debias.core.variants import variant_docno
from pyterrier_debias.further.shared import (
    TESTED_TWICE,
    SystemBias,
    check_complete,
    document_parts,
    effectiveness,
    mean_test,
    relevant_pairs,
)

#: Columns of lists that are made for both texts.
_OWN = ("qid", "query", "docno", "score", "rank")
#: Measures of which Dai et al. give the relative delta.
_MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5")
#: How the rewritten text of a document is named, with a hash of it: no more characters, since passages get a number.
_LONGEST = 14


class SourceBias(SystemBias):
    """Do rankers prefer text that was written by a language model?

    Each list contains both the original and the rewritten text of its documents: of the candidates, and of all relevant
    documents of the query (even those that the first stage missed, because it has read only one of the two texts). A reranker
    ranks this list; for a retriever, both texts of each document of the collection are indexed together. A query's value is the
    mean, over its relevant documents that have both texts, of the *displacement*: how many other documents are between the
    original and the rewritten text, where each text of another document counts by half, or by one if it is the only text of its
    document; above 0 if the original is ahead, below 0 if the rewritten text is. Under the null hypothesis, the two texts of a
    document could be exchanged, which changes the sign. It is enough to rewrite the relevant documents. Rewritten texts of
    relevant documents that are not in the collection are left out, and the convention says how many.

    Also reported: the :func:`relative_delta` of Dai et al., for measures with only the originals, or only the rewritten texts,
    as relevant; and the share of relevant documents whose rewritten text is ahead. The displacement is 0 for texts side by side;
    if one of them is ahead far more often than the other, the verdict is not "no".

    Source: Dai et al., "Neural Retrievers are Biased Towards LLM-Generated Content", KDD 2024.

    Example:
        ``audit(systems, dataset, biases=[SourceBias(rewritten)])`` with the columns ``docno`` and ``text``

    When not to use it: if rewritten texts leave out, add or correct something; the preference is then for content. Models also
    change the length of what they rewrite: see :class:`~pyterrier_debias.further.length.LengthBias`.
    """

    name = "source"
    axis = "ranks by which the original is ahead of the rewritten text"

    def __init__(self, pairs: pd.DataFrame | None = None) -> None:
        """
        Args:
            pairs: A frame with ``docno`` and ``text``, the rewritten text of this document; or with ``docno`` and
                ``counterpart``, the docno of the document in the collection that is its rewritten text. None uses what the
                collection's ``get_counterparts()`` returns.

        Raises:
            InputError: If a column is missing, a document has two rewritten texts, or a pair is listed in both directions.
        """
        self.pairs = None if pairs is None else _checked(pairs)

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: pairs of texts, and for a retriever an indexer."""
        if self.pairs is None and provided(dataset, "get_counterparts") is None:
            return "it compares pairs of texts; give SourceBias(pairs), with docno and text, instead of its name"
        if system is None:
            return None
        if system.ranker is None and system.indexer is None:
            return system.out_of_reach or "it must index both texts, but has no indexer; give System(..., indexer=...)"
        return system.out_of_reach or None

    def look(self, system: System, context: Context) -> Iterator[Finding]:
        """See :meth:`SystemBias.look`."""
        given = _checked(context.dataset.get_counterparts()) if self.pairs is None else self.pairs
        pairs = _Pairs(given, context, known=system.ranker is not None)
        mixed = (_ranked if system.ranker is not None else _indexed)(system, context, pairs)
        rows = with_displacements(mixed).merge(pairs.relevant[["qid", "docno"]], on=["qid", "docno"])
        values = rows.groupby("qid")["displacement"].mean()
        shares = rows.assign(weight=1 / rows.groupby("qid")["docno"].transform("size"))
        shares = shares.assign(share=shares["displacement"] * shares["weight"])
        interval, p, told = mean_test(values, context.seed, documents=shares)
        of = f"{len(rows)} pairs of relevant documents, both texts in one list, rewritten texts {pairs.digest}{pairs.left_out}"
        yield self.finding(
            system.name, "displacement", "rewritten - human", interval,
            f"with its rewritten text, a relevant document's rank among others changes by {interval.estimate:+.3f} {told}.",
            p=p, values=values, primary=True, beside=effectiveness(system, context),
            parts={"document": document_parts(shares, len(values), "relevant")},
            convention=f"{of}; ranks among other documents; {TESTED_TWICE}",
        )  # fmt: skip
        share = (rows["rewritten"] > rows["human"]).astype(float) + 0.5 * (rows["rewritten"] == rows["human"])
        share = share.groupby(rows["qid"]).mean()
        yield self.finding(
            system.name, "share of pairs", "rewritten ahead", bootstrap_interval(share.to_numpy(), seed=context.seed).within(),
            f"in {share.mean():.1%} of a query's pairs, the rewritten text is ahead.", values=share, null_value=0.5,
            convention=f"{of}; equal scores count half; not tested",
        )  # fmt: skip
        for measure, (human, machine) in _quality(mixed, pairs.relevant, list(values.index)):
            delta = bootstrap_interval(np.column_stack([human, machine]), relative_delta, method="percentile", seed=context.seed)
            yield self.finding(
                system.name, f"relative delta {measure}", "human - rewritten", delta,
                f"{measure} is {human.mean():.3f} for originals and {machine.mean():.3f} for rewritten texts in the same list: "
                f"relative delta {delta.estimate:+.1f} %.",
                beside={(measure, "human"): human, (measure, "rewritten"): machine},
                convention="200 (human - machine) / (human + machine) of means, as in Dai et al.; not tested" + _undefined(delta),
            )  # fmt: skip


class _Pairs:
    """The rewritten texts of a collection's documents, and the relevant documents that have one.

    With ``known``, relevant documents without a text in the collection are left out.

    Attributes:
        texts: Rewritten text by docno.
        twins: For the docno of a counterpart that of the original, if both are in the collection.
        relevant: ``qid``, ``docno``, ``label``.
        digest: A hash of the rewritten texts and their docnos.
        left_out: How many relevant documents are left out, in a clause; empty if none is.
    """

    def __init__(self, pairs: pd.DataFrame, context: Context, *, known: bool):
        self.twins: dict[str, str] = {}
        if "counterpart" in pairs.columns:
            self.twins = dict(zip(pairs["counterpart"], pairs["docno"]))
            loaded = context.dataset.text_loader()(pairs[["counterpart"]].set_axis(["docno"], axis=1))
            check_text(loaded, "text", "SourceBias, counterparts")
            pairs = pairs.assign(text=loaded["text"].to_numpy())
        self.texts: dict[str, str] = dict(zip(pairs["docno"], pairs["text"]))
        self.digest = digest(f"{docno}\x1e{text}" for docno, text in sorted(self.texts.items()))[:8]
        found = self.of(relevant_pairs(context))
        found = found[found["docno"].isin(self.texts.keys())]
        found = found.sort_values("label", ascending=False, kind="stable").drop_duplicates(["qid", "docno"])
        self.relevant = found[found["docno"].isin(_with_text(context, list(found["docno"].unique())))] if known else found
        unknown = len(found) - len(self.relevant)
        told = f"; {unknown} pair{'s' * (unknown > 1)} left out, because the original is not in the collection"
        self.left_out = told if unknown else ""
        if self.relevant.empty:
            told = f"a rewritten text{', and its original in the collection' if unknown else ''}"
            raise InputError(f"no relevant document has {told}; the docnos of pairs must be those of the collection")

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Rows about documents, those about counterparts under the originals' names."""
        return rows.assign(docno=rows["docno"].map(lambda docno: self.twins.get(docno, docno)))

    def named(self, docno: str) -> str | None:
        """The name under which a document's rewritten text is ranked; None if it has none."""
        if docno not in self.texts:
            return None
        return variant_docno(docno, f"w-{keyed_hash(0, self.texts[docno]) >> 32:08x}", longest=_LONGEST)


def _checked(pairs: Any) -> pd.DataFrame:
    """Pairs with string identifiers, one row per document."""
    if not isinstance(pairs, pd.DataFrame) or "docno" not in pairs or not {"text", "counterpart"} & set(pairs):
        raise InputError("SourceBias: pairs must be a frame with docno and text, or docno and counterpart")
    column = "counterpart" if "counterpart" in pairs else "text"
    pairs = with_string_ids(pairs[["docno", column]], "SourceBias, pairs")
    if column == "text":
        check_text(pairs, column, "SourceBias, pairs")
    pairs = pairs.astype({column: str})
    twice = pairs["docno"].duplicated()
    if twice.any():
        raise InputError(f"SourceBias: pairs: docno {pairs['docno'][twice].iloc[0]!r} has two rewritten texts; keep one of them")
    if column == "counterpart":
        again = pairs[column].isin(set(pairs["docno"])) | pairs[column].duplicated()
        if again.any():
            raise InputError(
                f"SourceBias: pairs: counterpart {pairs[column][again].iloc[0]!r} is also a docno, or that of two documents; "
                f"list each pair once, with the text written by people under docno"
            )
    return pairs.reset_index(drop=True)


def _ranked(system: System, context: Context, pairs: _Pairs) -> pd.DataFrame:
    """Scores of a reranker: ``qid``, ``docno``, ``human``, ``rewritten``, both texts of a document in one list."""
    listed = _lists(system, context, pairs)
    named = listed["docno"].map(pairs.named)
    rewritten = listed.assign(docno=named, text=listed["docno"].map(pairs.texts))[named.notna()]
    # Which of two texts is given first is drawn, for rerankers that go by the order of what they are given.
    first = np.array([keyed_integer(2, context.seed, "source", *pair) for pair in zip(listed["qid"], listed["docno"])])
    both = [listed.assign(second=first), rewritten.assign(second=1 - first[named.notna()])]
    both = pd.concat(both, ignore_index=True)
    order = np.lexsort((both["second"], both["given"], -both["score"], pd.factorize(both["qid"])[0]))
    both = both.iloc[order].reset_index(drop=True)
    both = both.assign(rank=both.groupby("qid").cumcount()).drop(columns=["given", "second"])
    arm = Arm("both", 0, np.arange(len(both)), both["text"].tolist(), None)
    ranker = named_where_it_raises(system).ranker
    assert ranker is not None
    scored = score_arms(both, [arm], without_cutoff(ranker)[0], text_field="text", name=system.name)
    check_complete(scored, both, system.name, dict(zip(rewritten["docno"], listed["docno"][named.notna()])))
    return _paired(scored, listed.assign(named=named))


def _lists(system: System, context: Context, pairs: _Pairs) -> pd.DataFrame:
    """The original texts of each list: those of candidates, and of relevant documents that the first stage missed."""
    found = context.candidates(system)
    queries = dict(zip(context.topics["qid"], context.topics["query"])) | dict(zip(found["qid"], found["query"]))
    found = found.assign(score=found["score"] if "score" in found else -found["rank"].astype(float))
    found = found[found["qid"].isin(set(pairs.relevant["qid"]))]
    listed = pd.concat([pairs.of(found), pairs.relevant[["qid", "docno"]]], ignore_index=True)
    listed = listed.drop_duplicates(["qid", "docno"], ignore_index=True)
    lowest = listed.groupby("qid")["score"].transform("min").fillna(0.0)
    listed = listed.assign(query=listed["qid"].map(queries), score=listed["score"].fillna(lowest), given=np.arange(len(listed)))
    missed = listed["rank"].isna().to_numpy()
    for column in [name for name in found.columns if name not in (*_OWN, "text") and missed.any()]:
        try:
            of_query = found.groupby("qid")[column].nunique(dropna=False).max() <= 1
            filled = found.drop_duplicates("qid").set_index("qid")[column] if of_query else _of_documents(context, listed, column)
        except (ValueError, TypeError, LookupError, AssertionError):  # vectors, or nothing that the collection knows
            listed = listed.drop(columns=column)  # then no text of the list has it
            continue
        values = listed["qid" if of_query else "docno"].map(filled)
        listed = listed.assign(**{column: listed[column].where(~missed, values)})
    # Both texts of a document are whole: those of candidates may have been shortened. A document without a rewritten text
    # may be a passage that the collection does not know.
    whole = listed["docno"].isin(pairs.texts.keys()).to_numpy()
    texts = _of_documents(context, listed[whole], "text")
    own = listed["text"] if "text" in listed else listed["docno"].map(_of_documents(context, listed, "text"))
    return listed.assign(text=own.where(~whole, listed["docno"].map(texts)))


def _with_text(context: Context, docnos: list[str]) -> set[str]:
    """Those documents of which the collection has a text. Loaders raise an error about others, or leave them empty."""
    try:
        texts = _of_documents(context, pd.DataFrame({"docno": docnos}, dtype="str"), "text")
    except (ValueError, TypeError, LookupError, AssertionError):
        half = len(docnos) // 2
        return _with_text(context, docnos[:half]) | _with_text(context, docnos[half:]) if half else set()
    return set(texts.index[texts.notna()])


def _of_documents(context: Context, listed: pd.DataFrame, column: str) -> pd.Series:
    """A column of the collection, by docno."""
    loaded = context.dataset.text_loader(column)(listed[["docno"]].drop_duplicates().reset_index(drop=True))
    return loaded.set_index("docno")[column]


def _indexed(system: System, context: Context, pairs: _Pairs) -> pd.DataFrame:
    """As :func:`_ranked` for a retriever, over an index of both texts; texts that it does not return have a score of -inf."""

    def documents() -> Iterator[dict[str, Any]]:
        for document in context.dataset.get_corpus_iter(verbose=False):
            docno = str(document["docno"])
            if docno not in pairs.twins:
                yield document
            if docno in pairs.texts:
                yield {**document, "docno": pairs.named(docno), "text": pairs.texts[docno]}

    indexer = named_where_it_raises(system).indexer
    assert indexer is not None
    with handed_over(documents()) as stream:
        retriever = indexer(stream)
    run = ranked(check_run(answered(retriever, context.topics)[0], system.name), system.name)
    run = run[run["rank"] < 2 * context.depth]
    named = {docno: pairs.named(docno) for docno in pairs.texts}
    own = {name: docno for docno, name in named.items()}
    listed = run[["qid"]].assign(docno=run["docno"].map(lambda docno: own.get(docno, docno))).drop_duplicates()
    return _paired(run, listed.assign(named=listed["docno"].map(named.get)))


def _paired(scored: pd.DataFrame, listed: pd.DataFrame) -> pd.DataFrame:
    """One row per document, with the scores of both texts: -inf if it is not in the results, NaN if there is none.

    ``listed`` has ``named``, the name of the document's rewritten text.
    """
    scores = scored[["qid", "docno", "score"]]
    both = listed[["qid", "docno", "named"]].merge(scores, on=["qid", "docno"], how="left")
    other = scores.rename(columns={"docno": "named", "score": "rewritten"})
    both = both.rename(columns={"score": "human"}).merge(other, on=["qid", "named"], how="left")
    both = both.fillna({"human": -np.inf, "rewritten": -np.inf})
    return both.assign(rewritten=both["rewritten"].where(both["named"].notna()))


def with_displacements(mixed: pd.DataFrame) -> pd.DataFrame:
    """Pairs of scores with ``displacement``, see :func:`displacements`, query by query."""
    parts = [own.assign(displacement=displacements(own["human"], own["rewritten"])) for _, own in mixed.groupby("qid")]
    return pd.concat(parts, ignore_index=True) if parts else mixed.assign(displacement=pd.Series(dtype=float))


def displacements(human: Sequence[float] | pd.Series, rewritten: Sequence[float] | pd.Series) -> np.ndarray:
    """How many other documents are between the original and the rewritten text of each document of a list.

    Args:
        human: Scores of n originals.
        rewritten: Scores of their rewritten texts; NaN for those of documents that have none.

    Returns:
        Shape [n], above 0 if the original is ahead, NaN without a rewritten text. Each text of another document counts by half,
        the only text of a document by one, and with an equal score by half of that. If originals and rewritten texts change
        places, the signs change.

    Example:
        >>> displacements([3.0, 2.0, 1.0], [2.5, 4.0, 1.0]).tolist()  # only what stands between 2 and 4 counts: 3 and 2.5
        [0.0, -1.0, 0.0]
        >>> displacements([3.0, 2.0, 1.0], [float("nan"), 4.0, 1.0]).tolist()
        [nan, -1.0, 0.0]
    """
    h, w = np.asarray(human, dtype=float), np.asarray(rewritten, dtype=float)
    every, alone = np.concatenate([h, w]), np.isnan(w)
    counted = np.concatenate([np.where(alone, 1.0, 0.5), np.where(alone, 0.0, 0.5)])

    def above(x: np.ndarray) -> np.ndarray:
        return ((every > x[:, None]) + 0.5 * (every == x[:, None])) @ counted

    own = ((h > w).astype(float) - (h < w)) / 2
    return np.where(alone, np.nan, above(w) - above(h) - own)


def _quality(mixed: pd.DataFrame, relevant: pd.DataFrame, qids: Sequence[str]) -> Iterator[tuple[str, list[pd.Series]]]:
    """Measures over the list of both texts, first with only originals as relevant, then with only rewritten texts.

    A measure that is 0 for both is left out. Ties within a pair are broken at random.
    """

    def named(rows: pd.DataFrame, side: str) -> list[str]:
        pairs = zip(rows["qid"], rows["docno"])
        return [f"{d}%{keyed_integer(2, 0, q, d) ^ (side == 'human')}" for q, d in pairs]

    sides = ("human", "rewritten")
    run = pd.concat([mixed.assign(docno=named(mixed, side), score=mixed[side]) for side in sides], ignore_index=True)
    run = run.loc[np.isfinite(run["score"]), ["qid", "docno", "score"]]
    human, machine = (per_query(run, relevant.assign(docno=named(relevant, side)), _MEASURES, qids) for side in sides)
    for measure in _MEASURES:
        if human[measure].any() or machine[measure].any():
            yield measure, [human[measure], machine[measure]]


def _undefined(delta: Interval) -> str:
    """Why a relative delta has no interval, if the resamples are the reason."""
    alike = delta.n > 1 and np.isnan(delta.low)
    return "; no interval: in some resamples the measure is 0 for all texts" if alike else ""


def relative_delta(human: Any, machine: Any, axis: int = -1) -> Any:
    """The relative delta of Dai et al. 2024 between two means.

    Args:
        human: A measure's value for each query, with the originals as relevant.
        machine: A measure's value for each query, with the rewritten texts as relevant.
        axis: The axis to average over.

    Returns:
        200 (human - machine) / (human + machine), in percent, from -200 to 200; NaN if both are 0.

    Example:
        >>> round(float(relative_delta([0.3, 0.1], [0.2, 0.4])), 6)
        -40.0
    """
    human, machine = np.mean(human, axis=axis), np.mean(machine, axis=axis)
    total = np.asarray(human + machine)
    return (200 * np.divide(human - machine, total, out=np.full(np.shape(total), np.nan), where=total > 0))[()]
