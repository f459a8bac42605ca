"""Find a model by its name and choose a ranker for it, without loading it."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.rankers.names import MINILM, extra_for, is_minilm, resolved
from pyterrier_debias.training.report import ABOUT

#: The model that audits use if none is named.
DEFAULT_MODEL = MINILM

#: Kind of model to the module in ``rankers`` and the class that runs it.
KINDS = {
    "cross": ("cross_encoder", "CrossEncoder"),
    "bi": ("bi_encoder", "BiEncoder"),
    "multi": ("multi_vector", "MultiVector"),
    "sparse": ("sparse_encoder", "SparseEncoder"),
    "tk": ("tk", "TK"),
    "t5": ("t5", "T5Reranker"),
    "duot5": ("duo_t5", "DuoT5Reranker"),
}

_SENTENCE_TRANSFORMERS = {
    "CrossEncoder": "cross",
    "SentenceTransformer": "bi",
    "MultiVectorEncoder": "multi",
    "SparseEncoder": "sparse",
}


@dataclass(frozen=True)
class Model:
    """A model that was found.

    Attributes:
        name: The name in reports: the last part of its name or folder.
        source: The folder, or the name on the Hugging Face hub.
        kind: One of :data:`KINDS`.
    """

    name: str
    source: str
    kind: str

    def ranker(self, **options: Any) -> pt.Transformer:
        """The ranker of this package that runs the model; it loads the weights when it first scores.

        Args:
            options: Options of the ranker, such as ``device`` and ``dtype``.

        Returns:
            A transformer from ``query`` and ``text`` to ``score``.
        """
        module, name = KINDS[self.kind]
        # RankT5 and monoT5 have the same files; only folders written by save() record the head.
        if self.kind == "t5" and "rankt5" in Path(self.source).name.lower() and not (Path(self.source) / ABOUT).is_file():
            options = {"head": "rankt5", **options}
        return getattr(importlib.import_module(f"pyterrier_debias.rankers.{module}"), name)(self.source, **options)


def find_model(name: str, kind: str | None = None) -> Model:
    """Find a model and determine its kind, reading only small configuration files.

    Args:
        name: A folder or a name on the Hugging Face hub, ``all-MiniLM-L6-v2`` (``minilm``) for the weights that the extra
            ``demo`` installs, or any of these after a kind and a colon, such as ``cross:./my-model``.
        kind: One of :data:`KINDS`, if the name does not begin with a kind; None detects it.

    Returns:
        The model.

    Raises:
        InputError: If the model does not exist or is damaged, or its kind cannot be determined.
    """
    prefix, colon, rest = name.partition(":")
    if colon and prefix in KINDS:
        kind, name = prefix, rest
    if kind is not None:
        check_choice("model", "kind", kind, KINDS)
    if not name.strip():
        raise InputError("a model's name is empty; give a folder or a name on the Hugging Face hub")
    source = resolved(name)
    if is_minilm(name):
        name = DEFAULT_MODEL
    config = _read(source, "config.json", required=True)
    detected = kind or _kind(source, config)
    if detected is None:
        kinds = ", ".join(KINDS)
        raise InputError(f"model {name}: its files do not show its kind; name it, as in cross:{name} (kinds: {kinds})")
    return Model(Path(name).name or name, source, detected)


def _kind(source: str, config: Any) -> str | None:
    """The kind, from the files that this package, sentence-transformers, ColBERT and transformers write with the weights."""
    if (Path(source) / ABOUT).is_file():
        own = _read(source, ABOUT).get("ranker")
        kinds = [kind for kind, (_, name) in KINDS.items() if name == own]
        if kinds:
            return kinds[0]
    saved = _read(source, "config_sentence_transformers.json") or {}
    if saved.get("model_type") in _SENTENCE_TRANSFORMERS:
        return _SENTENCE_TRANSFORMERS[saved["model_type"]]
    architectures = config.get("architectures") or []
    if "HF_ColBERT" in architectures or _read(source, "artifact.metadata") is not None:
        return "multi"
    modules = _read(source, "modules.json")
    if "model_type" not in saved and modules is not None:
        return "sparse" if any(part["type"].endswith(".SpladePooling") for part in modules) else "bi"
    if config.get("model_type") == "transformer_kernel":
        return "tk"
    if config.get("model_type") in ("t5", "mt5", "umt5"):
        # duoT5 and monoT5 have the same files; only the name shows which prompts the model reads.
        return "duot5" if "duot5" in Path(source).name.lower() else "t5"
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return "cross"
    return None


def _read(source: str, file: str, *, required: bool = False) -> Any:
    """A JSON file of a model; None if it does not exist and is not required."""
    folder = Path(source)
    if folder.is_dir():
        path = folder / file
        if not path.is_file():
            if required:
                raise InputError(f"model folder {source} holds no {file}; give the folder that save_pretrained() wrote")
            return None
    else:
        if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
            raise InputError(f"model folder {source} does not exist; check the path")
        found = _download(source, file)
        if found is None:
            if required:
                raise InputError(
                    f"model {source} is neither a folder nor available from the Hugging Face hub; {extra_for(source)}check the "
                    f"name, or the network (HF_HUB_OFFLINE), or give a folder"
                )
            return None
        path = Path(found)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); the model is damaged: save or download it again") from error


def _download(name: str, file: str) -> str | None:
    """A file of a model on the hub, from the local cache if possible; None if it is not available."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    try:
        return hf_hub_download(name, file)
    except (OSError, HFValidationError):
        return None
