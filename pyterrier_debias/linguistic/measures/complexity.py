"""LinguisticComplexity: how complex the wording of queries (or documents) is, by Lu's indices and their mean."""

from __future__ import annotations

import logging
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.frames import check_text, reads_frames
from pyterrier_debias.core.scripts import Segmenter, is_unspaced
from pyterrier_debias.core.stage import Stage, same_value
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.text import content_mark, keyed_generator
from pyterrier_debias.linguistic.data.analysers import (
    Lemmatiser,
    Tagger,
    bare_words,
    check_tags,
    get_lemmatiser,
    get_tagger,
    is_sign,
    lexicon_adjectives,
    lowered,
    tool_name,
    word_form,
)
from pyterrier_debias.linguistic.data.stanford import Parser, get_parser
from pyterrier_debias.linguistic.formulas import lexical, trees

logger = logging.getLogger(__name__)

#: Every index that can be asked for, under the names of the literature.
INDICES = (*trees.LU, *lexical.LU, "D", "HD-D")
#: The index sets that have names.
INDEX_SETS = {
    # Those of Lu's 25 that need words only.
    "words": tuple(name for name in lexical.LU if name in lexical.WORDS_ONLY),
    # Cheng and Amiri, Table 4: the fourteen syntactic indices and Lu's measures of variation.
    "table4": (
        *trees.LU, "TTR", "MSTTR-50", "CTTR", "RTTR", "LogTTR", "Uber", "D",
        "LV", "VV1", "SVV1", "CVV1", "VV2", "NV", "AdjV", "AdvV", "ModV",
    ),
    "lu": (*trees.LU, *lexical.LU),
}  # fmt: skip
#: The options that ``preset='paper'`` sets: Table 4, as computed by the tools that the paper used.
PAPER = {
    "index_set": "table4", "undefined": "zero", "segment": "p20", "nv": "nlex", "uber": "log10N2", "normalise": "zscore",
    "hyphenated": False,
}  # fmt: skip

#: Texts that go to a tagger or parser at a time, and how many words of analysed texts are kept.
_CHUNK, _KEPT_WORDS = 1_000, 3_000_000


class _Analysed(NamedTuple):
    """What was found in one text: its words (lemmas, or the words as they stand), their counts, and the counts of its trees."""

    words: tuple[str, ...]
    counts: lexical.LexicalCounts
    trees: trees.TreeCounts | None


@dataclass(frozen=True)
class Normalisation:
    """The normalisation of indices, learnt from a set of texts.

    Attributes:
        indices: Names of the indices.
        options: The options under which they were computed, by name.
        segment: Length of a segment in words, for the indices over segments.
        centre: What is subtracted from each index: its mean, or its minimum.
        scale: What each index is then divided by: its standard deviation (ddof 0), or its range. 0 for a constant index.
        defined: For each index, the share of the texts for which it is defined.
        live: Whether each index is in the mean.
        texts: Number of different texts.
        tools: What else the values depend on: the names of tools, functions themselves, marks of lists of words, the seed.
    """

    indices: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = field(repr=False)
    segment: int
    centre: tuple[float, ...] = field(repr=False)
    scale: tuple[float, ...] = field(repr=False)
    defined: tuple[float, ...] = field(repr=False)
    live: tuple[bool, ...] = field(repr=False)
    texts: int
    tools: tuple[Any, ...] = field(default=(), repr=False)

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Normalise and average.

        Args:
            values: Shape [texts, indices].

        Returns:
            Shape [texts]: the mean over the live indices that are defined for the text, NaN if none is. An index that was
            constant counts as 0.
        """
        live = np.array(self.live, dtype=bool)
        centre, scale = np.array(self.centre)[live], np.array(self.scale)[live]
        moved = values[:, live] - centre
        moved = np.where(np.isnan(moved), np.nan, np.where(scale > 0, moved, 0.0) / np.where(scale > 0, scale, 1.0))
        known = ~np.isnan(moved)
        count = known.sum(axis=1)
        return np.where(count > 0, np.where(known, moved, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


class LinguisticComplexity(Stage):
    """Adds the complexity of a text's wording: the mean of normalised indices of lexical and syntactic complexity.

    This follows Cheng and Amiri, "EqualizeIR: Mitigating Linguistic Biases in Retrieval Models", NAACL 2025: each index is
    normalised over the set of queries, and a query's complexity is the mean over indices. The indices are Lu's (2010, 2012),
    computed by our own code from words, part-of-speech tags and constituency trees; their definitions are in
    :mod:`pyterrier_debias.linguistic.formulas.lexical` and :mod:`pyterrier_debias.linguistic.formulas.trees`.

    Input: a frame with ``column`` (topics, results, documents). Output: the same rows and columns, and ``out`` (float64). With
    ``keep_indices``, each index gets a column too, under its name in the literature (``TTR``, ``C/T``, ``MSTTR-50``; the 50 is
    replaced by the length of a segment if that differs).

    *The set that is normalised over.* After :meth:`fit`, the texts given to it; otherwise the texts of the frame, each different
    text once. Without ``fit``, values are therefore comparable within one call only.

    *The indices in the mean.* An index is live if it is defined for at least ``min_defined`` of those texts. The live indices are
    the same for all texts; otherwise complexity would mostly measure which indices are defined. An index that is undefined for a
    text is left out of that text's mean. For short queries, most indices are undefined or constant; :meth:`report` and the log
    (level INFO) list the live ones.

    *Tools.* Tags come from ``tagger``, lemmas from ``lemmatiser`` and trees from ``parser``; each is used only if an index
    needs it. Without a parser, the fourteen syntactic indices are NaN and not in the mean. Punctuation is not counted. Tagged
    and parsed texts are cached, so that a repeated text is analysed only once.

    *Texts without a word* (empty, or made of signs and emoji only) have no complexity: all their values are NaN, whatever
    ``undefined`` is. They are not part of the normalisation, and a warning gives their share.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: as a measure of query difficulty (it does not know the collection); on a single query without ``fit``; to
    compare collections that were not normalised together; on languages other than English, except for the indices over words. On
    short queries, the set ``'words'`` measures little more than length: use the number of words as a control.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({"qid": ["1", "2"], "query": ["tea and more tea", "how long does green tea keep"]})
        >>> scored = LinguisticComplexity(["NDW", "CTTR"], keep_indices=True)(topics)
        >>> scored[["NDW", "CTTR", "complexity"]].round(3).values.tolist()
        [[3.0, 1.061, -1.0], [6.0, 1.732, 1.0]]

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    schematic = {"label": "LinguisticComplexity", "help_url": None}  # noqa: RUF012

    #: What :meth:`fit` learnt; None before that.
    normalisation: Normalisation | None = None
    _report: pd.DataFrame | None = None
    _measured: pd.DataFrame | None = None
    _kept: tuple[Any, dict[str, _Analysed]] | None = None

    def __init__(
        self,
        index_set: str | Sequence[str] = "words",
        *,
        column: str = "query",
        out: str = "complexity",
        keep_indices: bool = False,
        preset: str | None = None,
        undefined: str = "nan",
        min_defined: float = 0.5,
        normalise: str = "zscore",
        segment: int | str = 50,
        nv: str = "nlex",
        uber: str = "log10N2",
        hyphenated: bool = True,
        tagger: str | Tagger = "auto",
        lemmatiser: str | Lemmatiser = "auto",
        parser: str | Parser | None = None,
        common_words: str | Path | Collection[str] | lexical.FrequencyList = "wordfreq",
        seed: int = 0,
        verbose: bool = False,
        segmenter: Segmenter | None = None,
    ):
        """
        Args:
            index_set: ``'words'`` (ten of Lu's lexical indices, which need no tool), ``'table4'`` (the thirty of Cheng and
                Amiri's Table 4: the fourteen syntactic ones, and Lu's measures of lexical variation with D), ``'lu'`` (Lu's
                14 syntactic and 25 lexical ones), or a list of names (see ``INDICES``, which also has ``D`` and ``HD-D``).
            column: The column with the texts.
            out: The column for the complexity.
            keep_indices: Whether to add each index as a column too.
            preset: ``'paper'`` fixes ``index_set='table4'``, ``undefined='zero'``, ``segment='p20'``, ``nv='nlex'``,
                ``uber='log10N2'``, ``hyphenated=False`` and ``normalise='zscore'``, as in the tools used by the paper. With
                None, the other options apply as given.
            undefined: The value of an index for a text for which it is undefined: ``'nan'``, or ``'zero'`` for 0, as in guarded
                versions of Lu's tools. With ``'zero'``, the indices over segments are replaced by NDW and TTR for texts shorter
                than a segment, as in his script. Without a parser the syntactic indices are NaN in either case.
            min_defined: The share of the texts for which an index must be defined to be in the mean, in [0, 1].
            normalise: ``'zscore'`` (standard deviation with ddof 0) or ``'minmax'`` (to [0, 1]). A constant index counts as 0.
            segment: Length of a segment in words, for NDW-50, NDW-ER50, NDW-ES50 and MSTTR-50. ``'p20'`` is the 20th percentile
                of the numbers of words in the texts that are normalised over, at least 1.
            nv: NV = Tnoun/Nlex (``'nlex'``) or Tnoun/Nnoun (``'nnoun'``).
            uber: ``'log10N2'`` or ``'lnT2'``; see :func:`pyterrier_debias.linguistic.formulas.lexical.lexical_indices`.
            hyphenated: Whether words with a hyphen count among the words of trees (MLS, MLT, MLC); Lu's analyser does not count
                them. The lexical indices always count them.
            tagger: ``'auto'``, ``'spacy'``, ``'nltk'``, ``'textblob'``, or a function from texts to lists of (word, tag), with
                Penn Treebank or universal tags; see :mod:`pyterrier_debias.linguistic.data.analysers`. It is not used if no
                index needs tags.
            lemmatiser: ``'auto'``, ``'lemminflect'``, ``'form'``, or a function from word and tag to the lemma. Types are lemmas.
                With ``'auto'``, they are lower-cased words if no index needs tags or lemminflect is not installed.
            parser: ``'stanford'`` (the parser of Lu's analyser, in a Java process of its own; see
                :class:`~pyterrier_debias.linguistic.data.stanford.StanfordParser`), or a function that returns for each text its
                trees, in brackets or as ``nltk.Tree``, or None for a text that it does not parse. None means no trees.
            common_words: The words that do *not* count as sophisticated: ``'wordfreq'`` (the 2,000 most frequent words of that
                package), the path of a list in the format of Lu's (BNC, ANC), the words themselves, or a
                :class:`~pyterrier_debias.linguistic.formulas.lexical.FrequencyList`. Adjectives (which decide which adverbs are
                lexical) come from such a path or ``FrequencyList``, otherwise from textblob's lexicon.
            seed: Seed of the samples for NDW-ER50, NDW-ES50 and D; the samples depend on the words of a text, not on its row.
            verbose: Whether to show progress.
            segmenter: How to cut scripts without blanks (Chinese, Japanese, Thai) into words where no tagger cuts the text: a
                function from a stretch of text to its words, such as ``jieba.lcut``. With None, each ideograph, kana or grapheme
                cluster counts as a word, and a warning is logged.
        """
        self.index_set = index_set
        self.column = column
        self.out = out
        self.keep_indices = keep_indices
        self.preset = preset
        self.undefined = undefined
        self.min_defined = min_defined
        self.normalise = normalise
        self.segment = segment
        self.nv = nv
        self.uber = uber
        self.hyphenated = hyphenated
        self.tagger = tagger
        self.lemmatiser = lemmatiser
        self.parser = parser
        self.common_words = common_words
        self.seed = seed
        self.verbose = verbose
        self.segmenter = segmenter

    # ------------------------------------------------------------------------------------------------ the stage

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the complexity of each text; see the class.

        Raises:
            InputError: For an unknown option, a missing text, a requested tool that is not installed, a tagger or parser that
                does not return one result for each text, or a normalisation that was learnt under other options or with other
                tools.
        """
        pt.validate.columns(inp, includes=[self.column], context=self)
        chosen = self._chosen()
        names = chosen["names"]
        columns = chosen_columns(names, chosen["segment"]) if self.keep_indices else []
        if self.out in columns:
            raise InputError(
                f"LinguisticComplexity: out={self.out!r} is the column of an index, which keep_indices adds; choose another name"
            )
        fitted = self.normalisation
        # Tools are looked up only if there are texts.
        if fitted is not None and (fitted.options != _options(chosen) or (len(inp) and fitted.tools != self._tools(names))):
            raise InputError(
                "LinguisticComplexity: the normalisation was learnt under other options (these include tools, word lists and the "
                "seed); call fit() again"
            )
        if len(inp) == 0:
            return inp.assign(**{name: pd.Series(dtype=np.float64) for name in (*columns, self.out)})
        texts, row_of = self._texts(inp)
        analysed, worded = self._worded(self._analysed(texts, names, chosen["hyphenated"]), texts)
        segment = self._segment(analysed, chosen) if fitted is None else fitted.segment
        values = np.full((len(texts), len(names)), np.nan)
        values[worded] = self._values(analysed, names, segment, chosen)
        if fitted is None:
            fitted = self._learnt(values[worded], names, segment, chosen)
        self._report = self._reported(fitted)
        self._measured = _measured(analysed, fitted.apply(values[worded]))
        indices = {name: values[row_of, number] for number, name in enumerate(columns)}
        return inp.assign(**indices, **{self.out: fitted.apply(values)[row_of]})

    @property
    def tools(self) -> str:
        """The tools that compute the indices, such as ``tagger nltk, lemmas by lemminflect_lemma, list wordfreq, no parser``."""
        names = self._chosen()["names"]
        needed = set(map(_need, names))
        told = [by for need, by in self._sources(names).items() if need in needed]
        return ", ".join(dict.fromkeys(", ".join(told).split(", ")))

    @property
    def pieces(self) -> str:  # type: ignore[override]  # a class has one that is never fitted
        """``'rows'`` once the stage is fitted; before that, values are normalised over the frame."""
        return "frame" if self.normalisation is None else "rows"

    @reads_frames
    def fit(self, inp: pd.DataFrame) -> Self:
        """Learn the normalisation from a set of texts, such as the training queries; each different text counts once.

        Args:
            inp: A frame with ``column``.

        Returns:
            The stage itself.

        Raises:
            InputError: As in :meth:`transform`, and for a frame without words.
        """
        pt.validate.columns(inp, includes=[self.column], context=self)
        chosen = self._chosen()
        names = chosen["names"]
        if len(inp) == 0:
            raise InputError("LinguisticComplexity: fit() got no rows; give it the texts to normalise over")
        texts, _ = self._texts(inp)
        analysed, _ = self._worded(self._analysed(texts, names, chosen["hyphenated"]), texts)
        if not analysed:
            raise InputError("LinguisticComplexity: fit() got no text with a word; give it the texts to normalise over")
        segment = self._segment(analysed, chosen)
        values = self._values(analysed, names, segment, chosen)
        self.normalisation = self._learnt(values, names, segment, chosen)
        self._report = self._reported(self.normalisation)
        self._measured = _measured(analysed, self.normalisation.apply(values))
        return self

    @reads_frames
    def report(self, inp: pd.DataFrame | None = None) -> pd.DataFrame:
        """Show how each index was used: whether it is in the mean, for how many texts it is defined, and which tool computed it.

        Args:
            inp: A frame with ``column``; None: the last one that was scored or fitted.

        Returns:
            One row per index: ``index``; ``needs`` (``words``, ``tags``, ``list`` or ``trees``); ``defined``: the share of the
            normalised texts for which it is defined; ``live``: whether it is in the mean; ``constant``; ``centre`` and ``scale``
            of the normalisation; ``by``: the tool that computed it.

        Raises:
            InputError: As in :meth:`transform`, and if nothing was scored yet and no frame is given.
        """
        if inp is not None:
            self.transform(inp)
        if self._report is None:
            raise InputError("LinguisticComplexity: nothing has been scored yet; give report() a frame")
        return self._report.copy()

    @reads_frames
    def summary(self, inp: pd.DataFrame | None = None) -> dict[str, float]:
        """What to report with complexity: how many texts have no T-unit or clause, and how closely complexity follows length.

        Args:
            inp: A frame with ``column``; None: the last one that was scored or fitted.

        Returns:
            Over the different texts that contain a word: ``texts``, their number; ``words``, the mean number of words; ``live``,
            the number of indices in the mean; ``no_t_unit`` and ``no_clause``, the shares of the parsed texts without a T-unit
            and without a clause, for which all indices per T-unit or clause are undefined (NaN without a parser);
            ``rho_words``, Spearman's correlation of complexity with the number of words (NaN if one of them is constant).

        Raises:
            InputError: As in :meth:`report`, and if a copy is called without a frame: copies do not keep what the stage scored.

        Example:
            >>> stage = LinguisticComplexity(["NDW"])
            >>> stage.summary(pd.DataFrame({"qid": ["1", "2"], "query": ["tea", "green tea"]}))["words"]
            1.5
        """
        report = self.report(inp)
        measured = self._measured
        if measured is None:
            raise InputError("LinguisticComplexity: a copy does not keep what the stage scored; give summary() a frame")
        parsed = measured.dropna(subset="T")
        ranks = measured[["complexity", "words"]].dropna().rank()
        return {
            "texts": len(measured),
            "words": float(measured["words"].mean()),
            "live": int(report["live"].sum()),
            "no_t_unit": float((parsed["T"] == 0).mean()),
            "no_clause": float((parsed["C"] == 0).mean()),
            "rho_words": float(ranks.corr().iloc[0, 1]),
        }

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options, and what was learnt."""
        return {**super().identity(), "normalisation": self.normalisation}

    def __getstate__(self) -> dict[str, Any]:
        """The state without the analysed texts."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_kept", "_measured")}

    # ------------------------------------------------------------------------------------------------ options

    def _chosen(self) -> dict[str, Any]:
        """The options that decide how indices are computed, checked and with the preset applied; ``names`` are the indices."""
        defaults = {**(LinguisticComplexity.__init__.__kwdefaults__ or {}), "index_set": "words"}
        chosen = {name: getattr(self, name) for name in PAPER}
        check_choice("LinguisticComplexity", "preset", self.preset, ("paper", None))
        if self.preset is not None:
            for name, value in PAPER.items():
                if not same_value(chosen[name], defaults[name]) and not same_value(chosen[name], value):
                    raise InputError(
                        f"LinguisticComplexity: preset='paper' fixes {name}={value!r}, but {name}={chosen[name]!r} was given; "
                        f"leave one of them out"
                    )
            chosen = dict(PAPER)
        choices = {"undefined": ("nan", "zero"), "normalise": ("zscore", "minmax"), "nv": lexical.NV, "uber": lexical.UBER}
        for name, known in choices.items():
            check_choice("LinguisticComplexity", name, chosen[name], known)
        segment = chosen["segment"]
        number = isinstance(segment, numbers.Real) and not isinstance(segment, bool) and math.isfinite(segment)
        if segment != "p20" and not (number and segment == int(segment) and segment >= 1):
            raise InputError(f"LinguisticComplexity: segment={segment!r} must be a number of words, at least 1, or 'p20'")
        check_number("LinguisticComplexity", "min_defined", self.min_defined, least=0, most=1)
        if not isinstance(chosen["hyphenated"], bool):
            raise InputError(f"LinguisticComplexity: hyphenated={chosen['hyphenated']!r} must be True or False")
        chosen["names"] = _index_names(chosen.pop("index_set"))
        return chosen

    # ------------------------------------------------------------------------------------------------ analysis

    def _texts(self, inp: pd.DataFrame) -> tuple[list[str], np.ndarray]:
        """The different texts of a frame, and for each row the number of its text."""
        check_text(inp, self.column, self)
        warn_of_expressions(inp[self.column] if self.column == "query" else (), self)
        row_of, texts = pd.factorize(inp[self.column].to_numpy(dtype=object))
        return list(texts), row_of

    def _worded(self, analysed: list[_Analysed], texts: list[str]) -> tuple[list[_Analysed], np.ndarray]:
        """The texts that contain words, and a mask of them; warns of the others."""
        worded = np.array([one.counts.N > 0 for one in analysed], dtype=bool)
        silent = len(texts) - int(worded.sum())
        if silent:
            logger.warning(
                "LinguisticComplexity: %d of %d different texts (%.1f %%) hold no word; they have no complexity and play no "
                "part in the normalisation", silent, len(texts), 100 * silent / len(texts),
            )  # fmt: skip
        return [one for one, has in zip(analysed, worded) if has], worded

    def _of_words(self, texts: list[str]) -> list[_Analysed]:
        """Analyse texts without a tagger, by words only."""
        unspaced = 0 if self.segmenter is not None else sum(map(is_unspaced, texts))
        if unspaced:
            logger.warning(
                "LinguisticComplexity: %d of %d different texts (%.1f %%) are in a script without blanks, and each ideograph, "
                "kana or grapheme cluster counts as a word; give segmenter= to split them into "
                "words", unspaced, len(texts), 100 * unspaced / len(texts),
            )  # fmt: skip
        found = [tuple(bare_words(text, self.segmenter)) for text in texts]
        return [_Analysed(words, lexical.LexicalCounts(len(words), len(set(words))), None) for words in found]

    def _needs(self, names: Iterable[str]) -> dict[str, bool]:
        kinds = set(map(_need, names))
        tags = bool(kinds & {"tags", "list"}) or self.lemmatiser not in ("auto", "form")
        return {"tags": tags, "list": "list" in kinds, "trees": "trees" in kinds}

    def _analysed(self, texts: list[str], names: tuple[str, ...], hyphenated: bool) -> list[_Analysed]:
        needs = self._needs(names)
        use_trees = needs["trees"] and self.parser is not None
        if not needs["tags"] and not use_trees:
            return self._of_words(texts)
        key = (
            needs["tags"], needs["list"], use_trees, hyphenated, self.tagger, self.lemmatiser, self.parser, self.common_words,
            self.segmenter,
        )  # fmt: skip
        if self._kept is None or not same_value(self._kept[0], key):
            self._kept = (key, {})
        kept = self._kept[1]
        found = {text: kept[text] for text in texts if text in kept}
        missing = [text for text in texts if text not in found]
        if missing:
            analyse = self._analyser(needs, use_trees, hyphenated)
            chunks = range(0, len(missing), _CHUNK)
            for begin in pt.tqdm(chunks, desc="LinguisticComplexity", unit="thousand", disable=not self.verbose):
                chunk = missing[begin : begin + _CHUNK]
                found.update(zip(chunk, analyse(chunk)))
            if sum(len(one.words) for one in kept.values()) > _KEPT_WORDS:
                kept.clear()
            kept.update((text, found[text]) for text in missing)
        unparsed = sum(found[text].trees is None for text in texts) if use_trees else 0
        if unparsed:
            logger.warning(
                "LinguisticComplexity: the parser left out %d of %d different texts (%.1f %%), as StanfordParser does with "
                "sentences of more than max_words; their syntactic indices are NaN",
                unparsed, len(texts), 100 * unparsed / len(texts),
            )  # fmt: skip
        return [found[text] for text in texts]

    def _analyser(self, needs: dict[str, bool], use_trees: bool, hyphenated: bool) -> Callable[[list[str]], list[_Analysed]]:
        """A function that tags and parses some texts; tools are looked up here, once."""
        tag = get_tagger(self.tagger) if needs["tags"] else None
        lemma = get_lemmatiser(self.lemmatiser) if needs["tags"] else word_form
        frequency = self._frequency(needs["list"]) if needs["tags"] else None
        parser = get_parser(self.parser) if use_trees else None

        def analyse(texts: list[str]) -> list[_Analysed]:
            token_counts: list[tuple[tuple[str, ...], lexical.LexicalCounts]]
            if tag is None or frequency is None:
                token_counts = [one[:2] for one in self._of_words(texts)]
            else:
                token_counts = []
                every = self._one_each(tag(texts), texts, "tagger")
                check_tags(every)
                for tagged in every:
                    kept = [(word, t) for word, t in tagged if t not in ("SYM", "SENT") and not is_sign(word)]
                    lemmas = tuple(lemma(word, t) for word, t in kept)
                    token_counts.append((lemmas, lexical.lexical_counts(lemmas, [t for _, t in kept], frequency)))
            found: list[trees.TreeCounts | None] = [None] * len(texts)
            if parser is not None:
                for i, (text, one) in enumerate(zip(texts, self._one_each(parser(texts), texts, "parser"))):
                    if one is not None:
                        roots = trees.read_trees(one)
                        trees.check_parsed(roots, text, f"the parser {tool_name(parser)}")
                        found[i] = trees.tree_counts(roots, hyphenated=hyphenated)
            return [_Analysed(*two, three) for two, three in zip(token_counts, found)]

        return analyse

    def _one_each(self, results: Any, texts: list[str], what: str) -> list[Any]:
        results = list(results)
        if len(results) != len(texts):
            raise InputError(
                f"LinguisticComplexity: the {what} returned {len(results)} results for {len(texts)} texts; it must return one "
                f"for each, in their order"
            )
        return results

    def _frequency(self, needed: bool) -> lexical.FrequencyList:
        given = self.common_words
        if isinstance(given, lexical.FrequencyList):
            return given
        if not needed:
            return lexical.FrequencyList(None, lexicon_adjectives(), "not needed")
        if isinstance(given, str) and given == "wordfreq":
            return lexical.FrequencyList(lexical.wordfreq_list(), lexicon_adjectives(), "wordfreq")
        if isinstance(given, (str, Path)):
            return lexical.FrequencyList.read(given)
        return lexical.FrequencyList(frozenset(map(lowered, given)), lexicon_adjectives())

    def _segment(self, analysed: list[_Analysed], chosen: dict[str, Any]) -> int:
        if chosen["segment"] != "p20":
            return int(chosen["segment"])
        return max(1, int(np.percentile([one.counts.N for one in analysed] or [1], 20)))

    def _values(self, analysed: list[_Analysed], names: tuple[str, ...], segment: int, chosen: dict[str, Any]) -> np.ndarray:
        """The indices, shape [texts, indices]."""
        counts = lexical.stacked((one.counts for one in analysed), lexical.LexicalCounts._fields)
        found = lexical.lexical_indices(counts, nv=chosen["nv"], uber=chosen["uber"])
        if any(name in lexical.SEGMENTED for name in names):
            rows = [lexical.NO_SEGMENT] * len(analysed)
            for i in np.flatnonzero(counts["N"] >= segment):
                words = analysed[i].words
                rows[i] = lexical.segment_indices(words, segment, keyed_generator(self.seed, "segment", *words))
            for name in lexical.SEGMENTED:
                found[name] = np.array([row[name] for row in rows])
                if chosen["undefined"] == "zero":
                    short = found["TTR"] if name == "MSTTR-50" else found["NDW"]
                    found[name] = np.where(np.isnan(found[name]), short, found[name])
        if "D" in names:
            found["D"] = np.array([lexical.vocd(one.words, keyed_generator(self.seed, "D", *one.words)) for one in analysed])
        if "HD-D" in names:
            found["HD-D"] = np.array([lexical.hdd(one.words) for one in analysed])
        if chosen["undefined"] == "zero":
            found = {name: np.nan_to_num(values, nan=0.0) for name, values in found.items()}
        parsed = [one.trees for one in analysed if one.trees is not None]
        nothing = np.full(len(analysed), np.nan)
        if parsed:
            has_trees = np.array([one.trees is not None for one in analysed])
            for name, values in trees.syntactic_indices(lexical.stacked(parsed, trees.TreeCounts._fields)).items():
                found[name] = nothing.copy()
                found[name][has_trees] = np.nan_to_num(values, nan=0.0) if chosen["undefined"] == "zero" else values
        return np.stack([found.get(name, nothing) for name in names], axis=1)

    # ------------------------------------------------------------------------------------------------ normalisation

    def _learnt(self, values: np.ndarray, names: tuple[str, ...], segment: int, chosen: dict[str, Any]) -> Normalisation:
        known = ~np.isnan(values)
        defined = known.sum(axis=0) / max(len(values), 1)
        filled = np.where(known, values, 0.0)
        count = np.maximum(known.sum(axis=0), 1)
        if chosen["normalise"] == "zscore":
            centre = filled.sum(axis=0) / count
            scale = np.sqrt((np.where(known, values - centre, 0.0) ** 2).sum(axis=0) / count)
        else:
            centre = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
            scale = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf) - centre
            centre, scale = np.where(known.any(axis=0), centre, 0.0), np.where(known.any(axis=0), scale, 0.0)
        # A spread that is due to rounding only counts as 0.
        scale = np.where(scale > 1e-12 * np.maximum(np.abs(centre), 1e-300), scale, 0.0)
        live = (defined >= self.min_defined) & known.any(axis=0)
        centres, scales, shares, lives = (tuple(each.tolist()) for each in (centre, scale, defined, live))
        tools = self._tools(names)
        learnt = Normalisation(names, _options(chosen), segment, centres, scales, shares, lives, len(values), tools)
        self._log(learnt)
        return learnt

    def _log(self, learnt: Normalisation) -> None:
        live = [name for name, is_live in zip(learnt.indices, learnt.live) if is_live]
        left = [f"{n} {d:.0%}" for n, d, is_live in zip(learnt.indices, learnt.defined, learnt.live) if not is_live]
        if not live:
            logger.warning(
                "LinguisticComplexity: none of the %d indices is defined for %.0f %% of the texts, so complexity is NaN; choose "
                "other indices, give a parser, or lower min_defined", len(learnt.indices), 100 * self.min_defined,
            )  # fmt: skip
            return
        logger.info(
            "LinguisticComplexity: mean of %d of %d indices over %d texts (%s); indices left out, with the share of texts that "
            "define them: %s", len(live), len(learnt.indices), learnt.texts, ", ".join(live), ", ".join(left) or "none",
        )  # fmt: skip

    def _reported(self, fitted: Normalisation) -> pd.DataFrame:
        by = self._sources(fitted.indices)
        return pd.DataFrame({
            "index": chosen_columns(fitted.indices, dict(fitted.options)["segment"]),
            "needs": [_need(name) for name in fitted.indices],
            "defined": fitted.defined,
            "live": fitted.live,
            "constant": [scale == 0 and share > 0 for scale, share in zip(fitted.scale, fitted.defined)],
            "centre": [c if share > 0 else np.nan for c, share in zip(fitted.centre, fitted.defined)],
            "scale": [s if share > 0 else np.nan for s, share in zip(fitted.scale, fitted.defined)],
            "by": [
                by[_need(name)] + (f", segments of {fitted.segment} words" if name in lexical.SEGMENTED else "")
                for name in fitted.indices
            ],
        })

    def _tools(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """What identifies the tools that the indices need, the list of words, and the seed."""
        needs, by = self._needs(names), self._sources(names)
        tools: list[Any] = [by[_need(name)] for name in names]  # by name, as 'auto' means another one elsewhere
        functions = (self.tagger, self.lemmatiser) if needs["tags"] else (self.segmenter,)
        tools += [tool for tool in (*functions, *([self.parser] if needs["trees"] else [])) if callable(tool)]
        if needs["tags"] and not isinstance(self.common_words, (str, Path)):
            words = self._frequency(needs["list"])
            tools += [content_mark(frozenset(own)) for own in (words.common or (), words.adjectives)]
        if {"NDW-ER50", "NDW-ES50", "D"} & set(names):
            tools.append(self.seed)
        return tuple(tools)

    def _sources(self, names: tuple[str, ...]) -> dict[str, str]:
        """For each kind of index, a description of the tools that compute it."""
        types = "words as they stand"
        tagged = ""
        if self._needs(names)["tags"]:
            tagged = f"tagger {tool_name(get_tagger(self.tagger))}"
            lemma = get_lemmatiser(self.lemmatiser)
            types = types if lemma is word_form else f"{tagged}, lemmas by {tool_name(lemma)}"
        common = self.common_words
        listed = getattr(common, "name", "given") if not isinstance(common, str) else common
        return {
            "words": types,
            "tags": f"{tagged}, {types}" if types == "words as they stand" else types,
            "list": f"{tagged}, list {listed}",
            "trees": "no parser" if self.parser is None else f"parser {tool_name(get_parser(self.parser))}",
        }


def _measured(analysed: list[_Analysed], complexity: np.ndarray) -> pd.DataFrame:
    """The values that :meth:`LinguisticComplexity.summary` is computed from, one row per text."""
    parsed = [(np.nan, np.nan) if one.trees is None else (one.trees.T, one.trees.C) for one in analysed]
    return pd.DataFrame(np.reshape(parsed, (-1, 2)), columns=["T", "C"]).assign(
        words=[one.counts.N for one in analysed], complexity=complexity
    )


def chosen_columns(names: Sequence[str], segment: int | str) -> list[str]:
    """The names of the columns for indices: the indices' own names, with the length of a segment in place of 50.

    Args:
        names: Indices.
        segment: The option ``segment``.

    Example:
        >>> chosen_columns(["TTR", "NDW-ER50"], "p20")
        ['TTR', 'NDW-ERp20']
    """
    return [name.replace("50", str(segment)) if name in lexical.SEGMENTED else name for name in names]


def _options(chosen: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(chosen.items()))


def _index_names(index_set: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(index_set, str):
        check_choice("LinguisticComplexity", "index_set", index_set, INDEX_SETS, "a list of indices")
        return INDEX_SETS[index_set]
    names = tuple(index_set)
    unknown = [name for name in names if name not in INDICES]
    if unknown or not names or len(set(names)) < len(names):
        what = f"{unknown[0]!r} is not an index" if unknown else "no index is named" if not names else "an index is named twice"
        raise InputError(f"LinguisticComplexity: {what}; index_set must be a list of some of {', '.join(INDICES)}")
    return names


def _need(name: str) -> str:
    if name in trees.LU:
        return "trees"
    if name in lexical.NEED_LIST:
        return "list"
    return "words" if name in lexical.WORDS_ONLY else "tags"
