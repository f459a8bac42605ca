"""MATSProbe: how much the word vectors of an encoder depend on position."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import plots
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.frames import check_text, reads_frames
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.text import Tokeniser, get_tokeniser
from pyterrier_debias.position.data.rotation import word_spans
from pyterrier_debias.position.formulas.mats import MATSAccumulator, MATSResult
from pyterrier_debias.position.formulas.mats_result import check_conventions

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

#: Passages whose vectors are held at a time.
_CHUNK = 512

#: Options that change the words or vectors of Hugging Face encoders, and say nothing to others.
_OF_TOKENS = ("tokeniser", "piece", "layer", "max_length", "dtype")

#: What a picture shades, in words.
_SHADES = {"pairs": "pairs", "terms": "terms", "plain": "all pairs"}

#: Options that a Hugging Face encoder of words is made from.
_ENCODER = ("encoder", "piece", "layer", "max_length", "batch_tokens", "device", "dtype")


class MATSProbe(Stage):
    """Measure how much an encoder's vectors of a word depend on the position of the word (Hofstätter, Lipani,
    Althammer, Zlabinger and Hanbury, "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking", ECIR 2021,
    section 5.1, Table 2 and Figure 2).

    ATS(D), the average term similarity, is the mean cosine of two occurrences of a word that are D positions apart, averaged
    over the pairs of a word, then over words. MATS is the mean fall of ATS from D = 0. It is 0 if vectors do not depend on their
    position, and positive if they do. It shows whether an encoder *could* prefer positions; ``PositionSensitivity`` measures
    whether a ranker *does*.

    Input: a frame with ``docno`` and the text column: documents, or results (each document counts once). Output: a new frame
    with one row for each distance that has a pair:

    ==================================  ========================================================================
    ``delta``                           D, in words
    ``ats``                             ATS(D)
    ``std``                             the spread that the option ``std`` names
    ``std_deltas``                      spread of ATS(0) - ATS(i) over i = 1 to D; NaN at 0
    ``std_pairs``                       spread of the cosines around ATS(D), a word drawn first, then one of its pairs
    ``std_terms``                       spread of the words' mean cosines
    ``std_plain``                       spread of all pairs' cosines around their mean, each pair counting once
    ``pairs``, ``terms``                the number of pairs behind the row, and of words
    ``pair_scope``, ``term_average``    the convention
    ==================================  ========================================================================

    The paper leaves open which pairs count, what the sum is divided by, which words the average is over, and which spread is
    reported; :meth:`mats` gives the value under all these conventions. All sums are exact and take time in proportion to the
    number of passages. Only the spread over pairs is estimated if the vectors do not fit into ``memory``, or a word occurs too
    often (see :class:`~pyterrier_debias.position.formulas.mats.MATSAccumulator`).

    A text with several docnos counts once, because its words would be paired with themselves in the same context and at the same
    positions, which raises ATS(0) and therefore MATS.

    Raises:
        InputError: If an option is unknown or out of range; raised when it is first used.

    When not to use it: to compare encoders over different texts or words, because ATS depends on both; on a handful of
    passages, in which few words occur again at many distances (look at ``pairs``); on models without one vector per word, such
    as T5Reranker's decoder or a bag of words.

    Example:
        >>> import numpy as np, pandas as pd
        >>> def turning(texts):
        ...     # Every word's vector turns by the same angle from one position to the next.
        ...     for words in (text.split() for text in texts):
        ...         angle = np.arange(len(words)) / 4
        ...         yield words, np.stack([np.full(len(words), 2.0), np.cos(angle), np.sin(angle)], axis=1)
        >>> docs = pd.DataFrame({"docno": ["d1", "d2", "d3"], "text": ["a b c", "b a c", "c b a"]})
        >>> MATSProbe(turning)(docs)[["delta", "ats", "pairs"]].round(4).values.tolist()
        [[0.0, 1.0, 2.0], [1.0, 0.9938, 4.0], [2.0, 0.9755, 3.0]]
        >>> round(float(MATSProbe(turning).mats(docs)["mats"][0]), 4)
        0.0307

        Any encoder, original against rotated: ``MATSProbe("sentence-transformers/all-MiniLM-L6-v2")(docs)`` and
        ``(RotatePassages() >> MATSProbe("sentence-transformers/all-MiniLM-L6-v2"))(docs)``.

    .. cite.dblp:: journals/corr/abs-2101-06980
    """

    schematic = {"label": "MATSProbe", "help_url": None}  # noqa: RUF012
    pieces = "frame"

    _NOT_IDENTITY = frozenset({"verbose", "batch_tokens"})

    def __init__(
        self,
        encoder: Any,
        *,
        tokeniser: str | Tokeniser = "regex_word",
        pair_scope: str = "cross_passage",
        normaliser: str = "paper",
        term_average: str = "present",
        std: str = "deltas",
        ddof: int = 0,
        max_delta: int | None = None,
        min_pairs: int = 1,
        duplicates: str = "once",
        sample: int | None = None,
        memory: int = 2 * 2**30,
        piece: str = "first",
        layer: int = -1,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        text_field: str = "text",
        device: str | torch.device | None = None,
        dtype: str = "float32",
        verbose: bool = False,
    ):
        """
        Args:
            encoder: The source of one vector per word: a hub name or folder of a Hugging Face (or sentence-transformers) encoder;
                a ranker over one, in its current state; an object with ``word_vectors(texts)``; or a function from a list of
                texts to one ``(words, matrix)`` for each, with ``matrix`` of shape [words, d] and a word's index as its position.
            tokeniser: What counts as a word, for Hugging Face encoders: ``'regex_word'`` (lower-cased runs of letters and
                digits), another name, or a function whose words are pieces of the text. The model always reads the original text.
            pair_scope: ``'cross_passage'``: pairs of occurrences in different passages, as in the paper's prose; ``'all'``: also
                pairs within a passage, as in its formula. An occurrence is never paired with itself.
            normaliser: What the sum over distances that have a pair is divided by: ``'paper'``: max D - 1, as printed, with max D
                the largest of these distances; ``'max'``: max D; ``'count'``: the number of these distances, which gives a plain
                mean; ``'count_less_one'``: this number less one; ``'sum'``: nothing.
            term_average: ``'present'``: the mean over the words that have a pair at that distance; ``'all'``: over all words,
                even those that occur once, and a word without a pair counts 0; ``'any'``: over the words that have a pair at any
                distance that counts, and a word without a pair at this one counts 0; ``'paired'``, which is ours and not the
                paper's: ATS(0) less the mean fall of the words that have pairs both there and at 0. The words that recur at long
                distances are not those that recur at short ones, and some words' vectors vary more with their context than
                others'; only ``'paired'`` does not mistake this for an effect of position.
            std: The spread in the column ``std``: ``'deltas'``, ``'pairs'``, ``'terms'`` or ``'plain'``.
            ddof: The number subtracted from the number of values in standard deviations, 0 or 1; it does not apply to
                ``'pairs'``, a spread of two levels.
            max_delta: The largest distance that counts; None for all.
            min_pairs: The number of pairs that a word needs at a distance to count there.
            duplicates: Passages with the same text: ``'once'`` counts the text once and reports how many were left out; ``'all'``
                counts each docno.
            sample: For the spread over pairs: None keeps all vectors while they fit into ``memory``; k keeps at most k
                occurrences of a word; 0 leaves this spread out.
            memory: The number of bytes for vectors that are kept for the spread over pairs.
            piece: ``'first'``: the vector of a word is that of its first piece; ``'mean'``: the mean over its pieces. This and
                all following options except ``text_field`` and ``verbose`` are for Hugging Face encoders only.
            layer: The layer of the hidden states: 0 for the embeddings, 1 to L after each layer; negative numbers from the end.
            max_length: The length in tokens at which texts are truncated; None for all that the model can read, or that a given
                ranker reads (its own ``max_length``). Truncation is logged, and truncated words do not count.
            batch_tokens: The number of tokens in a batch; None picks one for the device. It does not change the result.
            text_field: The column with the passage.
            device: The device; None picks CUDA, then MPS, then the processor.
            dtype: ``'float32'``, ``'bfloat16'`` or ``'float16'``. The sums are always float64.
            verbose: Whether to show progress.
        """
        super().__init__()
        self.encoder = encoder
        self.tokeniser = tokeniser
        self.pair_scope = pair_scope
        self.normaliser = normaliser
        self.term_average = term_average
        self.std = std
        self.ddof = ddof
        self.max_delta = max_delta
        self.min_pairs = min_pairs
        self.duplicates = duplicates
        self.sample = sample
        self.memory = memory
        self.piece = piece
        self.layer = layer
        self.max_length = max_length
        self.batch_tokens = batch_tokens
        self.text_field = text_field
        self.device = device
        self.dtype = dtype
        self.verbose = verbose
        self._made: tuple[list[Any], Any] | None = None

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """ATS at every distance; see the class.

        Raises:
            InputError: If an option is unknown, a text is missing, a docno has two texts, or the encoder cannot be loaded or does
                not return one vector per word.
        """
        return self.result(inp).curve()

    @reads_frames
    def mats(self, inp: pd.DataFrame) -> pd.DataFrame:
        """MATS of a frame under every convention.

        Args:
            inp: A frame as for the stage itself.

        Returns:
            See :meth:`~pyterrier_debias.position.formulas.mats.MATSResult.mats`; the first row is the stage's own convention.
        """
        return self.result(inp).mats()

    @reads_frames
    def result(self, inp: pd.DataFrame | MATSAccumulator) -> MATSResult:
        """The ATS curve and MATS under every convention, from one pass over the passages.

        Args:
            inp: A frame as for the stage itself, or what :meth:`accumulate` returned.

        Returns:
            The result.
        """
        sums = inp if isinstance(inp, MATSAccumulator) else self.accumulate(inp)
        return sums.result(
            min_pairs=self.min_pairs,
            pair_scope=self.pair_scope,
            normaliser=self.normaliser,
            term_average=self.term_average,
            std=self.std,
            max_delta=self.max_delta,
            ddof=self.ddof,
        )

    @reads_frames
    def accumulate(self, inp: pd.DataFrame, into: MATSAccumulator | None = None) -> MATSAccumulator:
        """Add the passages of a frame to sums that can be saved and merged with those of other frames or machines.

        Args:
            inp: A frame as for the stage itself.
            into: Sums of other passages, made with the same ``sample`` and ``memory``, to add to; None starts with nothing.

        Returns:
            The sums; pass them to :meth:`result`.

        Raises:
            InputError: As for :meth:`transform`; also if ``into`` has other options. Passages that were added before an encoder
                raised an error are kept and count as seen; the others can be given again.
        """
        pt.validate.columns(inp, includes=["docno", self.text_field], context=self)
        self._check_options()
        sums = MATSAccumulator(sample=self.sample, memory=self.memory) if into is None else into
        for option in ("sample", "memory"):
            if getattr(sums, option) != getattr(self, option):
                raise InputError(
                    f"MATSProbe: into has {option}={getattr(sums, option)}, but this probe has {option}={getattr(self, option)}; "
                    f"give both the same value, e.g. MATSAccumulator(sample=probe.sample, memory=probe.memory)"
                )
        if len(inp) == 0:
            return sums
        check_text(inp, self.text_field, self)
        docnos, texts = self._passages(inp)
        once = self.duplicates == "once"
        new = sums.fresh(texts) if once else [True] * len(texts)
        docnos, texts = list(compress(docnos, new)), list(compress(texts, new))
        encode = self._encode()
        with pt.tqdm(total=len(texts), desc="MATSProbe", unit="text", disable=not self.verbose) as bar:
            for start in range(0, len(texts), _CHUNK):
                part = texts[start : start + _CHUNK]
                found = _listed(encode(part))
                if len(found) != len(part):
                    raise InputError(
                        f"MATSProbe: the encoder returned {len(found)} results for {len(part)} texts; it must return one pair "
                        f"(words, matrix) for each"
                    )
                sums.update(docnos[start : start + _CHUNK], found)
                if once:
                    sums.remember(part)  # only now, so that an encoder that raises can be asked again
                bar.update(len(part))
        sums.duplicates += new.count(False)
        return sums

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options, with a fingerprint in place of the name of a folder."""
        from pyterrier_debias.rankers.base import source_fingerprint

        identity = super().identity()
        if isinstance(self.encoder, (str, os.PathLike)):
            identity["encoder"] = source_fingerprint(self.encoder)
        return identity

    def _check_options(self) -> None:
        check_conventions(self.options())
        check_choice("MATSProbe", "duplicates", self.duplicates, ("once", "all"))
        check_number("MATSProbe", "memory", self.memory, least=1, hint="it is in bytes")

    def _passages(self, inp: pd.DataFrame) -> tuple[list[str], list[str]]:
        """Names and texts, each document once."""
        distinct = inp.assign(docno=inp["docno"].astype(str)).drop_duplicates(["docno", self.text_field])
        twice = distinct["docno"].duplicated()
        if twice.any():
            raise InputError(
                f"MATSProbe: docno {distinct['docno'][twice].iloc[0]!r} has two different texts; give variants of a "
                f"document their own docnos"
            )
        # In an order of their own, so that it is not the order of rows that decides under which docno a text counts.
        distinct = distinct.sort_values("docno", kind="stable")
        return distinct["docno"].tolist(), distinct[self.text_field].tolist()

    def _encode(self) -> Callable[[Sequence[str]], Any]:
        """The function from texts to (words, matrix) pairs."""
        from pyterrier_debias.rankers.word_vectors import HuggingFaceWords

        own = getattr(self.encoder, "word_vectors", None)
        if own is None and callable(self.encoder) and not isinstance(self.encoder, pt.Transformer):
            own = self.encoder
        if own is not None:
            unused = [name for name in _OF_TOKENS if getattr(self, name) != inspect.signature(MATSProbe).parameters[name].default]
            if unused:
                raise InputError(
                    f"MATSProbe: {', '.join(unused)} cannot be set for an encoder that returns its own words and vectors; leave "
                    f"out these options"
                )
            return own
        options = [getattr(self, name) for name in (*_ENCODER, "tokeniser")]
        if self._made is None or any(a is not b for a, b in zip(self._made[0], options)):
            chosen = dict(zip(_ENCODER, options))
            made = HuggingFaceWords(chosen.pop("encoder"), **chosen, words=self._spans(), stage="MATSProbe")
            self._made = options, made
        return self._made[1].word_vectors

    def _spans(self) -> Callable[[str], list[tuple[str, int, int]]]:
        from pyterrier_debias.rankers.word_vectors import regex_spans

        if self.tokeniser == "regex_word":
            return regex_spans
        split = get_tokeniser(self.tokeniser)

        def spans(text: str) -> list[tuple[str, int, int]]:
            words = split(text)
            return [(word, *span) for word, span in zip(words, word_spans(text, words))]

        return spans

    def __getstate__(self) -> dict[str, Any]:
        """Only the options; the weights are loaded again."""
        return {**self.__dict__, "_made": None}


def _listed(found: Any) -> list[Any]:
    """What an encoder returned, checked to be a collection of pairs."""
    needed = "it must return one pair (words, matrix) for each text"
    if not isinstance(found, Iterable):
        raise InputError(f"MATSProbe: the encoder returned {kind_of(found)}; {needed}")
    results = list(found)
    for result in results:
        try:
            _, _ = result
        except (TypeError, ValueError):
            raise InputError(f"MATSProbe: the encoder returned {kind_of(result)} for a text; {needed}") from None
    return results


def plot_ats(
    results: Mapping[str, MATSResult],
    ax: Axes | None = None,
    *,
    std: str = "pairs",
    path: str | Path | None = None,
) -> Axes:
    """Plot ATS against distance, with its spread, for one or several encoders (the paper's Figure 2).

    Args:
        results: Results by name; the legend shows the MATS of each (and its spread over distances) under its own convention.
            ``result.under(max_delta=100)`` shows and averages short distances only.
        ax: Matplotlib axes; None makes new ones.
        std: The spread that is shaded, one standard deviation on each side of the line: ``'pairs'``, ``'terms'``, ``'plain'`` or
            ``'none'``.
        path: Where to save the picture; None does not save it.

    Returns:
        The axes.

    Raises:
        InputError: If ``results`` is not a mapping of results, or is empty, ``std`` is unknown, or the file cannot be written.

    Example::

        probes = {"original": probe.result(docs), "rotated": probe.result(RotatePassages()(docs))}
        plot_ats(probes, path="ats.png")

    When not to use it: to show small distances for many encoders; with four or more, shades overlap: use ``std='none'``.
    """
    wrong = [results] if not isinstance(results, Mapping) else [r for r in results.values() if not isinstance(r, MATSResult)]
    if wrong:
        raise InputError(
            f"plot_ats: results must map names to results of MATSProbe, but {'is' if wrong[0] is results else 'holds'} "
            f"{kind_of(wrong[0])}; give {{name: probe.result(docs)}}"
        )
    if not results:
        raise InputError("plot_ats: there is nothing to draw; give at least one result, as {name: probe.result(docs)}")
    check_choice("plot_ats", "std", std, (*_SHADES, "none"))
    axes = plots.new_axes() if ax is None else ax
    with plots.style():
        for number, (name, result) in enumerate(results.items()):
            curve, summary = result.curve(), result.mats().iloc[0]
            # Adding 0 turns a rounded -0.0 into 0.0.
            value = f"{round(summary['mats'], 3) + 0.0:.3f} (sd {summary['std_deltas']:.3f})"
            value = "not defined" if np.isnan(summary["mats"]) else value
            colour = plots.colour(number)
            axes.plot(curve["delta"], curve["ats"], color=colour, label=plots.legend_label(name, f": MATS {value}"), zorder=3)
            if std != "none":
                low, high = curve["ats"] - curve[f"std_{std}"], curve["ats"] + curve[f"std_{std}"]
                axes.fill_between(curve["delta"], low, high, color=colour, alpha=0.12, linewidth=0)
                # Shades that lie on each other mix to grey; their edges still distinguish them.
                axes.plot(curve["delta"], low, curve["delta"], high, color=colour, alpha=0.7, linewidth=0.8)
        passages = {result.passages for result in results.values()}
        plots.label_axes(
            axes,
            x="distance between two occurrences of a word (words)",
            y="ATS (mean cosine)" if std == "none" else f"ATS (mean cosine; shade: 1 sd over {_SHADES[std]})",
            n=passages.pop() if len(passages) == 1 else None,
            unit="passages",
        )
        axes.margins(x=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1))
    if path is not None:
        plots.save(axes.figure, path)
    return axes
