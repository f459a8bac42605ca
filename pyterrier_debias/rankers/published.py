"""How five published bi-encoders read texts: settings that a checkpoint does not record; a wrong guess changes every vector.

Each row of :data:`PUBLISHED` was taken from its authors' public code, which ``source`` names. Lengths include special tokens and
prefixes. They are those of MS MARCO passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.rankers.engine import Sequences, Template, token_ids

if TYPE_CHECKING:
    import torch

#: Names of the linear layer and its layer norm in the published RoBERTa models.
_LINEAR, _NORM = "embeddingHead", "norm"


@dataclass(frozen=True)
class Published:
    """How one published bi-encoder reads texts.

    Attributes:
        architecture: ``model_type`` of the checkpoint's configuration.
        pooling: See ``BiEncoder``; the mean is over all tokens, special ones included.
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
        source: The public code from which the settings were taken.
        skip: Number of tokens at the start that the mean leaves out.
        query_prefix: Prefix of a query, instead of the tokeniser's special tokens; None for the special tokens.
        document_prefix: Prefix of a document, instead of the tokeniser's special tokens; None for the special tokens.
        expanded: Whether queries are padded to their length with mask tokens, which take part in attention and in the mean.
        document_type: Token type of documents; the token type of queries is 0.
        projected: Whether a linear layer and a layer norm follow the pooling (``embeddingHead`` and ``norm`` of the checkpoint).
        lower: Whether texts are lower-cased first.
        space: Whether a space is put before each text, as before every other word.
        two_encoders: Whether documents and queries are encoded by different models.
    """

    architecture: str
    pooling: str
    query_length: int
    document_length: int
    source: str
    skip: int = 0
    query_prefix: str | None = None
    document_prefix: str | None = None
    expanded: bool = False
    document_type: int = 0
    projected: bool = False
    lower: bool = False
    space: bool = False
    two_encoders: bool = False

    def written(self, text: str) -> str:
        """The text in the form in which the model was trained to read it."""
        if self.lower:
            # Character by character, as transformers 2 did it.
            text = "".join(character.lower() for character in text)
        return f" {text}" if self.space and text and not text[0].isspace() else text

    def template(self, tokenizer: Any, task: str) -> Template:
        """The special tokens around a query or document.

        Args:
            tokenizer: The model's tokenizer.
            task: Query or document, see ``prompt_of``.

        Returns:
            The frame of one text.
        """
        prefix = self.query_prefix if task == "query" else self.document_prefix
        frame = Template.single(tokenizer)
        if prefix is not None:
            ids = tuple(int(i) for i in token_ids(tokenizer, [prefix])[0])
            frame = Template(ids, (), (), ((0,) * len(ids), 0, (), 0, ()))
        if task == "document" and self.document_type:
            one = self.document_type
            types = ((one,) * len(frame.prefix), one, (), 0, (one,) * len(frame.suffix))
            frame = Template(frame.prefix, (), frame.suffix, types)
        return frame

    def sequences(self, tokenizer: Any, texts: Sequence[str], task: str, window: int) -> Sequences:
        """Queries or documents as the token sequences that the model reads.

        Args:
            tokenizer: The model's tokenizer.
            texts: n texts.
            task: Query or document, see ``prompt_of``.
            window: The longest sequence.

        Returns:
            The sequences.
        """
        template = self.template(tokenizer, task)
        ids = token_ids(tokenizer, [self.written(text) for text in texts])
        if self.expanded and task == "query":
            fill = np.full(max(window - template.special, 0), tokenizer.mask_token_id, dtype=np.int32)
            ids = [np.concatenate([one, fill[len(one) :]]) for one in ids]
        return _Skipping(self.skip, template, window, ids, side=tokenizer.truncation_side)

    def modules(self, model: str, encoder: Any) -> list[Any]:
        """Make the modules of a published checkpoint, for ``SentenceTransformer(modules=...)``.

        Args:
            model: The folder or hub name.
            encoder: sentence-transformers' ``Transformer`` of the checkpoint.

        Returns:
            The encoder, the pooling and, if there is one, the projection.

        Raises:
            InputError: If the checkpoint is of another architecture, or lacks weights of the encoder or the projection.
        """
        import torch
        from sentence_transformers.base.modules import Dense
        from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

        kind = encoder.model.config.model_type
        if kind != self.architecture:
            raise InputError(f"BiEncoder.of: model {model!r} is a {kind} model, not {self.architecture}; check the name")
        weights = _weights(model)
        _take_encoder(encoder.model, weights, model)
        width = encoder.get_embedding_dimension()
        parts: list[Any] = [encoder, Pooling(width, self.pooling, include_prompt=self.skip == 0)]
        if self.projected:
            names = [f"{part}.{what}" for part in (_LINEAR, _NORM) for what in _TWO]
            found = {name: _one(weights, name, model) for name in names}
            size = len(found[f"{_LINEAR}.bias"])
            linear = Dense(
                width,
                size,
                activation_function=torch.nn.Identity(),
                init_weight=found[f"{_LINEAR}.weight"],
                init_bias=found[f"{_LINEAR}.bias"],
            )
            norm = LayerNorm(size)
            norm.norm.load_state_dict({what: found[f"{_NORM}.{what}"] for what in _TWO})
            parts += [linear, norm]
        return parts

    def check_modules(self, module: Any, model: str) -> None:
        """Refuse a sentence-transformers model with other modules.

        Args:
            module: The SentenceTransformer.
            model: Its folder or name, for the message.

        Raises:
            InputError: With the modules that were expected.
        """
        expected = ["Transformer", "Pooling", *(["Dense", "LayerNorm"] if self.projected else [])]
        kinds = [type(part).__name__ for part in module]
        fits = kinds == expected and module[0].model.config.model_type == self.architecture
        if not fits or module[1].pooling_mode != self.pooling:
            raise InputError(
                f"BiEncoder.of: model {model!r} has the modules {', '.join(kinds)}; expected {', '.join(expected)} with "
                f"{self.pooling} pooling over {self.architecture}; open it with BiEncoder(model) if it is another model"
            )


#: The weights of a linear layer and a layer norm.
_TWO = ("weight", "bias")


class _Skipping(Sequences):
    """Sequences whose first tokens are left out of the mean, as sentence-transformers leaves out a prompt."""

    def __init__(self, skip: int, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.skip = skip

    def padded(self, indices: np.ndarray | Sequence[int], tokenizer: Any) -> dict[str, Any]:
        """A padded batch, with the number of tokens to leave out."""
        tensors = super().padded(indices, tokenizer)
        return {**tensors, "prompt_length": self.skip} if self.skip else tensors


def _weights(model: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint; nothing else in it is unpickled."""
    import torch
    from safetensors.torch import load_file
    from sentence_transformers.util import load_file_path

    safe = load_file_path(model, "model.safetensors")
    if safe is not None:
        return load_file(safe)
    plain = load_file_path(model, "pytorch_model.bin")
    if plain is None:
        raise InputError(
            f"BiEncoder.of: model {model!r} has neither model.safetensors nor pytorch_model.bin, in one file; save its weights so"
        )
    found: dict[str, torch.Tensor] = torch.load(plain, map_location="cpu", weights_only=True)
    return found


def _one(weights: dict[str, torch.Tensor], name: str, model: str) -> torch.Tensor:
    """A tensor by the end of its name, since a wrapper may have added a prefix."""
    found = [value for key, value in weights.items() if key == name or key.endswith(f".{name}")]
    if name.startswith(f"{_NORM}."):
        found = [value for key, value in weights.items() if key in (name, f"ance_encoder.{name}")]
    if len(found) != 1:
        raise InputError(
            f"BiEncoder.of: model {model!r} has {len(found)} weights {name!r} instead of one for its projection; it is "
            f"another model, or its folder is incomplete"
        )
    return found[0]


def _take_encoder(encoder: Any, weights: dict[str, torch.Tensor], model: str) -> None:
    """Load a checkpoint's weights into an encoder; refuse missing ones, which transformers would draw at random."""
    known = {}
    for key, value in weights.items():
        key = key.removeprefix("ance_encoder.").removeprefix(f"{encoder.base_model_prefix}.")
        known[key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")] = value
    own = [name for name, _ in encoder.named_parameters()]
    missing = [name for name in own if name not in known and not name.startswith("pooler.")]
    if missing:
        raise InputError(
            f"BiEncoder.of: model {model!r} lacks {len(missing)} weights of its encoder ({', '.join(missing[:3])}); it is "
            f"another model, or its folder is incomplete"
        )
    encoder.load_state_dict({name: known[name] for name in own if name in known}, strict=False)


_DRHARD = "github.com/jingtaozhan/DRhard: model.py, dataset.py, star_tokenizer.py (transformers 2.8: lower case, a space before)"

#: The five models by name; ``BiEncoder.of`` knows no others.
PUBLISHED = {
    "repbert": Published(
        architecture="bert",
        pooling="mean",
        query_length=22,
        document_length=258,
        document_type=1,
        source="github.com/jingtaozhan/RepBERT-Index: modeling.py, precompute.py (20 and 256 tokens, without [CLS] and [SEP])",
    ),
    "ance": Published(
        architecture="roberta",
        pooling="cls",
        query_length=64,
        document_length=512,
        projected=True,
        lower=True,
        source="github.com/microsoft/ANCE: model/models.py, data/msmarco_data.py, utils/util.py (transformers 2.3: lower case), "
        "commands/run_train.sh (Passage ANCE(FirstP))",
    ),
    "tct-colbert": Published(
        architecture="bert",
        pooling="mean",
        query_length=36,
        document_length=154,
        skip=4,
        query_prefix="[CLS] [Q]",
        document_prefix="[CLS] [D]",
        expanded=True,
        source="github.com/castorini/tct_colbert: README.md (32 and 150 tokens beside four of the prefix), train/model_fn.py; "
        "github.com/castorini/pyserini: encode/_tct_colbert.py",
    ),
    "star": Published(
        architecture="roberta",
        pooling="cls",
        query_length=32,
        document_length=256,
        projected=True,
        lower=True,
        space=True,
        source=f"{_DRHARD}, star/inference.py and README.md (32 and 256 tokens)",
    ),
    "adore": Published(
        architecture="roberta",
        pooling="cls",
        query_length=64,
        document_length=256,
        projected=True,
        lower=True,
        space=True,
        two_encoders=True,
        source=f"{_DRHARD}, adore/inference.py (64 tokens; documents are those of STAR or another model)",
    ),
}


def model_folder_of_documents(model: Any) -> Path | None:
    """The folder of the document encoder within a saved pair of encoders; None if there is none."""
    folder = Path(model).expanduser() / "documents" if isinstance(model, (str, Path)) else None
    return folder if folder is not None and (folder / "modules.json").is_file() else None
