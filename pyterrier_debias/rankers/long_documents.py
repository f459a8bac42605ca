"""Splitting documents that are longer than a ranker's window into passages: windows of words or of tokens, and sentences.

Passages of words are those of ``pt.text.sliding`` (words at white space, full windows only), so ``long='maxp'`` gives the scores
of ``pt.text.sliding(...) >> ranker >> pt.text.max_passage()`` without multiplying rows. Only cross-encoders read sentences and
windows of tokens (the last window may be shorter); :data:`CONVENTIONS` has the settings of the papers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_debias.core.scripts import sentences
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.rankers.engine import Sequences, Template, token_ids

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

#: How every ranker can handle long documents.
LONG = ("truncate", "firstp", "maxp")

#: Further ways of cross-encoders: windows of tokens, and sentences.
TOKENS, SENTENCES = "windows", "sentences"

#: PARADE, Li et al. 2020: at most 16 passages of 225 tokens, one every 200. CEDR, MacAvaney et al. 2019: 512 tokens less a query
#: of 20 tokens and 3 special ones. Birch, Akkalyoncu Yilmaz et al. 2019: each sentence by itself, the best ones count.
_PARADE = {"long": TOKENS, "passage_length": 225, "passage_stride": 200, "max_passages": 16}
CONVENTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **{f"parade-{how}": {"head": f"parade-{how}", **_PARADE} for how in ("max", "avg", "attention", "transformer")},
        "cedr-knrm": {"head": "cedr-knrm", "long": TOKENS, "passage_length": 489, "passage_stride": 489, "max_passages": 16},
        "birch": {"long": SENTENCES},
    }
)

_SPACE = re.compile(r"\s+")


def passages(text: str, length: int, stride: int) -> tuple[list[str], int]:
    """Split a text into overlapping windows of words.

    Args:
        text: The document.
        length: Words of a window.
        stride: Words from the start of a window to the start of the next.

    Returns:
        The windows, at least one (a text that is shorter than a window is returned unchanged), and the number of words at the
        end that are in no window: PyTerrier keeps only full windows.
    """
    words = _SPACE.split(text)
    if len(words) < length:
        return [text], 0
    starts = range(0, len(words) - length + 1, stride)
    lost = len(words) - (starts[-1] + length)
    return [" ".join(words[start : start + length]) for start in starts], lost


def best_of(scores: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    """Take the highest score among the passages of each document (MaxP; Dai and Callan, SIGIR 2019).

    Args:
        scores: Scores of passages, shape [m].
        owner: Which document each passage belongs to, shape [m].
        n: Number of documents; each has at least one passage.

    Returns:
        float64 scores of documents, shape [n]. NaN if a passage's score is NaN.
    """
    best = np.full(n, -np.inf)
    np.maximum.at(best, owner, scores)
    return best


def windows(length: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Compute the start and end of overlapping windows over a number of tokens.

    The last window may be shorter than the others; a window that would add no token is left out.

    Args:
        length: Number of tokens.
        size: Tokens of a window.
        stride: Tokens from the start of a window to the start of the next.

    Returns:
        Pairs (start, end), at least one.

    Example:
        >>> windows(10, size=4, stride=3), windows(11, size=4, stride=3)[-1], windows(0, size=4, stride=3)
        ([(0, 4), (3, 7), (6, 10)], (9, 11), [(0, 0)])
    """
    starts = [0]
    while starts[-1] + size < length and starts[-1] + stride < length:
        starts.append(starts[-1] + stride)
    return [(start, min(start + size, length)) for start in starts]


def spread(n: int, most: int) -> list[int]:
    """Select passages if a document has too many: the first, the last, and evenly spaced ones between them.

    PARADE draws the passages between at random; here, a document's score is the same each time.

    Args:
        n: Number of passages.
        most: Largest number of passages to read.

    Returns:
        Their indices, in order.

    Example:
        >>> spread(9, 4), spread(3, 4), spread(9, 1)
        ([0, 3, 5, 8], [0, 1, 2], [0])
    """
    return list(range(n)) if n <= most else np.linspace(0, n - 1, most).round().astype(int).tolist()


def sentences_of(text: str) -> list[str]:
    """The sentences of a text; at least one, possibly blank."""
    return sentences(text) or [text]


def top_sum(scores: np.ndarray, owner: np.ndarray, n: int, weights: Sequence[float]) -> np.ndarray:
    """Compute the weighted sum of the scores of each document's best passages (Birch).

    Args:
        scores: Scores of passages, shape [m].
        owner: Which document each passage belongs to, shape [m].
        n: Number of documents.
        weights: The weight of the best passage, of the second best, and so on; further passages are left out, and a document
            with fewer passages has a shorter sum.

    Returns:
        float64 scores of documents, shape [n].

    Source: Akkalyoncu Yilmaz, Yang, Zhang and Lin, "Cross-Domain Modeling of Sentence-Level Evidence for Document Retrieval",
    EMNLP-IJCNLP 2019, Equation 1 without the first-stage score.

    Example:
        >>> top_sum(np.array([0.5, 0.25, 1.0, 0.5]), np.array([0, 0, 0, 1]), 2, (1.0, 0.5)).tolist()
        [1.25, 0.5]
    """
    order = np.lexsort((-scores, owner))
    first = np.searchsorted(owner[order], np.arange(n))
    place = np.arange(len(order)) - first[owner[order]]
    counted = place < len(weights)
    found = np.zeros(n)
    np.add.at(found, owner[order][counted], np.asarray(weights, dtype=np.float64)[place[counted]] * scores[order][counted])
    return found


class PassageSequences:
    """Documents as the passages that an encoder reads one by one, each after the query.

    Args:
        tokenizer: The model's tokenizer.
        window: The longest sequence, special tokens included.
        queries: n queries.
        docs: n documents.
        long: :data:`TOKENS`, :data:`SENTENCES`, or anything else for the whole text as one passage.
        size: Tokens of a window.
        stride: Tokens from the start of one window to the start of the next.
        most: Largest number of passages of a document to read, see :func:`spread`.

    Attributes:
        sequences: The sequences of all passages, document by document.
        longest: Tokens of the longest sequence of each document, shape [n].
        cut: Tokens of each document that are in no sequence, shape [n].
        lengths: Tokens of each document that are in some sequence, shape [n].
    """

    def __init__(
        self,
        tokenizer: Any,
        window: int,
        queries: Sequence[str],
        docs: Sequence[str],
        *,
        long: str,
        size: int,
        stride: int,
        most: int,
    ):
        distinct = list(dict.fromkeys(docs))
        texts = [sentences_of(doc) if long == SENTENCES else [doc] for doc in distinct]
        ids = iter(token_ids(tokenizer, [text for parts in texts for text in parts]))
        found: dict[str, tuple[list[np.ndarray], list[tuple[int, int]], int]] = {}
        for doc, parts in zip(distinct, texts):
            tokens = [next(ids) for _ in parts]
            whole = np.concatenate(tokens)
            ends = np.cumsum([len(part) for part in tokens]).tolist()
            places = list(zip([0, *ends[:-1]], ends))
            if long == TOKENS:
                places = windows(len(whole), size, stride)
            places = [places[i] for i in spread(len(places), most)]
            found[doc] = [whole[start:end] for start, end in places], places, len(whole)
        counts = [len(found[doc][0]) for doc in docs]
        of_queries = token_ids(tokenizer, queries)
        self.sequences = Sequences(
            Template.pair(tokenizer),
            window,
            [query for query, count in zip(of_queries, counts) for _ in range(count)],
            [passage for doc in docs for passage in found[doc][0]],
            side=tokenizer.truncation_side,
        )
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._starts = self._ends - counts
        self.longest = np.maximum.reduceat(self.sequences.lengths, self._starts) if len(docs) else np.zeros(0, dtype=np.int64)
        read = [
            _covered(found[doc][1], self.sequences.cut[start:end]) for doc, start, end in zip(docs, self._starts, self._ends)
        ]
        self.lengths = np.array(read, dtype=np.int64)
        self.cut = np.array([found[doc][2] for doc in docs], dtype=np.int64) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, indices: np.ndarray | Sequence[int], tokenizer: Any) -> dict[str, torch.Tensor]:
        """Make a padded batch of the passages of some documents.

        Args:
            indices: Which documents, k of them.
            tokenizer: See :meth:`Sequences.padded`.

        Returns:
            The tensors of :meth:`Sequences.padded`, and ``parts`` (:meth:`Sequences.parts`), shape [k, most passages, longest];
            all padding if a document has fewer passages.
        """
        import torch

        rows = np.concatenate([np.arange(self._starts[i], self._ends[i]) for i in indices])
        counts = torch.from_numpy((self._ends - self._starts)[np.asarray(indices)])
        there = torch.arange(int(counts.max()))[None, :] < counts[:, None]
        empty = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
        flat = self.sequences.padded(rows, tokenizer)
        flat["parts"] = torch.zeros_like(flat["input_ids"])
        flat["parts"][flat["attention_mask"].bool()] = torch.from_numpy(np.concatenate([self.sequences.parts(i) for i in rows]))
        out = {}
        for name, values in flat.items():
            out[name] = values.new_full((*there.shape, values.shape[1]), empty.get(name, 0))
            out[name][there] = values
        return out


def report_unread(stage: str, cut: np.ndarray, lengths: np.ndarray) -> None:
    """Log how much of the documents is in no passage; silent if everything is read.

    Args:
        stage: The calling stage, named in the message.
        cut: Tokens of each document that are in no sequence, shape [n].
        lengths: Tokens of each document that are in some sequence, shape [n].
    """
    texts = int(np.count_nonzero(cut))
    if texts:
        warn_of(
            logger,
            f"{stage}: %d of %d documents are not read completely and lost %d of %d tokens; raise max_passages, or lower "
            f"passage_length if a passage and its query do not fit into the window",
            texts,
            len(cut),
            int(cut.sum()),
            int(cut.sum() + lengths.sum()),
        )


def _covered(places: Sequence[tuple[int, int]], cut: np.ndarray) -> int:
    """How many tokens are in some passage, given how many each passage lost at its end."""
    covered, end = 0, 0
    for (start, stop), lost in zip(places, cut.tolist()):
        stop = max(stop - lost, start)
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return covered
