"""ARaBEvaluator and AnnotateGender: stages that measure how far rankings and documents lean; word counts of a collection."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.frames import check_pairs, no_frame, ranked, reads_frames, with_string_ids
from pyterrier_debias.core.scripts import composed, word_places
from pyterrier_debias.core.stage import RowWise, Stage
from pyterrier_debias.core.text import Tokeniser, content_mark
from pyterrier_debias.data.base import corpus_batches
from pyterrier_debias.gender.data.documents import Texts, counted, in_order, kept_rows, query_slices, wanted_qids
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.counting import WordCounts, get_gender_tokeniser, tokeniser_name, word_counts
from pyterrier_debias.gender.measures.background import Background, check_background, collection, is_collection, tell_outside
from pyterrier_debias.gender.measures.evaluation import BiasResult, RandomOrders, cluster_of

#: Columns that :class:`ARaBEvaluator` returns after ``qid`` and the columns about the query.
VALUES = ("ARaB", "RaB", "FaiRR", "IFaiRR", "NFaiRR", "agnostic", "expected", "sd")
_ABOUT_QUERY = ("query", "gender", "type")


class _OfWords(Stage):
    """Options that the stages of this module share; :class:`AnnotateGender` describes them."""

    def __init__(
        self,
        wordlist: WordListLike,
        method: str,
        tf_form: str,
        tokeniser: str | Tokeniser,
        contrast: str | tuple[str, str] | None,
        threshold: int,
        portions: Mapping[str, float] | None,
    ):
        self.wordlist = wordlist
        self.method = method
        self.tf_form = tf_form
        self.tokeniser = tokeniser
        self.contrast = contrast
        self.threshold = threshold
        self.portions = portions

    def _ready(self) -> WordList:
        """The word list, after all options have been checked."""
        words = WordList.of(self.wordlist)
        get_gender_tokeniser(self.tokeniser)
        arab.check_magnitude(self.method, self.tf_form)
        words.contrast(self.contrast)
        if len(words.names) > 1:
            arab.neutrality(np.zeros((0, len(words.names))), words.names, self.portions, self.threshold)
        return words

    def _lean(self, counts: WordCounts) -> np.ndarray:
        return arab.leans(arab.magnitudes(counts, self.method, self.tf_form), counts.wordlist, self.contrast)

    def _neutral(self, counts: WordCounts) -> np.ndarray:
        if len(counts.wordlist.names) < 2:
            return np.full(counts.n, np.nan)
        return arab.neutrality(counts.total(), counts.wordlist.names, self.portions, self.threshold)

    def convention(self) -> str:
        """The options under which values were computed, as text."""
        words = WordList.of(self.wordlist)
        weights = words.contrast(self.contrast)
        plus, minus = ([g for g, w in weights.items() if w * side > 0] for side in (1, -1))
        sides = " and ".join(plus) + (f" minus {' and '.join(minus)}" if minus else "")
        form = f"{self.method}, {self.tf_form}" if self.method == "tf" else self.method
        return f"{form}; {sides}; words: {words}; tokeniser {tokeniser_name(self.tokeniser)}"


class AnnotateGender(RowWise, _OfWords):
    """Adds columns that say how strongly each document mentions each group, how far it leans, and how neutral it is.

    Input: any frame with ``docno`` and the text. Output: the same rows with

    - ``count_<group>``: c_g, how often the group's words occur (whole numbers);
    - ``magnitude_<group>``: mag_g(d) by ``method``;
    - ``lean``: the magnitude of the first group minus that of the second (with the library's list, positive is male);
    - ``neutrality``: at most 1; see :func:`~pyterrier_debias.gender.formulas.arab.neutrality`. NaN for a list of one group;
    - ``words``: the words found and how often, such as ``he 2, her 1``; empty if there are none.

    Each document is read once, however many rows it has.

    Source: Rekabsaz and Schedl, "Do Neural Ranking Models Intensify Gender Bias?", SIGIR 2020 (magnitudes); Rekabsaz, Kopeinik
    and Schedl, SIGIR 2021 (neutrality).

    When not to use it: to tell the gender of the people in a text; see
    :class:`~pyterrier_debias.gender.data.words.WordList`.

    Example:
        >>> frame = pd.DataFrame({"docno": ["d1"], "text": ["He told her that he knew."]})
        >>> found = AnnotateGender(method="tc")(frame)
        >>> found[["count_male", "count_female", "lean"]].values.tolist(), found["words"].tolist()
        ([[2.0, 1.0, 1.0]], ['he 2, her 1'])
    """

    schematic = {"label": "AnnotateGender", "help_url": None}  # noqa: RUF012

    def __init__(
        self,
        *,
        wordlist: WordListLike = "debias",
        method: str = "tf",
        tf_form: str = "log1p_total",
        tokeniser: str | Tokeniser = "regex_word",
        contrast: str | tuple[str, str] | None = None,
        threshold: int = 1,
        portions: Mapping[str, float] | None = None,
        unknown: str = "raise",
        text_field: str = "text",
        verbose: bool = False,
    ):
        """
        Args:
            wordlist: ``'debias'`` (the library's own), a path or a mapping; see :meth:`WordList.of`.
            method: ``'tf'``, ``'bool'`` or ``'tc'``; see :func:`~pyterrier_debias.gender.formulas.arab.magnitudes`.
            tf_form: Formula of ``'tf'``: ``'log1p_total'`` (released code), ``'sum_log'`` (as printed) or ``'sum_log1p'``.
            tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
            contrast: Which groups are compared; see :meth:`WordList.contrast`.
            threshold: How many words of the list a document may have and still count as neutral.
            portions: Mapping from each group to its desired portion; None for equal portions.
            unknown: Documents without text: ``'raise'`` or ``'zero'`` (count as without words, with a warning).
            text_field: The column that holds the text.
            verbose: Has no effect: every stage accepts it, and this one is fast.

        An invalid option raises an InputError when the stage is first used.
        """
        super().__init__(wordlist, method, tf_form, tokeniser, contrast, threshold, portions)
        self.unknown = unknown
        self.text_field = text_field
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that the class describes."""
        pt.validate.columns(inp, includes=["docno", self.text_field], context=self)
        words = self._ready()
        counts, own = counted(inp, Texts(None, self.text_field, self.unknown), words, self.tokeniser, self)
        totals, magnitude = counts.total()[own], arab.magnitudes(counts, self.method, self.tf_form)[own]
        columns: dict[str, Any] = {f"count_{group}": totals[:, number] for number, group in enumerate(words.names)}
        columns |= {f"magnitude_{group}": magnitude[:, number] for number, group in enumerate(words.names)}
        columns |= {"lean": self._lean(counts)[own], "neutrality": self._neutral(counts)[own]}
        said = [", ".join(f"{word} {count}" for word, count in found.items()) for found in counts.found()]
        return inp.assign(**columns, words=pd.Series([said[number] for number in own], index=inp.index, dtype="str"))


class ARaBEvaluator(_OfWords):
    """Measures how far rankings lean to one group, for each query and at several cut-offs at once.

    Input: a result frame ``qid``, ``docno``, ``score`` or ``rank``, and the text (or ``texts=``). Output, one row per query and
    cut-off: ``qid``, ``query``, ``gender`` and ``type`` if the results have them, ``cutoff``, ``documents`` (how many there are
    up to the cut-off), and

    - ``ARaB``, ``RaB``: average rank bias and rank bias, positive towards the first group (Rekabsaz and Schedl, SIGIR 2020);
    - ``FaiRR``, ``IFaiRR``, ``NFaiRR``: fairness by neutrality up to the cut-off, its ideal, and the ratio to it (Rekabsaz,
      Kopeinik and Schedl, SIGIR 2021). Ideal and ratio are over at most ``depth`` ranks, so NFaiRR is FaiRR / IFaiRR if depth is
      at least the cut-off. All are NaN for a list of one group, IFaiRR and NFaiRR also if the background lacks the query, and
      NFaiRR if the ideal is not above 0;
    - ``agnostic``: the mean of NFaiRR over all orders of the background's documents, which does not depend on a ranker
      (:class:`~pyterrier_debias.gender.measures.background.Fairness`);
    - ``expected``, ``sd``: mean and standard deviation of ARaB over all orders of the query's documents: the lean of the
      documents themselves, and how much ARaB varies by chance alone.

    Documents are ordered by ``rank`` if it is present; a rank that contradicts the scores is an error. Queries without results
    and those that ``query_filter`` excludes are skipped; :meth:`evaluate` counts the former and tests.

    When not to use it: over queries that themselves name a gender; pass the neutral ones as ``query_filter``.

    Example:
        >>> run = pd.DataFrame({
        ...     "qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "she and I"],
        ... })
        >>> found = ARaBEvaluator([1, 2], method="tc")(run)
        >>> found[["cutoff", "ARaB", "RaB", "expected"]].values.tolist()
        [[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 1.0, 1.0]]

    .. cite.dblp:: journals/corr/abs-2005-00372
    .. cite.dblp:: journals/corr/abs-2104-13640
    """

    schematic = {"label": "ARaBEvaluator", "help_url": None}  # noqa: RUF012

    def __init__(
        self,
        cutoffs: Sequence[int] | int = (5, 10, 20),
        *,
        wordlist: WordListLike = "debias",
        method: str = "tf",
        tf_form: str = "log1p_total",
        tokeniser: str | Tokeniser = "regex_word",
        contrast: str | tuple[str, str] | None = None,
        threshold: int = 1,
        portions: Mapping[str, float] | None = None,
        background: pd.DataFrame | None = None,
        depth: int = 200,
        outside: str = "add",
        query_filter: Collection[str] | None = None,
        texts: Any = None,
        unknown: str = "raise",
        text_field: str = "text",
        verbose: bool = False,
    ):
        """
        Args:
            cutoffs: t of ARaB@t, one or several; a list shorter than t counts up to its end.
            wordlist: The words of each group, as in :class:`AnnotateGender`.
            method: How magnitudes are computed, as in :class:`AnnotateGender`.
            tf_form: Formula of the method tf, as in :class:`AnnotateGender`.
            tokeniser: How texts are split into words, as in :class:`AnnotateGender`.
            contrast: Which groups are compared, as in :class:`AnnotateGender`.
            threshold: How many words of the list a document may have and still count as neutral.
            portions: Mapping from each group to its desired portion; None for equal portions.
            background: The documents that could have been ranked, for NFaiRR: a result frame, with text if ``texts`` is not
                given; documents (``docno`` and text, without ``qid``) for every query, such as the whole collection; None for
                the results themselves, so that each system has its own background.
            depth: How many documents from the top of a background of results count for a query, and how many ranks.
            outside: Ranked documents that are not in the background: ``'add'`` lets the ideal contain them too, so that NFaiRR is
                at most 1; ``'count'`` counts them for the ranking alone, as the released code does.
            query_filter: List of the qids that count, such as those of neutral queries; None for all.
            texts: Where texts come from: None for the column; a text loader, a dataset, a frame or a mapping.
            unknown: Documents without text: ``'raise'`` or ``'zero'`` (count as without words, with a warning).
            text_field: The column that holds the text.
            verbose: Has no effect: every stage accepts it, and this one is fast.

        An invalid option raises an InputError when the stage is first used.
        """
        self.cutoffs = cutoffs
        super().__init__(wordlist, method, tf_form, tokeniser, contrast, threshold, portions)
        self.background = background
        self.depth = depth
        self.outside = outside
        self.query_filter = query_filter
        self.texts = texts
        self.unknown = unknown
        self.text_field = text_field
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The values of each query at each cut-off, in the columns that the class describes."""
        return self.values(inp)

    @reads_frames
    def values(self, inp: pd.DataFrame, orders: RandomOrders | None = None) -> pd.DataFrame:
        """What the stage returns; also adds the lists to random orders of them, for a test.

        Args:
            inp: As for the stage. If there is a column :data:`~pyterrier_debias.gender.data.documents.LEFT_OUT`, documents
                for which it is True must be ranked below the others. They belong to the documents of which
                ``expected`` and ``sd`` describe all orders, but a cut-off ends above them.
            orders: Random orders, to which the lists are added; None for none.

        Returns:
            The values of each query at each cut-off, in the columns that the class describes.
        """
        needed = ["qid", "docno", *([] if self.texts is not None else [self.text_field])]
        with pt.validate.any(inp, context=self) as v:
            v.columns(includes=[*needed, "score"], mode="score")
            v.columns(includes=[*needed, "rank"], mode="rank")
        words, cutoffs = self._ready(), self._cutoffs()
        check_background(self.background, self.depth, self.outside, "ARaBEvaluator")
        run, texts, counts, own = self._read(inp, words)
        lean, neutral = self._lean(counts)[own], self._neutral(counts)[own]
        slices, kept = query_slices(run["qid"]), kept_rows(run)
        background, docnos = self._background(run, neutral, slices, texts, words), run["docno"].array
        about = [column for column in _ABOUT_QUERY if column in run.columns]
        rows, outside = [], []
        for qid, part in slices.items():
            candidates, ranked_docnos, beyond = background(qid), docnos[part].tolist(), 0
            possible = Background() if candidates is None else candidates
            first = {column: run[column].iloc[part.start] for column in about}
            length = int(kept[part].sum())
            if orders is not None:
                orders.add(qid, ranked_docnos, lean[part], {cutoff: min(cutoff, length) for cutoff in cutoffs})
            for cutoff in cutoffs:
                t, ranked_neutral = min(cutoff, length), neutral[part][:length]
                expected, sd = arab.random_order_arab(lean[part], t)
                fair = possible.compare(ranked_docnos[:length], ranked_neutral, cutoff, self.outside)
                beyond = max(beyond, fair.outside)
                rows.append(
                    {
                        "qid": qid,
                        **first,
                        "cutoff": cutoff,
                        "documents": t,
                        "ARaB": arab.arab(lean[part], t),
                        "RaB": arab.rab(lean[part], t),
                        "FaiRR": arab.fairr(ranked_neutral, cutoff),
                        "IFaiRR": fair.ideal,
                        "NFaiRR": fair.nfairr,
                        "agnostic": fair.agnostic,
                        "expected": expected,
                        "sd": sd,
                    }
                )
            if candidates is not None:
                outside.append(beyond)
        tell_outside(outside, self.outside, "ARaBEvaluator")
        columns = ["qid", *about, "cutoff", "documents", *VALUES]
        kinds = {"qid": "str", "cutoff": "int64", "documents": "int64", **dict.fromkeys(VALUES, "float64")}
        return pd.DataFrame(rows, columns=columns).astype(kinds)

    def _cutoffs(self) -> list[int]:
        """The cut-offs, after a check."""
        asked: Any = self.cutoffs
        cutoffs = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else [asked]
        if not cutoffs:
            raise InputError(f"ARaBEvaluator: cutoffs={self.cutoffs!r} names no cut-off; give one or several, e.g. [10]")
        for cutoff in cutoffs:
            check_number("ARaBEvaluator", "cutoffs", cutoff, least=1, whole=True)
        return list(dict.fromkeys(cutoffs))  # a query counts once at each

    def _read(self, results: pd.DataFrame, words: WordList) -> tuple[pd.DataFrame, Texts, WordCounts, np.ndarray]:
        """The rows of the queries that count, in order; their texts; the word counts, and the number of each row in these."""
        wanted = wanted_qids(self.query_filter, self)
        run = results if wanted is None else results[results["qid"].isin(wanted)]
        check_pairs(run, self)
        run = in_order(run, self)
        texts = Texts.given(self.texts, self.text_field, self.unknown)
        return run, texts, *counted(run, texts, words, self.tokeniser, self)

    def _background(
        self, run: pd.DataFrame, neutral: np.ndarray, slices: Mapping[str, slice], texts: Texts, words: WordList
    ) -> Callable[[str], Background | None]:
        """A function from a query to the documents that could have been ranked for it; of a query without any, None.

        One background at a time, because those of all queries would be large.
        """
        docnos, depth = run["docno"].array, self.depth

        def neutrality(frame: pd.DataFrame) -> np.ndarray:
            counts, own = counted(frame, texts, words, self.tokeniser, self)
            return self._neutral(counts)[own]

        if is_collection(self.background):
            documents = collection(self.background, neutrality, "ARaBEvaluator")
            return lambda qid: documents
        if self.background is not None:
            frame = with_string_ids(self.background, "ARaBEvaluator, background")
            frame = frame[frame["qid"].isin(slices.keys())]
            check_pairs(frame, "ARaBEvaluator, background")
            frame = in_order(frame, self)
            frame = frame[frame.groupby("qid", sort=False).cumcount() < depth].reset_index(drop=True)
            docnos, neutral, slices = frame["docno"].array, neutrality(frame), query_slices(frame["qid"])

        def background(qid: str) -> Background | None:
            part = slices.get(qid)
            return None if part is None else Background(docnos[part][:depth].tolist(), neutral[part][:depth], depth)

        return background

    @reads_frames
    def evaluate(
        self,
        results: Mapping[str, pd.DataFrame | pt.Transformer] | pd.DataFrame | pt.Transformer,
        topics: pd.DataFrame | None = None,
        *,
        clusters: str | None = None,
        seed: int = 0,
    ) -> BiasResult:
        """Evaluate one system or several, with tests, intervals, and the documents that contribute most.

        Args:
            results: A result frame or a pipeline, or a mapping from each system's name to one.
            topics: The topics that were run, so that those without results are counted; None for those in any system's results.
                Pipelines are run on them.
            clusters: A column of the topics that says which of them share candidates, such as the article that questions are
                about: their signs flip together in tests and in the intervals reported with them. None if candidates differ.
            seed: Seed of everything random.

        Returns:
            The result, with tables, tests and plots.

        Raises:
            InputError: If no query is left, if the topics lack the column of clusters, and for all input that the stage rejects.

        Example:
            >>> run = pd.DataFrame({"qid": ["1", "2"], "docno": "d", "score": 1.0, "text": ["he and his", "her son"]})
            >>> found = ARaBEvaluator([10], method="tc").evaluate(run)
            >>> found.table[["system", "cutoff", "n", "ARaB"]].values.tolist()
            [['system', 10, 2, 1.0]]
        """
        of = None if clusters is None else cluster_of(topics, clusters, self)
        if topics is not None:
            pt.validate.columns(topics, includes=["qid"], context=self)
        asked = None if topics is None else set(topics["qid"])
        found, orders = {}, {}
        for name, run in self._runs(results, topics):
            orders[name] = RandomOrders(asked, of, seed)
            # Resampling draws by place: sorted by query, the same results in another order give the same p values.
            found[name] = self.values(run, orders[name]).sort_values("qid", kind="stable")
            if of is not None:
                found[name] = found[name].assign(cluster=found[name]["qid"].map(of))
        if asked is None:
            asked = {qid for frame in found.values() for qid in frame["qid"]}
        wanted = wanted_qids(self.query_filter, self)
        asked = asked if wanted is None else asked & wanted
        convention = "; ".join(filter(None, (self.convention(), self.fairness_convention())))
        return BiasResult.of(found, orders, asked, convention, seed=seed)

    def fairness_convention(self) -> str:
        """The options that only FaiRR and NFaiRR depend on, as text; empty for a list of one group, which has neither."""
        if len(WordList.of(self.wordlist).names) < 2:
            return ""
        portions = "equal portions"
        if self.portions is not None:
            portions = f"portions {', '.join(f'{group} {share:g}' for group, share in self.portions.items())}"
        if self.background is None:
            background = f"each system's own results, to rank {self.depth}"
        else:
            own = with_string_ids(self.background, "ARaBEvaluator, background")
            mark = content_mark(own[[name for name in ("qid", "docno", "score", "rank") if name in own.columns]])
            kind = "one set of documents" if is_collection(own) else f"results, to rank {self.depth}"
            added = {"add": "added", "count": "counted for the ranking alone"}[self.outside]
            background = f"{kind} ({mark}), documents outside it {added}"
        return f"FaiRR: threshold {self.threshold:g}, {portions}; NFaiRR: background {background}"

    def _runs(self, results: Any, topics: pd.DataFrame | None) -> Iterator[tuple[str, pd.DataFrame]]:
        """The systems' results; pipelines are run one at a time."""
        runs = dict(results) if isinstance(results, Mapping) else {"system": results}
        if not runs:
            raise InputError("ARaBEvaluator: there are no results; give a result frame, or a mapping from names to result frames")
        for name, run in runs.items():
            if not isinstance(run, pt.Transformer):
                self._check_frame(name, run)
            elif topics is None:
                raise InputError(
                    f"ARaBEvaluator: {name!r} is a pipeline; give topics too, so that it can be run: evaluate(..., topics)"
                )
        for name, run in runs.items():
            found = run(topics) if isinstance(run, pt.Transformer) else run
            self._check_frame(name, found)
            yield name, found

    @staticmethod
    def _check_frame(name: str, run: Any) -> None:
        if not isinstance(run, pd.DataFrame):
            several = "; give several systems by name: {'mine': run, ...}" if isinstance(run, (list, tuple)) else ""
            raise InputError(f"ARaBEvaluator, results {name!r}: {no_frame(run, 'results')}{several}")

    @reads_frames
    def contributions(self, results: pd.DataFrame, cutoff: int | None = None, top: int | None = 20) -> pd.DataFrame:
        """The documents that contribute most to a system's mean ARaB.

        ARaB@t of a query is the sum over ranks i of w_i b(d_i), so each row contributes one part. The sum of a document's parts
        over all queries, divided by the number of queries, is what the document adds to the mean.

        Args:
            results: A result frame, as for the stage.
            cutoff: t; None for the last of the stage's cut-offs.
            top: How many documents to return, largest absolute part first; None for all whose part is not 0.

        Returns:
            One row per document: ``docno``, ``part`` (what it adds to the mean ARaB over queries), ``share`` (of the sum of all
            absolute parts), ``lean``, ``queries`` (how many have it above the cut-off), ``qid`` (the one where it counts most),
            ``words``, and ``marked`` (the text with the words in double brackets).

        Example:
            >>> run = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "score": [2.0, 1.0], "text": ["He knew.", "Rain."]})
            >>> ARaBEvaluator([2], method="tc").contributions(run)[["docno", "part", "marked"]].values.tolist()
            [['a', 0.75, '[[He]] knew.']]
        """
        needed = [] if self.texts is not None else [self.text_field]
        pt.validate.columns(results, includes=["qid", "docno", *needed], context=self)
        words, cutoffs = self._ready(), self._cutoffs()
        cutoff = cutoffs[-1] if cutoff is None else cutoff
        run, texts, counts, own = self._read(results, words)
        lean, slices = self._lean(counts)[own], query_slices(run["qid"])
        part = np.zeros(len(run))
        for rows in slices.values():
            weights = arab.rank_weights(min(cutoff, rows.stop - rows.start))
            part[rows.start : rows.start + len(weights)] = weights * lean[rows][: len(weights)] / len(slices)
        there = part != 0
        listed = run[there]
        own_text = pd.Series(texts.of(listed, self), index=listed.index, dtype=object)
        frame = listed[["qid", "docno"]].assign(part=part[there], lean=lean[there], number=own[there], text=own_text)
        frame = frame.sort_values("part", key=np.abs, ascending=False, kind="stable")
        table = frame.groupby("docno", sort=False).agg(
            part=("part", "sum"), lean=("lean", "first"), queries=("qid", "nunique"), qid=("qid", "first"),
            number=("number", "first"), text=("text", "first"),
        ).reset_index()  # fmt: skip
        size = table["part"].abs()
        table = table.assign(size=size, share=size / (float(size.sum()) or 1.0))
        table = table.sort_values(["size", "docno"], ascending=[False, True], kind="stable")
        table = table if top is None else table.head(top)
        found = counts.take(table["number"].to_numpy(dtype=np.int64)).found()
        said = [", ".join(f"{word} {count}" for word, count in words.items()) for words in found]
        marked = [marked_words(text, words, self.tokeniser) for text, words in zip(table["text"], found)]
        table = table.assign(words=pd.Series(said, dtype="str").to_numpy(), marked=pd.Series(marked, dtype="str").to_numpy())
        return table[["docno", "part", "share", "lean", "queries", "qid", "words", "marked"]].reset_index(drop=True)


def marked_words(text: str, words: Iterable[str], tokeniser: str | Tokeniser = "regex_word") -> str:
    """Put given words of a text in double brackets.

    Args:
        text: The text.
        words: Lower-cased words.
        tokeniser: How the words were found: by default a word ends with its letters; with other tokenisers, at spaces.

    Returns:
        The text; if the tokeniser splits words differently, some may not be marked.

    Example:
        >>> marked_words("He's sure the others heard her.", ["he", "her"])
        "[[He]]'s sure the others heard [[her]]."
    """
    if tokeniser == "regex_word":
        wanted, parts, at = frozenset(words), [], 0
        for start, end in word_places(text):
            if composed(text[start:end].lower()) in wanted:
                parts += [text[at:start], f"[[{text[start:end]}]]"]
                at = end
        return "".join([*parts, text[at:]])
    some = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    if not some:
        return text
    return re.sub(rf"(?<!\S)({some})(?!\S)", r"[[\1]]", text, flags=re.IGNORECASE)


@dataclass(eq=False)
class GenderCounts:
    """How strongly each group is mentioned in a collection: sums over documents that can be merged.

    Merging the sums of shards, in any order, gives the sums of one pass, except for the last bits of sums of logarithms.

    Attributes:
        wordlist: The word list.
        tokeniser: How texts are split into words.
        documents: How many documents were read.
        spoken: For each group, how many documents have a word of it.
        words: How often each word was found.
        sums: Mapping from a name to each group's sum of magnitudes: ``'tc'``, ``'bool'``, and ``'tf'`` in each of its forms.

    Example:
        >>> one = GenderCounts.of("debias").update(["he and she", "rain"])
        >>> other = GenderCounts.of("debias").update(["his"])
        >>> merged = one.merge(other)
        >>> merged.documents, merged.result()["share"].round(3).tolist()
        (3, [0.667, 0.333])
    """

    wordlist: WordList
    tokeniser: str | Tokeniser = "regex_word"
    documents: int = 0
    spoken: np.ndarray = field(default_factory=lambda: np.empty(0))
    words: np.ndarray = field(default_factory=lambda: np.empty(0))
    sums: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, wordlist: WordListLike = "debias", tokeniser: str | Tokeniser = "regex_word") -> GenderCounts:
        """Counts with nothing counted yet.

        Args:
            wordlist: The words of each group; see :meth:`WordList.of`.
            tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        """
        own = WordList.of(wordlist)
        groups = len(own.names)
        zeros = {name: np.zeros(groups) for name in ("tc", "bool", *arab.TF_FORMS)}
        return cls(own, tokeniser, 0, np.zeros(groups, dtype=np.int64), np.zeros(own.size, dtype=np.int64), zeros)

    def update(self, texts: Sequence[str] | pd.Series) -> GenderCounts:
        """Add documents.

        Args:
            texts: The documents' texts.

        Returns:
            This object.
        """
        counts = word_counts(texts, self.wordlist, self.tokeniser)
        self.documents += counts.n
        self.spoken += (counts.total() > 0).sum(axis=0)
        self.words += np.bincount(counts.words, counts.counts, self.wordlist.size).astype(np.int64)
        for name in self.sums:
            how = ("tf", name) if name in arab.TF_FORMS else (name,)
            self.sums[name] = self.sums[name] + arab.magnitudes(counts, *how).sum(axis=0)
        return self

    def read(self, corpus: Any, *, text_field: str = "text", rows: int = 10_000, verbose: bool = False) -> GenderCounts:
        """Add all documents of a collection, a batch at a time.

        Args:
            corpus: A dataset (``get_corpus_iter``), a frame, or an iterable of dictionaries.
            text_field: The column that holds the text.
            rows: How many documents are in memory at once.
            verbose: Whether to show progress.

        Returns:
            This object.

        Raises:
            InputError: If the documents have no column ``text_field``.
        """
        for batch in corpus_batches(corpus, rows, verbose=verbose):
            if text_field not in batch.columns:
                there = ", ".join(map(str, batch.columns))
                raise InputError(
                    f"GenderCounts: the documents have no column {text_field!r} (there are {there}); use text_field=..."
                )
            self.update(batch[text_field])
        return self

    def merge(self, other: GenderCounts) -> GenderCounts:
        """Add up the sums of two shards in a new object.

        Args:
            other: Counts of other documents.

        Raises:
            InputError: If the word lists or tokenisers differ.
        """
        if other.wordlist != self.wordlist or other.tokeniser != self.tokeniser:
            raise InputError(
                f"counts of {self.wordlist} and {other.wordlist} (or of two tokenisers) cannot be added; count with one word "
                f"list and one tokeniser"
            )
        sums = {name: self.sums[name] + other.sums[name] for name in self.sums}
        return GenderCounts(
            self.wordlist, self.tokeniser, self.documents + other.documents, self.spoken + other.spoken,
            self.words + other.words, sums,
        )  # fmt: skip

    def result(self) -> pd.DataFrame:
        """One row per group: ``group``, ``documents`` (how many have a word of it), ``share`` (of all documents), ``words`` (how
        many in all), ``tf``, ``bool``, ``tc`` (mean magnitudes over all documents; tf by ``log1p_total``) and ``most`` (its most
        frequent words)."""
        n = max(self.documents, 1)
        owners = np.array(self.wordlist.owners)
        rows = []
        for number, group in enumerate(self.wordlist.names):
            own = np.flatnonzero((owners == number) & (self.words > 0))
            own = own[np.argsort(-self.words[own], kind="stable")][:5]
            rows.append(
                {
                    "group": group,
                    "documents": int(self.spoken[number]),
                    "share": self.spoken[number] / n,
                    "words": int(self.words[owners == number].sum()),
                    "tf": self.sums["log1p_total"][number] / n,
                    "bool": self.sums["bool"][number] / n,
                    "tc": self.sums["tc"][number] / n,
                    "most": ", ".join(f"{self.wordlist.words[word]} {self.words[word]}" for word in own),
                }
            )
        return pd.DataFrame(rows)


def union_background(runs: Iterable[pd.DataFrame], depth: int = 200) -> pd.DataFrame:
    """One background for several runs: for each query, all documents that any of the runs retrieved.

    Args:
        runs: Result frames ``qid``, ``docno``, ``score`` and any other columns to keep, such as ``text``.
        depth: How many documents are taken from the top of each run.

    Returns:
        Frame with each (qid, docno) once, without ranks; ``score`` decreases in the order in which they were first found. Other
        columns have their first value that is not missing.

    Example:
        >>> run = lambda docnos: pd.DataFrame({"qid": "1", "docno": docnos, "score": [2.0, 1.0]})
        >>> union_background([run(["a", "b"]), run(["b", "c"])])["docno"].tolist()
        ['a', 'b', 'c']
    """
    frame = None
    for run in runs:
        run = ranked(run, "background")
        top = run[run["rank"] < depth].drop(columns="rank")
        # One after another: all at once would be large.
        frame = pd.concat([top] if frame is None else [frame, top], ignore_index=True)
        if frame.isna().to_numpy().any():  # such as texts that only some of the runs have
            columns = frame.columns.difference(["qid", "docno"])
            frame[columns] = frame.groupby(["qid", "docno"], sort=False)[list(columns)].transform("first")
        frame = frame.drop_duplicates(["qid", "docno"], ignore_index=True)
    if frame is None:
        raise InputError("union_background: there are no runs; give at least one result frame")
    return frame.assign(score=-np.arange(len(frame), dtype=np.float64))
