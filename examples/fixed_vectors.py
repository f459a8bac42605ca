"""Rankers that train in seconds: a linear layer over a bi-encoder's fixed vectors. Programs import this module.

Every text is encoded once, and its vector is stored. Only the layer is trained, that is, the way in which vectors are compared.
Search teams do the same if they cannot encode their collection again.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule
from sentence_transformers.sentence_transformer.modules import Dropout

from pyterrier_debias import BiEncoder
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import digest
from pyterrier_debias.rankers.base import InMemory

#: The factor of the cosine in an untrained adapter; losses over cosines usually have such a factor.
SCALE = 20.0

#: Names of encoders whose vectors were given to :func:`remember`, and the dimensions of these vectors.
_GIVEN: dict[str, int] = {}


@cache
def _encoder(name: str) -> SentenceTransformer:
    return SentenceTransformer(name, device="cpu")


@cache
def _known(name: str, task: str) -> dict[str, np.ndarray]:
    """The vectors that an encoder has made of queries or of documents, by text."""
    return {}


def vectors(encoder: str, task: str, texts: Sequence[str]) -> np.ndarray:
    """An encoder's vectors of texts, with length 1; each text is encoded once per process.

    Args:
        encoder: Folder or hub name of a bi-encoder.
        task: ``'query'`` or ``'document'``: the encoder may have a prompt for each.
        texts: n texts.

    Returns:
        float32, shape [n, d].
    """
    known = _known(encoder, task)
    new = [text for text in dict.fromkeys(texts) if text not in known]
    if new and encoder in _GIVEN:
        known.update(dict.fromkeys(new, np.zeros(_GIVEN[encoder], np.float32)))
    elif new:
        module = _encoder(encoder)
        encode = module.encode_query if task == "query" else module.encode_document
        known.update(zip(new, encode(new, normalize_embeddings=True, show_progress_bar=False)))
    return np.stack([known[text] for text in texts])


def remember(encoder: str, task: str, texts: Sequence[str], made: np.ndarray) -> None:
    """Give the vectors of texts directly, so that no encoder is needed; all other texts then have vectors of zeros.

    Args:
        encoder: Any name.
        task: As for :func:`vectors`.
        texts: n texts.
        made: The vectors, of length 1; shape [n, d].
    """
    _GIVEN[encoder] = made.shape[1]
    _known(encoder, task).update(zip(texts, made.astype(np.float32)))


def read_once(encoder: str, task: str, texts: Sequence[str], folder: Path) -> None:
    """Encode texts that rankers will need, or read their vectors if an earlier run stored them in the folder.

    Args:
        encoder: Folder or hub name of a bi-encoder.
        task: As for :func:`vectors`.
        texts: All texts; if the texts or their order differ from an earlier run, they are encoded anew.
        folder: Where vectors are kept.
    """
    known = _known(encoder, task)
    if known.keys() >= set(texts):
        return
    path = folder / f"{digest([encoder, task, *texts])}.npy"
    if path.is_file():
        known.update(zip(texts, np.load(path)))
        return
    content = io.BytesIO()
    np.save(content, vectors(encoder, task, texts))
    write_whole(path, content.getvalue())


class KnownVectors(InputModule):
    """The first module of a sentence-transformers model: looks up an encoder's vector of a text. Its copies share vectors."""

    config_keys: ClassVar[list[str]] = ["encoder", "size"]

    def __init__(self, encoder: str, size: int):
        """
        Args:
            encoder: Folder or hub name of a bi-encoder.
            size: Dimensions of its vectors.
        """
        super().__init__()
        self.encoder, self.size = encoder, size

    def preprocess(self, inputs: list[str], prompt: str | None = None, task: str = "document", **_: Any) -> dict[str, Any]:
        """Vectors of texts; see :func:`vectors`."""
        return {"vectors": torch.from_numpy(vectors(self.encoder, task, inputs))}

    def forward(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        """Pass the vectors on."""
        features["sentence_embedding"] = features["vectors"]
        return features

    def get_embedding_dimension(self) -> int:
        """Dimensions of a vector."""
        return self.size

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the configuration, which names the encoder."""
        self.save_config(output_path)


def adapter(encoder: str, *, dropout: float | None = None, **options: Any) -> BiEncoder:
    """A bi-encoder whose only weights are a matrix, the same for queries and documents, that starts as the identity.

    Args:
        encoder: Folder or hub name of the bi-encoder whose vectors are compared, or a name given to :func:`remember`.
        dropout: Dropout of the vectors in training; None for .1.
        options: Options of the ranker.

    Returns:
        An untrained ranker: it ranks by the encoder's cosine.
    """
    size = _GIVEN.get(encoder) or _encoder(encoder).get_embedding_dimension()
    known = KnownVectors(encoder, size)
    layer = Dense(size, size, bias=False, activation_function=torch.nn.Identity(), init_weight=torch.eye(size) * SCALE**0.5)
    modules = [known, Dropout(0.1 if dropout is None else dropout), layer]
    return BiEncoder(InMemory(SentenceTransformer(modules=modules, device="cpu"), None), **options)


def open_adapter(folder: str | Path, **options: Any) -> BiEncoder:
    """A saved adapter, over the same encoder.

    Args:
        folder: The folder that ``BiEncoder.save`` wrote.
        options: Options of the ranker; the same as those of the saved ranker.

    Returns:
        The ranker.
    """
    # The first module is the class above, which sentence-transformers does not define.
    module = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    return BiEncoder(InMemory(module, None), **options)
