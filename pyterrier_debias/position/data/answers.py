"""AnswerPositions: where answers begin in their passages, before and after rotation."""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError, check_choice, shortened
from pyterrier_debias.core.frames import check_text, numbers, reads_frames, stage_name, with_listed_answers, with_string_ids
from pyterrier_debias.core.scripts import Segmenter, composed, folded, word_places
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import TestResult, p_from_null
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.core.text import Tokeniser, as_name, keyed_hash
from pyterrier_debias.data.base import STORE_WHOLE, cut_texts
from pyterrier_debias.position.data.rotation import (
    RotatePassages,
    bin_of,
    bin_shares,
    is_cut,
    moved,
    occurrences,
    rotation_null,
    word_spans,
    words_of_span,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

_NONE = -1


class AnswerPositions(Stage):
    """Find where answers begin in their passages (Hofstätter et al., "Mitigating the Position Bias of Transformer Models in
    Passage Re-Ranking", ECIR 2021, Figure 1).

    Input, one row per answer and passage: ``docno``, the passage's text, and ``answer`` (a string) or ``answers`` (a list of
    strings); also, if known, ``start`` and ``end`` (in characters of the text, ``end`` exclusive, -1 if only the string is
    known; lists of the same length if there are ``answers``) and ``qid``. ``answers`` may also have the form of SQuAD on the
    Hugging Face hub: a mapping of ``text`` to the list and of ``answer_start`` to the places, which are used if there is no
    ``start``. Rows that are equal in all of these count once, because labellers who agree gave the same answer.

    An answer with ``start`` is taken to be there if its letters and digits are; case, punctuation and white space may differ.
    If they are not (the text was rotated, or a title was put before it), a warning gives the number of such answers, and they are
    searched for, as answers without ``start`` are: the words of the answer are matched against those of the passage, and
    each match, or only the first (``repeats``), becomes a row. An answer without a match is *omitted*: one row with
    ``matched=False``. Omissions are reported because there are many if labellers wrote in their own words, and omitted answers
    need not begin where the others do.

    Output: a new frame with the input's columns except the text, and

    - ``start``, ``end``: characters of the answer or match; -1 if omitted;
    - ``matched``: whether the answer has a place;
    - ``position``: the number of its first word, from 0 (a - 1 in the paper), -1 if omitted; ``length``: how many words it
      touches; ``n_words``: the number of words of the passage; ``relative``: ``position / n_words``, in [0, 1);
    - ``rotated_position``, ``rotated_relative``: the same after ``rotation``; ``cut``: whether rotation cuts the answer into two
      pieces, one at the end and one at the beginning.

    Rotated positions are computed from the offset, by ((a - r) mod n) + 1, not matched again in the rotated text. Matching would
    lose the answers that are cut, (L - 1)/n of those with L words, mostly long ones. If you want that, match in the rotated
    text: ``RotatePassages() >> AnswerPositions()``.

    Raises:
        InputError: If an option is unknown or out of range; raised when the stage is first used.

    When not to use it: on answers that do not quote the passage (summaries, yes and no); the few that match are not like the
    rest, and the omission rate shows how few they are.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"docno": ["d1"], "text": ["The capital is Paris, they say."], "answer": ["paris"]})
        >>> AnswerPositions()(rows)[["position", "n_words", "relative"]].values.tolist()
        [[3.0, 6.0, 0.5]]

        On a collection, with figures: ``AnswerPositions().measure(dataset).plot()``.

    .. cite.dblp:: journals/corr/abs-2101-06980
    """

    schematic = {"label": "AnswerPositions", "help_url": None, "inner_pipelines_mode": "unlinked"}  # noqa: RUF012

    def __init__(
        self,
        *,
        tokeniser: str | Tokeniser = "whitespace",
        match: str = "words",
        case: str = "lower",
        repeats: str = "all",
        rotation: RotatePassages | None = None,
        text_field: str = "text",
        verbose: bool = False,
        segmenter: Segmenter | None = None,
    ):
        """
        Args:
            tokeniser: The words in which positions are counted; the same default as in :class:`RotatePassages`.
            match: What must agree if only the answer's string is known. ``'words'`` (default): runs of letters (with their
                marks) and digits; punctuation is ignored, except inside a number (``3.5``, ``1,000``, ``12:30``) and in
                ``don't``, which are one word. ``'tokens'``: the tokens of ``tokeniser``. With ``'whitespace'`` this misses every
                answer before a comma; with ``'blingfire'`` it is what the paper's released code would do.
            case: ``'lower'``: matching ignores case; ``'keep'``: case must agree. With either, the form in which an accent or
                apostrophe is stored does not matter.
            repeats: Which matches of an answer in a passage count if only its string is known: ``'all'``, as in the paper, or the
                ``'first'``. Repeats come later, so all matches together begin later than the answers themselves.
            rotation: How passages are rotated for the rotated positions; None means ``RotatePassages(tokeniser=tokeniser,
                segmenter=segmenter)``. Its words may differ from those of ``tokeniser``, because the place of the cut is passed
                on in characters.
            text_field: The column that holds the passage.
            verbose: Whether to show progress.
            segmenter: The words in which positions are counted in scripts without blanks; see :class:`RotatePassages`. Answers
                in these scripts are matched by ideograph, kana or grapheme cluster.
        """
        self.tokeniser = tokeniser
        self.match = match
        self.case = case
        self.repeats = repeats
        self.rotation = rotation
        self.text_field = text_field
        self.verbose = verbose
        self.segmenter = segmenter

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Find the answers of a frame; see the class.

        Raises:
            InputError: If an option is unknown, a text or answer is missing, a marked answer is outside its text, or the lists of
                answers and places differ in length.
        """
        return self.located(inp)[0]

    def located(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, tuple[int, int]]:
        """As :meth:`transform`; and how many answers were searched for because they are not where they are marked.

        Args:
            inp: See the class.

        Returns:
            The output of :meth:`transform`; the number of answers that are not where they are marked, and of all marked ones.

        Raises:
            InputError: As for :meth:`transform`.
        """
        counting = RotatePassages(tokeniser=self.tokeniser, segmenter=self.segmenter)
        rotation = counting if self.rotation is None else self.rotation
        needed = ["docno", self.text_field, *(["qid"] if rotation.scope == "pair" else [])]
        with pt.validate.any(inp, context=self) as v:
            v.columns(includes=[*needed, "answer"], mode="answer")
            v.columns(includes=[*needed, "answers"], mode="answers")
        answers = self._one_answer_a_row(inp, v.mode)
        check_text(answers, self.text_field, self)
        answers, astray, marked = self._without_wrong_places(answers)
        finder = _Finder(self, counting, rotation)
        found: list[tuple[int, ...]] = []
        texts, docnos, strings = (answers[c].tolist() for c in (self.text_field, "docno", "answer"))
        qids = answers["qid"].tolist() if rotation.scope == "pair" else [""] * len(answers)
        rows = zip(texts, docnos, qids, strings, answers["start"].tolist(), answers["end"].tolist())
        for row, (text, docno, qid, answer, start, end) in enumerate(
            pt.tqdm(rows, total=len(answers), desc="AnswerPositions", disable=not self.verbose)
        ):
            if start != _NONE and not 0 <= start < end <= len(text):
                raise InputError(
                    f"AnswerPositions: answer {answer!r} of docno={docno!r} is marked at characters {start} to {end} of a text "
                    f"of {len(text)} characters; count from 0, end exclusive, and write -1 if the place is not known"
                )
            passage = finder.passage(text)
            places = [(start, end)] if start != _NONE else passage.find(answer)[: finder.most]
            offset = finder.words_moved(passage, as_name(docno), as_name(qid))
            n = len(passage.spans)
            placed = [(row, *place, *words_of_span(passage.spans, *place), n, offset) for place in places]
            # A marked stretch without any word (spaces; a lone bracket, under some tokenisers) has no position.
            placed = [place for place in placed if place[4]]
            found.extend(placed or [(row, _NONE, _NONE, _NONE, 0, n, offset)])
        return self._frame(answers, np.array(found, dtype=np.int64).reshape(-1, 7)), (astray, marked)

    def _one_answer_a_row(self, inp: pd.DataFrame, mode: str) -> pd.DataFrame:
        """One row per answer, with ``start`` and ``end``, no row twice."""
        frame = inp
        if mode == "answers":
            lists = self._with_listed_places(with_listed_answers(inp, "answers", self))
            beside = [column for column in ("start", "end") if column in lists]
            frame = lists.explode(["answers", *beside]).rename(columns={"answers": "answer"})
            frame = frame[frame["answer"].notna()]
        check_text(frame, "answer", self)
        start = self._marked(frame, "start") if "start" in frame else pd.Series(_NONE, frame.index, dtype=int)
        if "end" in frame:
            end = self._marked(frame, "end")
        else:
            end = start.where(start == _NONE, start + frame["answer"].map(len).astype(int))
        return _distinct(frame.assign(start=start, end=end))

    def _without_wrong_places(self, answers: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
        """The answers, without the places at which the text has another string; how many these are, and how many had a place."""
        places = zip(*(answers[c].tolist() for c in (self.text_field, "answer", "start", "end")))
        wrong = np.array([0 <= s < e <= len(text) and not _is_at(answer, text[s:e]) for text, answer, s, e in places], dtype=bool)
        astray, marked = int(wrong.sum()), int((answers["start"] != _NONE).sum())
        if astray:
            warn_of(
                logger,
                f"{stage_name(self)}: %d of %d answers are not at their offsets (start, end) in these texts; their strings were "
                f"searched for",
                astray, marked,
            )  # fmt: skip
            answers = _distinct(answers.assign(start=answers["start"].mask(wrong, _NONE), end=answers["end"].mask(wrong, _NONE)))
        return answers, astray, marked

    def _with_listed_places(self, lists: pd.DataFrame) -> pd.DataFrame:
        """Places as lists of the same length as the answers; a single unknown place stands for all of them."""
        size = [max(1, len(held)) if pd.api.types.is_list_like(held) else 1 for held in lists["answers"]]
        for column in ("start", "end"):
            places: list[list[Any]] = []
            for row, (place, n) in enumerate(zip(lists[column].tolist() if column in lists else [], size)):
                if pd.api.types.is_list_like(place):
                    listed = list(place) or [_NONE]
                else:
                    listed = [place] * (n if pd.isna(place) or place == _NONE else 1)
                if len(listed) != n:
                    raise InputError(
                        f"AnswerPositions: column {column!r} is {shortened(repr(place), 40)} at row {row} "
                        f"(docno={lists['docno'].iloc[row]!r}), which has {n} answers; give a list with one place per answer, or "
                        f"-1 if no place is known"
                    )
                places.append(listed)
            if places:
                lists = lists.assign(**{column: pd.Series(places, index=lists.index, dtype=object)})
        return lists

    def _marked(self, frame: pd.DataFrame, column: str) -> pd.Series:
        """Places as integers, -1 where they are missing."""
        places = numbers(frame[column], self).fillna(_NONE)
        whole = places.between(_NONE, 2**31) & (places == places.round())
        if not whole.all():
            raise InputError(
                f"AnswerPositions: column {column!r} holds {places[~whole].iloc[0]}, which is not a position in a text; count "
                f"characters from 0, and write -1 if the place is not known"
            )
        return places.astype(int)

    def _frame(self, answers: pd.DataFrame, found: np.ndarray) -> pd.DataFrame:
        row, start, end, position, length, n, offset = found.T
        matched = position != _NONE
        words = np.where(matched, n, 1)
        rotated = np.where(matched, moved(position, offset, words), _NONE)
        kept = answers.drop(columns=[self.text_field, "start", "end"]).iloc[row].reset_index(drop=True)
        return kept.assign(
            start=start,
            end=end,
            matched=matched,
            position=position,
            length=length,
            n_words=n,
            relative=np.where(matched, position / words, np.nan),
            rotated_position=rotated,
            rotated_relative=np.where(matched, rotated / words, np.nan),
            cut=matched & (is_cut(position, length, offset, words)),
        )

    @reads_frames
    def measure(self, answers: Any, name: str | None = None) -> Positions:
        """Find all answers of a collection or frame, for histograms, tests and figures.

        Args:
            answers: A frame as for :meth:`transform`; or a dataset with ``get_answers()`` and ``text_loader()`` (see
                :class:`pyterrier_debias.core.dataset.Dataset`), whose answers are those in passages that labellers selected.
            name: The name of the answers in figures; default is the dataset's own name.

        Returns:
            The positions.

        Raises:
            InputError: If the dataset has no answers.

        Example:
            >>> import pandas as pd
            >>> from pyterrier_debias import Collection
            >>> toy = Collection(
            ...     "toy",
            ...     corpus=pd.DataFrame({"docno": ["d1"], "text": ["Water boils at 100 degrees."]}),
            ...     topics={"test": pd.DataFrame({"qid": ["q1"], "query": ["when does water boil"]})},
            ...     qrels={"test": pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})},
            ...     answers=pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "answer": ["100"], "start": [-1], "end": [-1]}),
            ... )
            >>> AnswerPositions().measure(toy).summary()["mean_relative"]
            0.6
        """
        if isinstance(answers, pd.DataFrame):
            return Positions(self(answers), name or "answers")
        dataset, name = answers, name or str(getattr(answers, "name", None) or answers)
        answers = provided(dataset, "get_answers")
        if answers is None:
            raise InputError(
                f"AnswerPositions: {name} has no answers; use a collection with get_answers(), or a frame with docno, "
                f"{self.text_field} and answer"
            )
        answers = with_string_ids(answers, self)
        documents = answers[["docno"]].drop_duplicates()
        texts = with_string_ids(dataset.text_loader([self.text_field])(documents), self)
        known = answers.drop(columns=self.text_field, errors="ignore").merge(texts[["docno", self.text_field]], on="docno")
        return Positions(self(answers_in_texts(known, dataset, self.text_field, self)), name)


def answers_in_texts(known: pd.DataFrame, dataset: Any, text_field: str, stage: Any) -> pd.DataFrame:
    """Drop answers that are marked after the end of a truncated text; a warning says how many texts are truncated.

    Args:
        known: Answers ``docno``, ``answer``, with ``start`` and ``end`` if known, and the texts in which to look for them.
        dataset: The collection of the answers; see :func:`~pyterrier_debias.data.base.cut_texts`.
        text_field: The column that holds the text.
        stage: The stage that the warning names.

    Returns:
        The rows that can be looked for.
    """
    cut = cut_texts(known, dataset, text_field)
    start = known["start"].fillna(_NONE).to_numpy() if "start" in known else np.full(len(known), _NONE)
    end = known["end"].fillna(_NONE).to_numpy() if "end" in known else start + known["answer"].map(len).to_numpy()
    marked = start != _NONE
    lost = cut & marked & (end > known[text_field].map(len).to_numpy())
    absent = [c and a.lower() not in t.lower() for c, a, t in zip(cut & ~marked, known["answer"], known[text_field])]
    if not lost.any() and not any(absent):  # texts may also have one length by chance
        return known
    documents = known.assign(cut=cut).drop_duplicates("docno")
    logger.warning(
        "%s: %d of %d texts with answers seem to be truncated; %d answers are marked after the end of their text and count as "
        "not found; %s",
        stage_name(stage), documents["cut"].sum(), len(documents), lost.sum(), STORE_WHOLE,
    )  # fmt: skip
    return known[~lost]


def _distinct(answers: pd.DataFrame) -> pd.DataFrame:
    """Each answer once: labellers who agree gave the same one."""
    key = [c for c in ("qid", "docno", "answer", "start", "end") if c in answers]
    return answers.drop_duplicates(key).reset_index(drop=True)


def _is_at(answer: str, piece: str) -> bool:
    """Whether a piece of a text is the answer, as far as letters and digits tell; of a blank answer nothing is known."""
    return answer == piece or not answer.strip() or _letters(answer) == _letters(piece) != ""


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, folded(text)))


class _Passage:
    """A passage's words as rotation counts them, and as answers are matched."""

    def __init__(self, text: str, finder: _Finder):
        self.text = text
        self.finder = finder
        self.spans = word_spans(text, finder.count(text))

    @cached_property
    def _matchable(self) -> tuple[list[str], list[tuple[int, int]]]:
        if not self.finder.by_words:
            return self.finder.key(self.finder.count(self.text)), self.spans
        spans = _match_places(self.text)
        return self.finder.key([self.text[start:end] for start, end in spans]), spans

    def find(self, answer: str) -> list[tuple[int, int]]:
        """All matches of an answer, in characters."""
        by_words = self.finder.by_words
        sought = self.finder.key(
            [answer[start:end] for start, end in _match_places(answer)] if by_words else self.finder.count(answer)
        )
        words, spans = self._matchable
        return [(spans[i][0], spans[i + len(sought) - 1][1]) for i in occurrences(words, sought)]


def _match_places(text: str) -> list[tuple[int, int]]:
    """The places of the words that must agree: :func:`word_places`, with numbers and negations in one piece."""
    places: list[tuple[int, int]] = []
    for start, end in word_places(text):
        before = places[-1][1] if places else _NONE
        if start == before + 1 and before > 0:
            sign, last, first = text[before], text[before - 1], text[start]
            number = sign in ".,:" and last.isdecimal() and first.isdecimal()
            if number or (sign in "'’" and last in "nN" and text[start:end] in ("t", "T")):
                places[-1] = places[-1][0], end
                continue
        places.append((start, end))
    return places


class _Finder:
    """The options in executable form; passages are read once, however many answers they contain."""

    def __init__(self, stage: AnswerPositions, counting: RotatePassages, rotation: RotatePassages):
        for option, known in (("match", ("words", "tokens")), ("case", ("lower", "keep")), ("repeats", ("all", "first"))):
            check_choice("AnswerPositions", option, getattr(stage, option), known)
        self.count = counting.splitter()
        self.by_words = stage.match == "words"
        self.most = 1 if stage.repeats == "first" else None
        self.lower = stage.case == "lower"
        self.turn, self.split = rotation.rotator(), rotation.splitter()
        # Rows mostly come passage by passage; a bound keeps memory flat on large collections.
        self.passage = lru_cache(maxsize=4096)(lambda text: _Passage(text, self))
        self.words_moved = lru_cache(maxsize=4096)(self._words_moved)

    def key(self, words: list[str]) -> list[str]:
        return [folded(word) if self.lower else composed(word).replace("\u2019", "'") for word in words]

    def _words_moved(self, passage: _Passage, docno: str, qid: str) -> int:
        """How many of the counted words are before the place where rotation cuts the passage."""
        _, offset = self.turn(passage.text, docno, qid)
        cut = word_spans(passage.text, self.split(passage.text))[offset][0] if offset else 0
        return bisect_left(passage.spans, cut, key=itemgetter(0))


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of the answers in one collection, with histograms, tests and figures; see :meth:`AnswerPositions.measure`.

    Attributes:
        frame: The output of :class:`AnswerPositions`; you may leave out rows to examine some of the answers.
        name: The name of the collection in figures.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"docno": ["d1"], "text": ["a b c d"], "answers": [["b", "z"]]})
        >>> positions = AnswerPositions().measure(rows, "toy")
        >>> positions.summary()["omitted"], positions.histogram(bins=2)["count"].tolist()
        (0.5, [1, 0])
    """

    frame: pd.DataFrame
    name: str = "answers"

    @property
    def matches(self) -> pd.DataFrame:
        """The rows with a position."""
        return self.frame[self.frame["matched"].to_numpy(dtype=bool)]

    def summary(self) -> dict[str, Any]:
        """Summary statistics of the positions.

        Returns:
            A dictionary: ``answers`` (distinct strings per query, or per passage if there is no qid), ``omitted`` (the share of
            these without a match in any passage), ``omitted_pairs`` (the share of answer-passage pairs without a match),
            ``unanswered_passages`` (the share of the passages of queries in which no answer is matched), ``unused_aliases`` (the
            share of pairs without a match in the other passages: different words for an answer that the passage contains),
            ``matches``, ``passages`` (with a match), ``mean_relative`` (original), ``mean_placed`` (if the same answers were put
            anywhere in their passages, whole: the mean of (n - L) / 2n), ``mean_rotated``, ``mean_uniform`` (the average over
            rotations: the mean of (n - 1) / 2n), ``cut`` (the share of matches that rotation cuts).
        """
        frame, matches = self.frame, self.matches
        owner = "qid" if "qid" in frame else "docno"
        answers = frame.groupby([owner, "answer"])["matched"].any()
        passage = list(dict.fromkeys([owner, "docno"]))
        pairs = frame.groupby([*passage, "answer"])["matched"].any()
        answered = pairs.groupby(level=passage).any()
        of_passage = pairs.groupby(level=passage).transform("any").astype(bool)
        n, length = matches["n_words"], matches["length"]
        return {
            "answers": len(answers),
            "omitted": _mean(~answers),
            "omitted_pairs": _mean(~pairs),
            "unanswered_passages": _mean(~answered),
            "unused_aliases": _mean(~pairs[of_passage]),
            "matches": len(matches),
            "passages": matches["docno"].nunique(),
            "mean_relative": _mean(matches["relative"]),
            "mean_placed": _mean((n - length) / (2 * n)),
            "mean_rotated": _mean(matches["rotated_relative"]),
            "mean_uniform": _mean((n - 1) / (2 * n)),
            "cut": _mean(matches["cut"]),
        }

    def histogram(self, bins: int = 20, *, rotated: bool = False, level: float = 0.95) -> pd.DataFrame:
        """How often answers begin in each part of their passages.

        The interval of a share treats passages as the independent units, because answers in the same passage (and several matches
        of one answer) are not independent. It is Wilson's interval with the number of independent answers that would give the
        variance of a ratio of sums over passages; for a bin without answers this number is the number of passages.

        Args:
            bins: The number of equal parts of [0, 1).
            rotated: Whether to count positions after rotation.
            level: Coverage of the interval.

        Returns:
            One row per bin: ``bin``, ``left``, ``right`` (relative positions), ``count``, ``share``, ``low``, ``high`` (interval
            of the share); ``uniform``: the share if first words were uniform over their passages, exactly for these lengths;
            ``placed``: the same if whole answers were (a long one cannot begin at the end).

        Raises:
            InputError: If ``bins`` is below 2.
        """
        from scipy import stats

        position, n, passage, length = self._arrays(rotated, ("docno",), bins)
        drawn = bin_of(position, n, bins)
        table = np.zeros((passage.max(initial=-1) + 1, bins))
        np.add.at(table, (passage, drawn), 1)
        total, passages, count = len(position), len(table), table.sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):  # without answers, every share is 0 / 0
            share = count / total
            residual = table - table.sum(1, keepdims=True) * share
            variance = (residual**2).sum(0) / total**2 * (passages / (passages - 1) if passages > 1 else np.nan)
            independent = np.where(variance > 0, share * (1 - share) / variance, passages)
            low, high = _wilson(share, independent, stats.norm.ppf((1 + level) / 2))
            uniform, placed = _expected(n, np.ones_like(n), bins) / total, _expected(n, length, bins) / total
        return pd.DataFrame(
            {
                "bin": np.arange(bins),
                "left": np.arange(bins) / bins,
                "right": np.arange(1, bins + 1) / bins,
                "count": count.astype(np.int64),
                "share": share,
                "low": low,
                "high": high,
                "uniform": uniform,
                "placed": placed,
            }
        )

    def uniformity_test(
        self,
        *,
        bins: int = 10,
        rotated: bool = False,
        method: str = "rotation",
        resamples: int = 1_999,
        seed: int = 0,
        cluster: tuple[str, ...] = ("docno",),
    ) -> TestResult:
        """Test whether answers begin uniformly over their passages.

        The statistic is Pearson's X^2 = sum over bins of (count - expected)^2 / expected. The expected counts are exact for the
        lengths of the passages (positions are whole words, so short passages do not fill all bins equally).

        - ``method='rotation'`` (default) compares with random rotations of every passage, each with all its answers. The null
          hypothesis is "a rotation changes nothing", which rotation makes true. The test needs neither independent answers in
          a passage nor large counts.
        - ``method='chi2'`` uses one answer per passage, drawn by key, and the chi-square distribution with bins - 1 degrees of
          freedom. It has less power, but can give p values below 1 / (resamples + 1).
        - ``method='placed'`` does the same, but compares with whole answers put anywhere in their passages. An answer of L words
          cannot begin in the last L - 1, so long answers begin early even if nobody prefers the beginning; use this method to
          find out whether there is a preference in passages as they are.

        An ordinary chi-square test over all answers rejects too often, because answers in the same passage are close together.

        Args:
            bins: The number of equal parts.
            rotated: Whether to test the positions after rotation.
            method: ``'rotation'``, ``'chi2'`` or ``'placed'`` (not for rotated positions, where answers may be cut).
            resamples: The number of random rotations; used only by ``'rotation'``.
            seed: Seed of the resamples.
            cluster: The columns that identify what is rotated together; ``('qid', 'docno')`` for positions after a rotation that
                was drawn for each query and passage.

        Returns:
            Statistic, p, n (the number of answers used) and the name of the method.

        Raises:
            InputError: If no answer has a place, or an option is unknown.
        """
        known = ("rotation", "chi2") if rotated else ("rotation", "chi2", "placed")
        check_choice("uniformity_test after rotation" if rotated else "uniformity_test", "method", method, known)
        position, n, passage, length = self._arrays(rotated, cluster, bins)
        if not len(position):
            raise InputError(
                f"uniformity_test: no answer of {self.name} has a position in its passage, so there is nothing to test; give "
                f"passages that contain their answers"
            )
        if method != "rotation":
            chosen = self._one_a_passage(passage, seed)
            position, n, passage, length = position[chosen], n[chosen], passage[chosen], length[chosen]
        expected = _expected(n, length if method == "placed" else np.ones_like(n), bins)
        possible = expected > 0

        def statistic(counts: np.ndarray) -> np.ndarray:
            return ((counts[..., possible] - expected[possible]) ** 2 / expected[possible]).sum(-1)

        observed = float(statistic(np.bincount(bin_of(position, n, bins), minlength=bins)))
        if method == "rotation":
            null = statistic(rotation_null(position, n, passage, bins, resamples=resamples, seed=seed))
            return TestResult(observed, p_from_null(observed, null), len(position), f"random rotations, {resamples} resamples")
        from scipy import stats

        p = float(stats.chi2.sf(observed, possible.sum() - 1))
        law = "whole answers placed at random" if method == "placed" else "chi-square"
        return TestResult(observed, p, len(position), f"{law}, one answer per passage")

    def plot(self, *others: Positions, ax: Axes | None = None, bins: int = 20, rotated: bool = True) -> Axes:
        """Draw the paper's Figure 1: the share of answers by relative position, original and rotated, with 95 % intervals.

        A thin dotted line in the same colour shows whole answers put anywhere in their passages.

        Args:
            others: Further collections for the same picture.
            ax: Matplotlib axes; None makes new ones.
            bins: How many equal parts of a passage.
            rotated: Whether to draw the rotated curves.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        axes = plots.new_axes(7.5, 5.2) if ax is None else ax
        for i, one in enumerate((self, *others)):
            summary = one.summary()
            label = f"{plots.legend_label(one.name)}\n{summary['matches']:,} answers, {summary['passages']:,} passages"
            label += f", {summary['omitted']:.1%} omitted" if summary["omitted"] else ""
            one.draw_curve(axes, bins, colour=plots.colour(i), label=label)
            if rotated:
                one.draw_curve(axes, bins, rotated=True, colour=plots.colour(i), label="passages rotated")
            one.draw_placed(axes, bins, colour=plots.colour(i))
        label_bins(axes, bins)
        with plots.style():
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=1 + len(others))
        return axes

    def draw_curve(self, axes: Axes, bins: int, *, rotated: bool = False, colour: str, label: str) -> None:
        """Draw one curve with its 95 % interval: filled circles for original positions, open squares after rotation.

        Args:
            axes: Matplotlib axes.
            bins: How many equal parts of a passage.
            rotated: Whether to draw the positions after rotation.
            colour: The colour of the curve.
            label: The label in the legend.
        """
        from pyterrier_debias.core import plots

        table = self.histogram(bins, rotated=rotated)
        middle = (table["left"] + table["right"]) / 2
        look: dict[str, Any] = {"linestyle": "--", "marker": "s", "markerfacecolor": "white"} if rotated else {"marker": "o"}
        with plots.style():
            axes.plot(middle, 100 * table["share"], color=colour, label=label, **look)
            axes.fill_between(middle, 100 * table["low"], 100 * table["high"], color=colour, alpha=0.12, linewidth=0)

    def draw_placed(self, axes: Axes, bins: int, *, colour: str) -> None:
        """Draw a thin dotted line: the curve if the same answers, whole, were put anywhere in their passages.

        Args:
            axes: Matplotlib axes.
            bins: How many equal parts of a passage.
            colour: The colour of the line.
        """
        table = self.histogram(bins)
        middle = (table["left"] + table["right"]) / 2
        axes.plot(middle, 100 * table["placed"], color=colour, linestyle=":", linewidth=1.5, label="placed at random")

    def _arrays(self, rotated: bool, cluster: tuple[str, ...], bins: int) -> tuple[np.ndarray, ...]:
        """Position, words, code of the passage, length: one entry per match."""
        if bins < 2:
            raise InputError(f"Positions: bins={bins} leaves nothing to compare; use 2 or more")
        rows = self.matches
        position, n, length = (
            rows[c].to_numpy(dtype=np.int64) for c in ("rotated_position" if rotated else "position", "n_words", "length")
        )
        return position, n, rows.groupby(list(cluster)).ngroup().to_numpy(), length

    def _one_a_passage(self, passage: np.ndarray, seed: int) -> np.ndarray:
        """For each passage the row with the smallest key: a draw that does not depend on the order of rows."""
        rows = self.matches
        columns = [rows[c].astype(str).tolist() for c in ("qid", "docno", "answer", "start") if c in rows]
        keys = np.array([keyed_hash(seed, "one answer", *ids) for ids in zip(*columns)], dtype=np.uint64)
        order = np.lexsort((keys, passage))
        return order[np.flatnonzero(np.diff(passage[order], prepend=-1))]


def label_bins(axes: Axes, bins: int, title: str = "") -> None:
    """Label axes that show positions in equal parts of passages.

    Args:
        axes: Matplotlib axes.
        bins: How many parts.
        title: What the picture shows; may be empty.
    """
    from pyterrier_debias.core import plots

    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    plots.label_axes(
        axes,
        x="where the answer begins (0 = first word of the passage, 1 = its end)",
        y=f"answers [% in each {100 / bins:.3g} % of a passage]",
        title=title,
    )


def _expected(n: np.ndarray, length: np.ndarray, bins: int) -> np.ndarray:
    """Expected counts if each answer, given its length, begins uniformly over its passage."""
    kinds, answers = np.unique(np.stack([n, length]), axis=1, return_counts=True)
    shares = np.array([bin_shares(int(words), bins, int(run)) for words, run in kinds.T]).reshape(-1, bins)
    return answers @ shares


def _wilson(share: np.ndarray, n: np.ndarray, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval of a share among n."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return centre - half, centre + half


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
