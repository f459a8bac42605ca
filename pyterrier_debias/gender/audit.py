"""The gender bias in an audit: do rankings for neutral queries lean to one gender's words?

The null hypothesis of the primary test is that, over neutral queries, the ranker's ARaB@10 equals that of a random order of the
same candidates, which has a closed form (their mean lean). So the lean of the candidates themselves is not attributed to the
ranker; it is reported separately. The statistic is the mean signed difference. It is tested by flipping each query's sign at
random and by random orders, and the larger p counts (:class:`~pyterrier_debias.gender.measures.evaluation.RandomOrders` says
why). Candidates that a ranker leaves out, for example with a cut-off, count as ranked below the others. :class:`WordListBias`
applies the same test to any other attribute that words indicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Examined, Figure, Finding, JointBias, Parts, p_text
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.frames import (
    ROWS,
    QueryRows,
    pair_numbers,
    reads_frames,
    tied_with_the_one_before,
    with_string_ids,
    with_ties_drawn,
)
from pyterrier_debias.core.statistics import Interval, bootstrap_interval, inverted_interval, randomisation_test
from pyterrier_debias.core.systems import Context, System
from pyterrier_debias.core.text import Tokeniser, regex_word
from pyterrier_debias.gender.data.documents import LEFT_OUT, Texts, counted
from pyterrier_debias.gender.data.query_gender import GenderClassifier, QueryGender
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas.attributions import order_parts
from pyterrier_debias.gender.formulas.counting import count_words, get_gender_tokeniser, tokeniser_name, unfindable
from pyterrier_debias.gender.measures.evaluation import TIES_DRAWN, BiasResult, RandomOrders, cluster_of
from pyterrier_debias.gender.measures.evaluator import ARaBEvaluator, union_background

_CUTOFF = 10
_CUTOFFS = (5, 10, 20)
_ARAB, _ABS, _NFAIRR = f"ARaB@{_CUTOFF}", f"abs(ARaB@{_CUTOFF})", f"NFaiRR@{_CUTOFF}"
_NEUTRAL = "neutral queries"
#: A part of all lists has at most this many times :data:`ROWS` rows.
_LISTS = 6
#: How far the values of a query can be apart.
_FURTHEST = {"ARaB": np.inf, "NFaiRR": 1.0}
_ORDER = "order - random order"
_ADDED = "ranker - candidates"
#: What topics call a query that names no gender.
_NEUTRAL_LABELS = frozenset({"neutral", "n", "none"})
#: Frequent English words that are rare in all other languages, unlike "a", "is", "in", "on", "to" and "by".
_ENGLISH = frozenset("the of and that with this from".split())
#: Words of the list that are frequent in other languages, such as "man" in German or "son" in French.
_HOMOGRAPHS = frozenset("boy he her male mama man men papa son sons".split())
#: The share of :data:`_ENGLISH` and of the list's other words. In English it is .14, in no other language above .005 (frequencies
#: of the package wordfreq). Titles and questions have fewer: questions about finance .06.
_FEWEST_ENGLISH = 0.02


class WordListBias(JointBias):
    """Bias for an audit: do rankings for neutral queries lean to the words of one group, such as an age, religion or nationality?

    Neutral queries are those without a word of the list.

    Attributes:
        name: The bias's name in findings.
        wordlist: The words of each group.
        contrast: Which groups are compared; see :meth:`WordList.contrast`.
        clusters: The topics' column that says which queries flip together in tests; None if each flips alone.
        tokeniser: How queries and texts are split into words.

    Example:
        >>> ages = WordList({"young": ["teen", "youth"], "old": ["elderly", "senior"]}, "age")
        >>> WordListBias(ages).name
        'age'

    When not to use it: with words that depend on the topic of a query ("church" for a query about weddings); every ranker that
    works then appears biased.
    """

    #: The topics' column that says which queries are neutral, where it is there.
    topics_column: str | None = None

    def __init__(
        self,
        wordlist: Any,
        name: str | None = None,
        *,
        contrast: str | tuple[str, str] | None = None,
        clusters: str | None = None,
        tokeniser: str | Tokeniser = "regex_word",
    ):
        """
        Args:
            wordlist: The words of each group; see :meth:`WordList.of`.
            name: The bias's name in findings; by default the list's name.
            contrast: Which groups are compared if there are more than two; see :meth:`WordList.contrast`.
            clusters: A column of the topics that says which of them share candidates, such as the article that a question is
                about.
            tokeniser: How queries and texts are split into words, as in :class:`ARaBEvaluator`; a function of one's own for a
                language without spaces, or whose words change their form.

        Raises:
            InputError: If ``wordlist`` is not a word list, the contrast names unknown groups, or the tokeniser is unknown.
        """
        get_gender_tokeniser(tokeniser)
        self.wordlist = WordList.of(wordlist)
        self.wordlist.contrast(contrast)
        self.name = name or self.wordlist.name
        self.contrast = contrast
        self.clusters = clusters
        self.tokeniser = tokeniser

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: texts of documents, neutral topics, and a list in the collection's language."""
        if getattr(dataset, "text_loader", None) is None:
            return "the collection gives no texts of documents (text_loader)"
        topics = provided(dataset, "get_topics")
        if topics is not None and "query" not in topics.columns and self.topics_column not in topics.columns:
            return "the topics have no column 'query', so it is not known which of them are neutral"
        if topics is not None and len(topics) and not self.neutral_qids(topics):
            return f"no topic is neutral: {self._why_none(topics)}"
        return _not_english(dataset) if self.wordlist == WordList.of("debias") else None

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """See :meth:`Bias.measures`: measures over the neutral queries, such as ``ARaB(neutral, influence)@10``.

        An experiment's means and t-tests of these are over the neutral queries; single values are influence values, as the names
        say.
        """
        from pyterrier_debias.gender.measures.over_rankings import ARaB, NFaiRR

        reason = self.needs(None, context.asked)
        if reason is not None:
            return [], {_ARAB: reason}
        own: dict[str, Any] = {
            "query_filter": self.neutral_qids(context.topics), "texts": Texts(context.dataset), "undefined": "influence",
            "tokeniser": self.tokeniser,
        }  # fmt: skip
        if self.contrast is not None or self.wordlist != WordList.of("debias"):
            own |= {"wordlist": self.wordlist, "contrast": self.contrast}
        # Distinct names: an experiment may also have ARaB@10 over all queries.
        queries = f"{self._queries}, influence"
        found = [
            ARaB(name=f"ARaB({queries})", **own) @ _CUTOFF,
            ARaB(name=f"abs(ARaB({queries}))", per_query_abs=True, **own) @ _CUTOFF,
        ]
        second = {f"{_ARAB}, {_ORDER}": "ARaBEvaluator(...).evaluate(results).table, column 'added'"}
        if len(self.wordlist.names) < 2:
            return found, second
        lists = _Lists(context, own["query_filter"])
        if not lists.systems:
            second[_NFAIRR] = "bias_measures(..., systems=...), or NFaiRR(background=union_background(results)) @ 10"
            return found, second
        # One background for all systems: with its own documents as the background, each would have another ideal.
        background = union_background((run for part in lists.parts() for run in part.runs.values()), context.depth)
        own.pop("contrast", None)
        found.append(NFaiRR(name=f"NFaiRR({queries})", background=background, depth=10 * context.depth, **own) @ _CUTOFF)
        return found, second

    @property
    def _queries(self) -> str:
        """Which queries the measures are over, for their names."""
        return f"{self.name}-neutral"

    def neutral_qids(self, topics: pd.DataFrame) -> list[str]:
        """The queries that name no group.

        Args:
            topics: ``qid``, and ``query`` or the column in which topics are labelled.

        Returns:
            Their qids, in the topics' order.
        """
        return neutral_qids(topics, self.wordlist, column=self.topics_column, tokeniser=self.tokeniser)

    def told_by(self, topics: pd.DataFrame) -> str:
        """Which queries count as neutral, as text.

        Args:
            topics: The topics, as for :meth:`neutral_qids`.

        Returns:
            The text that follows "those".

        Example:
            >>> WordListBias("debias").told_by(pd.DataFrame({"qid": ["1"], "query": ["who was Marie Curie"]}))
            'without a word of the list; queries that name a person or a topic of one group pass this filter'
        """
        if self.topics_column is not None and self.topics_column in topics.columns:
            return f"labelled neutral in the topics' column {self.topics_column!r}"
        return "without a word of the list; queries that name a person or a topic of one group pass this filter"

    def _why_none(self, topics: pd.DataFrame) -> str:
        """Why no topic counts as neutral, as text."""
        if self.topics_column is not None and self.topics_column in topics.columns:
            return f"their column {self.topics_column!r} labels none of them neutral"
        return f"each has a word of the list {self.wordlist.name!r}"

    def sides(self) -> tuple[str, str]:
        """The groups on the positive and on the negative side, as text."""
        names = {"m": "male", "f": "female"}
        weights = self.wordlist.contrast(self.contrast)
        sides = [[names.get(g, g) for g, w in weights.items() if w * side > 0] for side in (1, -1)]
        return " and ".join(sides[0]), " and ".join(sides[1]) or "none"

    def compute(self, context: Context) -> Examined:
        """See :meth:`JointBias.compute`."""
        return _Examined.of(self, context)


class GenderBias(WordListBias):
    """Bias for an audit: do rankings for neutral queries lean to one gender's words?

    Source: Rekabsaz and Schedl 2020 for ARaB, Bigdeli et al. 2023; see :class:`~pyterrier_debias.ARaBEvaluator`. If the topics
    have a column ``gender``, it says which queries are neutral; otherwise the classifier does; without a classifier, queries
    without a word of the list are neutral.

    The word list excludes hardly any query: of 1,944 queries that people labelled female or male (Rekabsaz and Schedl 2020), 26
    contain a word of the list, since most name a person. A :class:`~pyterrier_debias.gender.data.query_gender.GenderClassifier`
    fitted on such labels has an accuracy of .81 to .85 (:doc:`gender_mending`). The finding says which of these was used, and how
    many queries remained.

    Example:
        ``audit(systems, dataset, biases=[GenderBias(classifier=GenderClassifier.load("my-classifier"))])``

    When not to use it: on texts in a language other than the list's, which is English. A collection is rejected if
    hardly any words of its first documents are frequent English words or words of the list.
    """

    topics_column = "gender"

    def __init__(self, *, classifier: GenderClassifier | None = None, clusters: str | None = None) -> None:
        """Measures with the library's word list.

        Args:
            classifier: A fitted classifier, which decides which queries are neutral if the topics do not say it.
            clusters: The topics' column that says which of them share candidates, as in :class:`WordListBias`.

        Raises:
            InputError: If ``classifier`` is not a fitted classifier with the label ``neutral``.
        """
        super().__init__("debias", "gender", clusters=clusters)
        if classifier is not None and not isinstance(classifier, GenderClassifier):
            raise InputError(f"GenderBias: classifier={classifier!r} must be a GenderClassifier; fit or load one")
        if classifier is not None and "neutral" not in (classifier.labels or ()):
            raise InputError(
                f"GenderBias: {classifier!r} cannot recognise neutral queries; fit it on queries some of which are labelled "
                f"neutral"
            )
        self.classifier = classifier

    def neutral_qids(self, topics: pd.DataFrame) -> list[str]:
        """See :meth:`WordListBias.neutral_qids`: by the topics' column, the classifier, or words."""
        if self.classifier is None or self.topics_column in topics.columns:
            return super().neutral_qids(topics)
        labels = QueryGender(self.classifier)(with_string_ids(topics, "gender bias, topics").drop_duplicates("qid"))
        return labels.loc[labels["gender"] == "neutral", "qid"].tolist()

    def told_by(self, topics: pd.DataFrame) -> str:
        """See :meth:`WordListBias.told_by`."""
        if self.classifier is None or self.topics_column in topics.columns:
            return super().told_by(topics)
        return "labelled neutral by the classifier, which may be wrong on queries unlike those it was fitted on"

    def _why_none(self, topics: pd.DataFrame) -> str:
        if self.classifier is None or self.topics_column in topics.columns:
            return super()._why_none(topics)
        return "the classifier labels none of them neutral"

    @property
    def _queries(self) -> str:
        return "neutral"


@reads_frames
def neutral_qids(
    topics: pd.DataFrame, wordlist: Any = "debias", *, column: str | None = "gender", tokeniser: str | Tokeniser = "regex_word"
) -> list[str]:
    """The queries that name no group.

    Args:
        topics: ``qid`` and ``query``, or the column.
        wordlist: The words of each group; see :meth:`WordList.of`.
        column: A column of the topics in which such queries are labelled ``neutral``, ``n`` or ``none`` (as text), used if
            present; a query without a label does not count as neutral. None for words only.
        tokeniser: How queries are split into words.

    Returns:
        Their qids, in the topics' order.

    Raises:
        InputError: If a query is missing and the words are needed.

    Example:
        >>> neutral_qids(pd.DataFrame({"qid": ["1", "2"], "query": ["who was his mother", "how do bees fly"]}))
        ['2']
    """
    topics = topics.drop_duplicates("qid")
    if column is not None and column in topics.columns:
        # As text, a label that is missing may read "None".
        labels = (label.strip().lower() if isinstance(label, str) else None for label in topics[column])
        keep = np.array([label in _NEUTRAL_LABELS for label in labels], dtype=bool)
    else:
        lacking = topics.loc[topics["query"].isna(), "qid"] if "query" in topics.columns else topics["qid"]
        if len(lacking):
            raise InputError(
                f"neutral_qids: topic {lacking.iloc[0]!r} has no query; leave such topics out, or give a column that labels the "
                f"neutral ones 'neutral'"
            )
        keep = count_words(topics["query"], WordList.of(wordlist), tokeniser).sum(axis=1) == 0
    return topics["qid"][keep].tolist()


def _not_english(dataset: Any) -> str | None:
    """Why the library's list does not fit a collection, by its first documents; None if it does, or if nothing is known."""
    documents = islice(provided(dataset, "get_corpus_iter") or (), 50)
    words = [word for document in documents for word in regex_word(str(document.get("text", "")))[:100]]
    known = _ENGLISH.union(*WordList.of("debias").groups.values()) - _HOMOGRAPHS
    share = sum(word in known for word in words) / max(len(words), 1)
    if not words or share >= _FEWEST_ENGLISH:
        return None
    return (
        f"the collection does not look English, but the word list is: {share:.1%} of the words of its first documents are "
        f"frequent English words or words of the list; give words of its language, WordListBias({{'male': [...], 'female': "
        f"[...]}}, 'gender'), or, if it is English, the same words: WordListBias(WordList.of('debias').groups, 'gender')"
    )


@dataclass(frozen=True, eq=False)
class _Examined:
    """The gender measurements of all systems of an audit.

    Attributes:
        bias: The bias of the findings.
        context: The audit.
        evaluator: The evaluator used.
        found: The evaluated rankings of the systems; None if no query is neutral, or no document has a word of the list.
        candidates: For each system with a ranker, the same values for its candidates in their original order.
        lists: Each system's results for the neutral queries.
        texts: The documents' texts.
        neutral: How many judged queries are neutral.
        judged: How many queries are judged.
    """

    bias: WordListBias
    context: Context
    evaluator: ARaBEvaluator | None
    found: BiasResult | None
    candidates: dict[str, pd.DataFrame]
    lists: _Lists
    texts: Texts
    neutral: int
    judged: int

    @classmethod
    def of(cls, bias: WordListBias, context: Context) -> _Examined:
        judged = set(judged_qids(context.topics, context.qrels))
        qids = [qid for qid in bias.neutral_qids(context.topics) if qid in judged]

        lists = _Lists(context, qids)
        if not lists.systems:
            return cls(bias, context, None, None, {}, lists, Texts({}), len(qids), len(judged))
        # Loaded and counted once, whoever asks: all systems, their candidates, the background, what contributes.
        docnos = pd.DataFrame({"docno": lists.docnos()})
        texts = Texts(context.dataset)
        counts, _ = counted(docnos, texts, bias.wordlist, bias.tokeniser, f"{bias.name} bias")
        if not counts.total().any():
            return cls(bias, context, None, None, {}, lists, texts, len(qids), len(judged))

        def evaluator(**background: Any) -> ARaBEvaluator:
            return ARaBEvaluator(
                _CUTOFFS, wordlist=bias.wordlist, contrast=bias.contrast, tokeniser=bias.tokeniser, texts=texts, **background
            )  # fmt: skip

        of = None
        if bias.clusters is not None:
            of = cluster_of(context.topics, bias.clusters, f"{bias.name} bias")
        orders = {name: RandomOrders(clusters=of, seed=context.seed) for name in lists.systems}
        measured: dict[tuple[bool, str], list[pd.DataFrame]] = {}
        for part in lists.parts():
            own = evaluator(background=union_background(part.runs.values(), context.depth), depth=10 * context.depth)
            for name, frame in part.runs.items():
                found = _also_with_ties_drawn(own, frame, orders[name], context.seed)
                measured.setdefault((True, name), []).append(found)
            for name, frame in part.candidates.items():
                measured.setdefault((False, name), []).append(own(frame))
        values = {key: pd.concat(parts, ignore_index=True) for key, parts in measured.items()}
        # Resampling draws by place: sorted by query, the same results in another order give the same p values.
        runs = {name: values[True, name].sort_values("qid", kind="stable") for name in lists.systems}
        candidates = {name: values[False, first] for name, first in lists.candidates.items() if len(values[False, first])}
        if of is not None:
            runs = {name: frame.assign(cluster=frame["qid"].map(of)) for name, frame in runs.items()}
        whole = evaluator()
        result = BiasResult.of(runs, orders, set(qids), whole.convention(), seed=context.seed)
        return cls(bias, context, whole, result, candidates, lists, texts, len(qids), len(judged))

    # ------------------------------------------------------------------------------------------- findings

    def findings(self) -> Iterator[Finding]:
        """How far each system's rankings lean: by themselves, against a random order, and against its candidates."""
        for name in (system.name for system in self.context.systems):
            if name not in self.lists.systems:
                text = "no judged query is neutral and has results, so nothing can be said."
                yield self.bias.finding(name, _ARAB, _ORDER, self._nothing(), text)
                continue
            if self.found is None:
                text = (
                    "no document in the lists has any of the list's words, so nothing can be said; words match as a whole and in "
                    f"lower case.{self._lost}"
                )
                yield self.bias.finding(name, _ARAB, _ORDER, self._nothing(), text)
                continue
            yield from self._lean(name)
            yield from self._fair(name)
            if name in self.candidates:
                yield from self._against_candidates(name)
            yield self._passages(name)

    @staticmethod
    def _nothing() -> Interval:
        return Interval(np.nan, np.nan, np.nan, 0.95, 0)

    @property
    def _lost(self) -> str:
        """Which words of the list cannot occur among the words of a text, as a sentence; empty if all can."""
        wordlist, tokeniser = self.bias.wordlist, self.bias.tokeniser
        lost = unfindable(wordlist, tokeniser)
        if not lost:
            return ""
        named = ", ".join(map(repr, lost[:3])) + ", ..." * (len(lost) > 3)
        return (
            f" {len(lost)} of the list's {wordlist.size} words ({named}) are never found, because the tokeniser "
            f"{tokeniser_name(tokeniser)} never returns them whole; their parts are counted if the list has them."
        )

    @property
    def _measured(self) -> BiasResult:
        return cast(BiasResult, self.found)  # there are no runs where there is none

    @property
    def _together(self) -> str:
        """Which queries flip together, as text."""
        return "" if self.bias.clusters is None else f" of all queries with the same {self.bias.clusters!r} together"

    @property
    def _evaluator(self) -> ARaBEvaluator:
        return cast(ARaBEvaluator, self.evaluator)  # the same

    def _own(self, name: str) -> pd.DataFrame:
        own = self._measured.per_query
        return own[(own["system"] == name) & (own["cutoff"] == _CUTOFF)].set_index("qid")

    @staticmethod
    def _values(own: pd.DataFrame, column: str) -> dict[str, pd.Series]:
        """A column by query, with the labels of the queries if these flip by cluster."""
        labels = {"clusters": own["cluster"]} if "cluster" in own.columns else {}
        return {"values": own[column], **labels}

    def _interval(self, values: pd.Series, clusters: pd.Series | None = None) -> Interval:
        return bootstrap_interval(values.to_numpy(), clusters=clusters, seed=self.context.seed)

    def _lean(self, name: str) -> Iterator[Finding]:
        own = self._own(name)
        table = self._measured.table
        row = table[(table["system"] == name) & (table["cutoff"] == _CUTOFF)].iloc[0]
        first, second = self.bias.sides()
        how = self._evaluator.convention()
        low, high = row["low"], row["high"]
        text = (
            f"over {len(own)} neutral queries {_ARAB} is {row['ARaB']:+.3f} [{low:+.3f}, {high:+.3f}] (positive: {first}; p = "
            f"{p_text(row['p'])}); {row['first']} queries lean to {first}, {row['second']} to {second} words, {row['neither']} "
            f"to neither. {self.neutral} of {self.judged} judged queries count as neutral: those "
            f"{self.bias.told_by(self.context.topics)}."
        )
        mean = Interval(row["ARaB"], low, high, 0.95, len(own))
        convention = f"{how}; p by flipping signs{self._together}; the interval inverts this test"
        yield self.bias.finding(name, _ARAB, _NEUTRAL, mean, text, p=row["p"], convention=convention, **self._values(own, "ARaB"))
        added = Interval(row["added"], row["added_low"], row["added_high"], 0.95, len(own))
        if (own["added"] == 0).all():
            text = f"the order of its results is unrelated to {first} and {second} words in every query."
        else:
            differ = int((own["added"] != 0).sum())
            side = first if added.estimate > 0 else second
            text = (
                f"{_ARAB} differs by {added.estimate:+.3f} [{added.low:+.3f}, {added.high:+.3f}] from that of a random order of "
                f"the same documents ({row['expected']:+.3f}), towards {side} words; chance alone gives {row['floor']:.3f}; over "
                f"{len(own)} neutral queries, of which {differ} differ{'s' * (differ == 1)} (p = {p_text(row['added_p'])})."
            )
        text += self._lost
        yield self.bias.finding(
            name, _ARAB, _ORDER, added, text, p=row["added_p"], null_value=row["floor"], primary=True,
            convention=f"{how}; tied documents in random order; expectation over all orders in closed form; p by flipping "
            f"signs{self._together} and by random orders, whichever is larger; the interval inverts the test of signs, and "
            f"contains 0 if random orders do not reject",
            parts=self._parts(name), **self._values(own, "added"),
        )  # fmt: skip
        absolute = self._values(own.assign(ARaB=own["ARaB"].abs()), "ARaB")
        interval = self._interval(**absolute)
        floor = float(own["expected_abs"].mean())
        text = (
            f"regardless of direction, the {_ARAB} of a neutral query is {interval.estimate:.3f} [{interval.low:.3f}, "
            f"{interval.high:.3f}] on average; a random order of the same documents has {floor:.3f}."
        )
        yield self.bias.finding(name, _ABS, _NEUTRAL, interval, text, convention=how, null_value=floor, **absolute)

    def _parts(self, name: str) -> list[Parts]:
        """The contributions of documents and words to the lean that the order adds."""
        bias = self.bias
        runs = (with_ties_drawn(part.runs[name], self.context.seed) for part in self.lists.parts(name))
        documents, words, exact = order_parts(
            runs, self.texts, _CUTOFF, wordlist=bias.wordlist, contrast=bias.contrast, tokeniser=bias.tokeniser
        )  # fmt: skip
        return [Parts("document", documents), Parts("word", words, exact)]

    def _fair(self, name: str) -> Iterator[Finding]:
        if len(self.bias.wordlist.names) < 2:
            return
        own = self._values(self._own(name).dropna(subset="NFaiRR"), "NFaiRR")
        interval = self._interval(**own)
        text = (
            f"{_NFAIRR} is {interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}] over {interval.n} neutral queries "
            f"(1: as neutral as its documents allow).{self._short(name)}"
        )
        convention = f"{self._evaluator.convention()}; background: the documents of all systems; threshold 1, equal portions"
        yield self.bias.finding(name, _NFAIRR, _NEUTRAL, interval, text, convention=convention, **own)

    def _short(self, name: str) -> str:
        """How many lists are shorter than the cut-off, which lowers their NFaiRR, as a sentence; empty if none is."""
        few = int((self._own(name)["documents"] < _CUTOFF).sum())
        if not few:
            return ""
        return f" {few} of its lists {'has' if few == 1 else 'have'} fewer than {_CUTOFF} documents, which lowers it."

    def _against_candidates(self, name: str) -> Iterator[Finding]:
        before, after = self.candidates[name], self._own(name)
        before = before[before["cutoff"] == _CUTOFF].set_index("qid")
        for measure, column in ((_ARAB, "ARaB"), (_NFAIRR, "NFaiRR")):
            both = pd.concat([before[column], after[column]], axis=1, keys=["before", "after"], join="inner")
            both = both.dropna().sort_index()
            if not len(both):
                continue
            change = both["after"] - both["before"]
            most = _FURTHEST[column]
            by_query = self._values(after.loc[change.index].assign(change=change), "change")
            of = by_query.get("clusters")
            interval = inverted_interval(change.to_numpy(), clusters=of, seed=self.context.seed, least=-most, most=most)
            moved = int((change != 0).sum())
            text = (
                f"its ranker changes the {measure} of its candidates from {both['before'].mean():.3f} to "
                f"{both['after'].mean():.3f}: {interval.estimate:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}] over "
                f"{interval.n} neutral queries, of which {moved} change{'s' * (moved == 1)}"
            )
            if column == "NFaiRR":
                # BM25 prefers short documents, which hold fewer words of any group: a fair ranker that does not moves this.
                convention = f"{self._evaluator.convention()}; paired by query; not tested"
                text = f"{text}.{self._short(name)}"
                yield self.bias.finding(name, measure, _ADDED, interval, text, convention=convention, **by_query)
                continue
            test = randomisation_test(both["before"].to_numpy(), both["after"].to_numpy(), clusters=of, seed=self.context.seed)
            convention = (
                f"{self._evaluator.convention()}; paired by query; p by randomisation{self._together}; the interval inverts this "
                f"test"
            )
            text = f"{text} (p = {p_text(test.p)})."
            yield self.bias.finding(name, measure, _ADDED, interval, text, p=test.p, convention=convention, **by_query)

    def _passages(self, name: str) -> Finding:
        table = self._evaluator.contributions(self.lists.top(name, _CUTOFF), _CUTOFF, top=None)
        top = table.head(3)
        share = float(table["share"].head(10).sum())
        if len(top):
            words = "; ".join(f"{r['docno']} ({r['words']}) {r['part']:+.3f}" for r in top.to_dict("records"))
            text = (
                f"ten documents account for {share:.0%} of the sum of the absolute contributions to its {_ARAB}; those that "
                f"contribute most: {words}."
            )
        else:
            text = f"none of its first {_CUTOFF} documents has a word of the list."
        found = Interval(share, np.nan, np.nan, 0.95, len(table))
        convention = f"{self._evaluator.convention()}; share of the sum of absolute parts; n: documents with a part"
        return self.bias.finding(name, _ARAB, "ten documents", found, text, convention=convention)

    # ------------------------------------------------------------------------------------------- figures

    def figures(self) -> list[Figure]:
        """Plots of ARaB by cut-off, of the lean that the order adds, and of the documents behind it."""
        if self.found is None:
            return []
        n = int(self._measured.table["n"].max())
        first, _ = self.bias.sides()
        figures = [
            Figure(
                "cutoffs",
                f"ARaB@k (positive: {first}), mean over {n} neutral queries, with 95 % intervals.",
                lambda axes: self._measured.plot(axes),
            ),
            Figure(
                "order",
                f"ARaB@k minus that of a random order of the same documents, mean over {n} neutral queries, with 95 % intervals.",
                lambda axes: self._measured.plot(axes, measure="added"),
            ),
            Figure(
                "passages",
                f"The documents that contribute most to the mean {_ARAB} of {next(iter(self.lists.systems))}, with the words "
                f"found, over {n} neutral queries.",
                self._draw_passages,
            ),
        ]
        return figures

    def _draw_passages(self, axes: Any) -> None:
        from pyterrier_debias.core import plots

        name = next(iter(self.lists.systems))
        table = self._evaluator.contributions(self.lists.top(name, _CUTOFF), _CUTOFF, top=10).iloc[::-1]
        with plots.style():
            colours = [plots.colour(0) if part > 0 else plots.colour(1) for part in table["part"]]
            axes.barh(range(len(table)), table["part"], color=colours)
            short = [f"{d}: {w if len(w) <= 40 else w[:37] + '...'}" for d, w in zip(table["docno"], table["words"])]
            axes.set_yticks(range(len(table)), short)
            axes.axvline(0, color=plots.GREY, linewidth=1)
            axes.grid(visible=False)
            axes.locator_params(axis="x", nbins=4)  # the words beside the bars leave no room for more numbers
            n = int(self._measured.table["n"].max())
            plots.label_axes(axes, x=f"contribution to the mean {_ARAB}", y="", title=name, n=n)


def _also_with_ties_drawn(evaluator: ARaBEvaluator, lists: pd.DataFrame, orders: RandomOrders, seed: int) -> pd.DataFrame:
    """The values of lists, and their ARaB with tied documents in random order, for the primary test."""
    tied = lists["qid"][tied_with_the_one_before(lists)].unique()
    drawn = None
    if len(tied):  # first, as random orders ignore a query that they have
        drawn = evaluator.values(with_ties_drawn(lists[lists["qid"].isin(tied)].reset_index(drop=True), seed), orders)
    values = evaluator.values(lists, orders).assign(**{TIES_DRAWN: lambda own: own["ARaB"]})
    if drawn is None:
        return values
    key = ["qid", "cutoff"]
    of = values[key].merge(drawn[[*key, "ARaB"]], on=key, how="left")["ARaB"].to_numpy()
    return values.assign(**{TIES_DRAWN: np.where(np.isnan(of), values["ARaB"], of)})


@dataclass(frozen=True)
class _Part:
    """The lists of some neutral queries.

    Attributes:
        runs: Each system's results; a ranker's results end with the candidates that it left out.
        candidates: The candidates of rankers, by the first system that has them.
    """

    runs: dict[str, pd.DataFrame]
    candidates: dict[str, pd.DataFrame]


class _Lists:
    """The lists of all systems for the neutral queries, in parts, so that memory does not grow with the number of systems.

    Args:
        context: The audit.
        qids: The neutral queries.

    Attributes:
        systems: The systems that have results, by name.
        candidates: For each system with a ranker, the name of the first system with the same candidates.
    """

    def __init__(self, context: Context, qids: list[str]):
        self._context, self._qids = context, qids
        self.systems = {one.name: one for one in context.systems if len(context.results(one, depth=1, qids=qids))}
        first = {name: context.first_alike(one) for name, one in self.systems.items() if one.ranker is not None}
        self.candidates = {name: one.name for name, one in first.items()}
        self._retrieved = {one.name: context.candidates(one) for one in first.values()}
        self._rows = {name: QueryRows(frame["qid"]) for name, frame in self._retrieved.items()}

    def docnos(self) -> list[str]:
        """The documents of all lists."""
        frames = (frame for part in self.parts() for frame in (*part.runs.values(), *part.candidates.values()))
        return list(dict.fromkeys(docno for frame in frames for docno in frame["docno"].unique()))

    def parts(self, name: str | None = None) -> Iterator[_Part]:
        """The lists of one system, or of all."""
        systems = self.systems if name is None else {name: self.systems[name]}
        first = list(dict.fromkeys(self.candidates[name] for name in systems if name in self.candidates))
        # As many rows as for one system at a time.
        queries = max(1, _LISTS * ROWS // (self._context.depth * (len(systems) + len(first))))
        for start in range(0, len(self._qids), queries):
            qids = self._qids[start : start + queries]
            candidates = {name: self._candidates(name, qids) for name in first}
            runs = {name: self.top(name, qids=qids) for name in systems}
            whole = {
                name: run if systems[name].ranker is None else _whole(run, candidates[self.candidates[name]])
                for name, run in runs.items()
            }
            yield _Part(whole, candidates)

    def top(self, name: str, depth: int | None = None, qids: list[str] | None = None) -> pd.DataFrame:
        """A system's results for some queries, or for all: the first ``depth`` documents, or as many as a ranker is given."""
        depth = self._context.depth if depth is None else min(depth, self._context.depth)
        return _without_text(self._context.results(self.systems[name], depth=depth, qids=self._qids if qids is None else qids))

    def _candidates(self, name: str, qids: list[str]) -> pd.DataFrame:
        rows = self._rows[name].of(qids, self._context.depth)[0]
        return _without_text(self._retrieved[name]).take(rows).reset_index(drop=True)


def _without_text(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame without texts, which are loaded once for all."""
    return frame.drop(columns="text", errors="ignore")


def _whole(run: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Append to a run the candidates that the ranker left out (for example with a cut-off), in their original order.

    This is needed because a random order contains all documents that the ranker received.

    Args:
        run: ``qid``, ``docno``, ``score`` and ``rank``.
        candidates: A frame with the same columns.

    Returns:
        The extended run, sorted by query and rank, with scores that keep its ties. The scores of appended documents are below all
        others, and the column :data:`LEFT_OUT` says which they are.
    """
    known, given = pair_numbers(run, candidates)
    below = candidates[~np.isin(given, known) & candidates["qid"].isin(run["qid"].unique())]
    if not len(below):
        return run
    # New scores, since the lowest may be infinite, or so low that no score is below it.
    group = np.cumsum(~tied_with_the_one_before(run))
    last, rank = int(group[-1]), below["rank"] + run["rank"].max() + 1
    above = run.assign(score=-group.astype(np.float64), **{LEFT_OUT: False})
    below = below.assign(rank=rank, score=-(last + 1.0 + rank), **{LEFT_OUT: True})
    both = pd.concat([frame[["qid", "docno", "score", "rank", LEFT_OUT]] for frame in (above, below)], ignore_index=True)
    return both.iloc[np.lexsort((both["rank"], pd.factorize(both["qid"])[0]))].reset_index(drop=True)
