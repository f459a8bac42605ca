"""DuoT5Reranker (duoT5): pairwise comparison of the documents of a list, by the reranker of pyterrier_t5."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import check_choice
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.rankers.base import check_tokenizer, loading, pick_device, source_fingerprint
from pyterrier_debias.rankers.engine import token_ids

if TYPE_CHECKING:
    import torch
    from pyterrier_t5 import DuoT5ReRanker

logger = logging.getLogger(__name__)

#: The longest prompt if the configuration of a model names none, as in new checkpoints.
_WINDOW = 512


class DuoT5Reranker(Stage):
    """Reranks by comparing documents two by two (duoT5): ``pyterrier_t5.DuoT5ReRanker`` with one comparison per batch.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    A comparison is the prompt ``Query: ... Document0: ... Document1: ... Relevant:``; p(a, b) is the log-probability of "true".
    The score of a is the sum over all other documents b of its list of p(a, b) + (1 - p(b, a)), as in pyterrier_t5; a document
    that is alone in its list has the score 0. A score thus depends on the list, but not on batches or the order of rows.
    pyterrier_t5's own default puts four comparisons into a batch and pads between the parts of their prompts, which changes
    scores; with one comparison per batch there is no padding.

    If a prompt is too long, pyterrier_t5 removes equally many tokens from both documents, and so removes a short document that
    is beside a very long one. Documents longer than half of what the query leaves of the window are therefore first cut to what
    the shorter ones of their list leave, and queries to half of the window; a warning gives their numbers.

    Source: Pradeep, Nogueira and Lin, "The Expando-Mono-Duo Design Pattern for Text Ranking with Pretrained Sequence-to-Sequence
    Models", 2021; the prompt and the sum are those of pyterrier_t5.

    When not to use it: for long lists, since n documents need n (n - 1) comparisons (cut the list first); to train (train a
    :class:`~pyterrier_debias.T5Reranker`); for probes that use scores of single documents, because the list changes them.

    Example:
        >>> from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
        >>> DuoT5Reranker("castorini/duot5-base-msmarco", device="cpu")
        DuoT5Reranker('castorini/duot5-base-msmarco', device='cpu')

        In a pipeline: ``bm25 % 100 >> texts >> T5Reranker(mono) % 10 >> DuoT5Reranker(duo)``.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "DuoT5Reranker", "help_url": None}

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        text_field: str = "text",
        verbose: bool = False,
    ):
        """
        Args:
            model: A hub name or a folder of a T5 with its tokenizer.
            device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
            dtype: Only ``'float32'``: in other formats, sums of comparisons would lose the differences between documents.
            text_field: The column with the document's text.
            verbose: Whether to show progress.
        """
        super().__init__()
        self.model = model
        self.device = device
        self.dtype = dtype
        self.text_field = text_field
        self.verbose = verbose
        self._loaded: tuple[Any, DuoT5ReRanker] | None = None
        self._lock = threading.RLock()

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options that change scores, with the files of a folder instead of its name."""
        return {**super().identity(), "model": source_fingerprint(self.model)}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Compare the documents of each query, two by two.

        Args:
            inp: A result frame with the columns named above.

        Returns:
            A new frame with ``score`` and ``rank``; other columns are unchanged.

        Raises:
            InputError: For missing texts, duplicate pairs, another number format, or a model that cannot be loaded.
        """
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field], context=self)
        check_choice("DuoT5Reranker", "dtype", self.dtype, ("float32",))
        if len(inp) == 0:
            return frames.ranked(inp, self)
        for column in ("query", self.text_field):
            frames.check_text(inp, column, self)
        frames.check_pairs(inp, self)
        # In one order whatever that of the rows, since sums are rounded.
        asked = inp[["qid", "docno", "query", self.text_field]].set_axis(["qid", "docno", "query", "text"], axis=1)
        asked = asked.sort_values(["qid", "docno"]).reset_index(drop=True)
        with self._lock:  # its tokenizer is reconfigured by each call
            theirs = self._theirs()
            theirs.verbose = self.verbose
            scores = theirs(_fitting(asked, theirs)).set_index(["qid", "docno"])["score"]
        keys = pd.MultiIndex.from_frame(inp[["qid", "docno"]])
        return frames.ranked(inp.assign(score=scores.reindex(keys).to_numpy()), self)

    def _theirs(self) -> DuoT5ReRanker:
        """The reranker of pyterrier_t5, loaded on first use, and again after a change of options."""
        source = self.model, self.device
        if self._loaded is None or self._loaded[0] != source:
            from pyterrier_t5 import DuoT5ReRanker

            with loading(self.model, self) as where:
                theirs = DuoT5ReRanker(
                    tok_model=where, model=where, batch_size=1, device=pick_device(self.device), verbose=self.verbose
                )
                check_tokenizer(theirs.tokenizer, self.model, self)
            if getattr(theirs.model.config, "n_positions", None) is None:
                theirs.model.config.n_positions = _WINDOW
            self._loaded = source, theirs
        return self._loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        """Options; the weights are loaded again."""
        return {**{name: value for name, value in self.__dict__.items() if name != "_lock"}, "_loaded": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state and make a new lock."""
        self.__dict__.update(state)
        self._lock = threading.RLock()


def _fitting(asked: pd.DataFrame, theirs: DuoT5ReRanker) -> pd.DataFrame:
    """The same texts, cut where a comparison would otherwise remove text of a short document, or exceed the window."""
    tokenizer, window = theirs.tokenizer, theirs.model.config.n_positions
    before, beside, after = (len(ids) for ids in token_ids(tokenizer, ["Query: ", "Document0: ", "Relevant:"]))
    queries, sizes = _cut(tokenizer, asked["query"].tolist(), lambda sizes: np.full(len(sizes), window // 2 - before))
    room = window - before - sizes - 2 * beside - after - 1  # of both documents; 1 for the token that ends the prompt

    def beside_short(sizes: np.ndarray) -> np.ndarray:
        short = pd.Series(np.where(sizes <= room // 2, sizes, 0))
        return room - short.groupby(asked["qid"].to_numpy()).transform("max").to_numpy()

    texts, _ = _cut(tokenizer, asked["text"].tolist(), beside_short)
    cut = asked.assign(query=queries, text=texts)
    changed = {name: asked["qid"][cut[name] != asked[name]] for name in ("text", "query")}
    if any(map(len, changed.values())):
        warn_of(
            logger,
            f"DuoT5Reranker: %d of %d documents and %d of %d queries are too long for the window of {window} tokens and were "
            f"cut; divide long documents into passages before this stage, e.g. by pt.text.sliding()",
            len(changed["text"]), len(asked), changed["query"].nunique(), asked["qid"].nunique(),
        )  # fmt: skip
    return cut


def _cut(tokenizer: Any, texts: Sequence[str], most: Callable[[np.ndarray], np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Texts with at most so many tokens, a function of the tokens of each, and how many they have then."""
    ids = token_ids(tokenizer, texts)
    sizes = np.array([len(own) for own in ids])
    limits = np.maximum(most(sizes), 0)
    made = {
        row: tokenizer.decode(ids[row][: limits[row]].tolist(), clean_up_tokenization_spaces=False)
        for row in np.flatnonzero(sizes > limits).tolist()
    }
    return [made.get(row, text) for row, text in enumerate(texts)], np.minimum(sizes, limits)
