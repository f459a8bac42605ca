"""RotatePassages: cut every passage at a random word and swap the two parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import check_text
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.text import Tokeniser, get_tokeniser, keyed_integer, whitespace
from pyterrier_debias.position.data import rotating

#: ``turn(text, docno, qid)`` gives the rotated text and the offset.
Rotator = Callable[..., tuple[str, int]]


class RotatePassages(RowWise):
    """Rotate each passage at a random word, so that position carries no information.

    A passage p_1 .. p_n becomes p_r .. p_n p_1 .. p_{r-1} with r uniform on {1, ..., n} (Hofstätter, Lipani, Althammer,
    Zlabinger and Hanbury, "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking", ECIR 2021).
    All words stay, and all neighbours but one pair. Queries are not touched. Put it before whatever truncates, as
    the paper's released code does.

    Input: any frame or stream with ``docno`` and the text column (documents, results, ``transform_iter`` before an indexer);
    with ``scope='pair'`` also ``qid``. Output: the same rows, columns and order, the text column rotated, and

    - ``rotation``: how many units were moved from the front to the end, from 0 (nothing moved) to n - 1; r - 1 in the paper;
    - ``text_orig`` with ``keep_original=True``: the text as it was.

    Terrier indexes in a thread of its own, where an error would be lost. A pipeline that begins with this stage (or any other of
    this package) and ends in an indexer raises it all the same.

    ``docno``, ``score`` and ``rank`` stay. Score *after* rotation: the scores that come in belong to the original text, and
    whatever caches scores by docno must sit before this stage or know the variant.

    The draw depends on seed, docno (and qid) and ``draw`` only, not on the order of rows or the size of batches. An empty or
    one-word passage is not changed.

    When not to use it: on text whose order carries what is scored (dialogues, code, lists of steps) beyond a check; with
    ``unit='sentence'`` to make answer positions uniform (they do not become so, see ``AnswerPositions``, and passages without
    punctuation do not change at all); as a cure for a ranker that is already trained, which it only probes: to remove the bias,
    train behind it.

    Example:
        >>> import pandas as pd
        >>> docs = pd.DataFrame({"docno": ["d1"], "text": ["the answer sits at the very front"]})
        >>> out = RotatePassages(seed=1)(docs)
        >>> out["text"][0], int(out["rotation"][0])
        ('answer sits at the very front the', 1)

        In a pipeline: ``bm25 >> texts >> RotatePassages(seed=1) >> CrossEncoder(...)``; before an indexer:
        ``(RotatePassages() >> indexer).index(dataset.get_corpus_iter())``. An index whose ``meta`` names
        ``rotation`` stores it as text, since Terrier stores nothing else.
    """

    schematic = {"label": "RotatePassages", "help_url": None}  # noqa: RUF012

    def __init__(
        self,
        *,
        unit: str = "word",
        tokeniser: str | Tokeniser = "whitespace",
        scope: str = "passage",
        allow_identity: bool = True,
        seed: int = 208973249,
        draw: int = 0,
        text_attr: str = "text",
        keep_original: bool = False,
        verbose: bool = False,
    ):
        """
        Args:
            unit: ``'word'``, the published method, or ``'sentence'``, the pilot that its authors rejected.
            tokeniser: What a word is. ``'whitespace'`` (default) keeps the wording, and a passage that is not moved stays
                exactly as it was; ``'blingfire'`` is what the released code used: it separates punctuation and joins all
                tokens with spaces, also in a passage that is not moved; or a function from a text to its words. Plays
                no part with ``unit='sentence'``.
            scope: ``'passage'``: one draw per document, as the paper's text reads; ``'pair'``: one for each query and document,
                as the released evaluation does.
            allow_identity: Whether "nothing moved" may be drawn (probability 1/n), as in the paper. What compares several draws
                with the original needs it (``PositionSensitivity``).
            seed: Any integer; the default is the released code's, though the draws are not.
            draw: Which of the independent draws under this seed: 0, 1, 2, ... give further rotations of one passage.
            text_attr: The column to rotate.
            keep_original: Whether to add ``text_orig``.
            verbose: Whether to show progress.
        """
        self.unit = unit
        self.tokeniser = tokeniser
        self.scope = scope
        self.allow_identity = allow_identity
        self.seed = seed
        self.draw = draw
        self.text_attr = text_attr
        self.keep_original = keep_original
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rotate the passages of a frame; see the class.

        Raises:
            InputError: For an unknown option, or a text that is missing or not a string.
        """
        pt.validate.columns(inp, includes=self._columns(), context=self)
        turn = self.rotator()
        check_text(inp, self.text_attr, self)
        originals = inp[self.text_attr].tolist()
        docnos = inp["docno"].astype(str).tolist()
        qids = inp["qid"].astype(str).tolist() if self.scope == "pair" else [""] * len(inp)
        rows = pt.tqdm(zip(originals, docnos, qids), total=len(inp), desc="RotatePassages", disable=not self.verbose)
        turned = [turn(text, docno, qid) for text, docno, qid in rows]
        added: dict[str, Any] = {"text_orig": inp[self.text_attr]} if self.keep_original else {}
        added[self.text_attr] = [text for text, _ in turned]
        added["rotation"] = np.array([offset for _, offset in turned], dtype=np.int64)
        return inp.assign(**added)

    def transform_iter(self, inp: pt.model.IterDict) -> pt.model.IterDict:
        """Rotate the passages of a stream of dictionaries, one at a time; see the class.

        Raises:
            InputError: For an unknown option, or a text that is missing or not a string.
        """
        inp = pt.utils.peekable(inp)
        try:
            inp.peek()
        except StopIteration:
            return iter(())
        pt.validate.columns_iter(inp, includes=self._columns(), context=self)
        return self._stream(inp, self.rotator())

    def _stream(self, documents: Any, turn: Rotator) -> Iterator[dict[str, Any]]:
        attr, pair, keep = self.text_attr, self.scope == "pair", self.keep_original
        for document in pt.tqdm(documents, desc="RotatePassages", disable=not self.verbose):
            text = document[attr]
            if not isinstance(text, str):
                check_text(pd.DataFrame([document]), attr, self)
            out = dict(document, text_orig=text) if keep else dict(document)
            out[attr], out["rotation"] = turn(text, str(document["docno"]), str(document["qid"]) if pair else "")
            yield out

    def rotator(self, draw: int | None = None) -> Rotator:
        """The function that rotates one text, for code that is not a pipeline, such as training that draws anew each epoch.

        Args:
            draw: Which of the independent draws; None means the stage's own.

        Returns:
            ``turn(text, docno, qid='')``, which gives the rotated text and how many units were moved; ``qid`` counts with
            ``scope='pair'`` only.

        Raises:
            InputError: For an unknown option.

        Example:
            >>> RotatePassages().rotator(draw=3)("one two three four", "d1")
            ('two three four one', 1)
        """
        split = self.splitter()
        # The other tokenisers rewrite a text, and then must do so in every rotation of it alike, the identity included.
        keeps = self.unit == "sentence" or split is whitespace
        pair = _one_of("scope", self.scope, ("passage", "pair")) == "pair"
        first = 0 if self.allow_identity else 1
        draw = self.draw if draw is None else draw
        # Four lengths of key, so that no qid can be mistaken for the number of a draw.
        further = () if draw == 0 else ("draw", str(draw))
        seed = self.seed

        def turn(text: str, docno: str, qid: str = "") -> tuple[str, int]:
            units = split(text)
            n = len(units)
            if n < 2:
                return text, 0
            ids = (docno, qid) if pair else (docno,)
            offset = first + keyed_integer(n - first, seed, "rotation", *ids, *further)
            if offset == 0 and keeps:
                return text, 0
            return " ".join(units[offset:] + units[:offset]), offset

        return turn

    def splitter(self) -> Tokeniser:
        """The function that cuts a text into the units that are rotated.

        Raises:
            InputError: For an unknown unit or tokeniser.
        """
        if _one_of("unit", self.unit, ("word", "sentence")) == "sentence":
            return rotating.sentences
        return get_tokeniser(self.tokeniser)

    def _columns(self) -> list[str]:
        return ["docno", self.text_attr, *(["qid"] if self.scope == "pair" else [])]


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InputError(f"RotatePassages: {option}={value!r} is not known; use one of {', '.join(map(repr, known))}")
    return value
