"""Scoring heads over encoders. Imported only when a model is loaded: it needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch

from pyterrier_debias.core.errors import check_choice
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.rankers import whitening

#: What of an encoder's token states the linear output reads.
POOLING = ("mean", "first")

#: Beside the encoder's own files: what stands on top of it.
_ABOUT, _WEIGHTS = "pyterrier_debias.json", "head.safetensors"


class PooledHead(torch.nn.Module):
    """An encoder with one linear output on its pooled token states.

    Args:
        encoder: A Hugging Face encoder.
        pooling: ``'mean'`` over the tokens, or ``'first'``, the first token's state.

    Attributes:
        classifier: The linear layer, hidden size to 1, drawn as BERT's own weights are (normal with the configuration's
            ``initializer_range``, bias 0); or, after :meth:`whiten`, one behind a whitening.
        whitened: Landmarks and kernel of the whitening; None without one.
    """

    whitened: tuple[int, str] | None = None

    def __init__(self, encoder: Any, pooling: str = "mean"):
        super().__init__()
        check_choice("PooledHead", "pooling", pooling, POOLING)
        self.encoder = encoder
        self.pooling = pooling
        self.config = encoder.config
        linear = torch.nn.Linear(encoder.config.hidden_size, 1, dtype=encoder.dtype)
        torch.nn.init.normal_(linear.weight, std=getattr(encoder.config, "initializer_range", 0.02))
        torch.nn.init.zeros_(linear.bias)
        self.classifier: Any = linear

    def whiten(self, landmarks: int, kernel: str) -> None:
        """Put a head on white features in place of the linear layer; its weights are to be filled.

        Args:
            landmarks: See :func:`pyterrier_debias.rankers.whitening.head`.
            kernel: See there.
        """
        own = next(self.classifier.parameters())
        self.classifier = whitening.head(self.config.hidden_size, landmarks, kernel, own.dtype).to(own.device)
        self.whitened = (landmarks, kernel)

    def forward(self, attention_mask: torch.Tensor, **tensors: torch.Tensor) -> Any:
        """Logits of a padded batch.

        Args:
            attention_mask: 1 for tokens, 0 for padding, shape [n, longest].
            tensors: What else the encoder takes.

        Returns:
            An output with ``logits`` of shape [n, 1].
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.encoder(attention_mask=attention_mask, **tensors).last_hidden_state
        if self.pooling == "first":
            return SequenceClassifierOutput(logits=self.classifier(states[:, 0]))
        weights = attention_mask[..., None].to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return SequenceClassifierOutput(logits=self.classifier(mean))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the encoder as an ordinary model folder, with the head in two small files beside it."""
        from safetensors.torch import save_file

        check_empty(folder, "PooledHead.save_pretrained")
        self.encoder.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in self.classifier.state_dict().items()}, Path(folder) / _WEIGHTS)
        about = {"head": self.pooling, **({} if self.whitened is None else {"whitened": self.whitened})}
        (Path(folder) / _ABOUT).write_text(json.dumps(about) + "\n")

    def save_modules(self, folder: str | Path) -> None:
        """Add what ``sentence_transformers.CrossEncoder`` needs to score the same from the folder.

        Args:
            folder: Where encoder and tokenizer were saved.
        """
        from sentence_transformers import CrossEncoder
        from sentence_transformers.base.modules import Dense, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        size, identity = self.config.hidden_size, torch.nn.Identity()
        layers = [part for part in self.classifier.modules() if isinstance(part, torch.nn.Linear)]
        if self.whitened is None:
            found = [Dense(size, 1, activation_function=identity, module_output_name="scores")]
        else:
            found = whitening.modules(size, *self.whitened, 1)
            found[-1].module_output_name = "scores"
        for part, layer in zip(found[-len(layers) :], layers):
            part.to(layer.weight.dtype).linear.load_state_dict(layer.state_dict())
        encoder = Transformer(str(folder), model_kwargs={"dtype": self.encoder.dtype})
        modules = [encoder, Pooling(size, "mean" if self.pooling == "mean" else "cls"), *found]
        CrossEncoder(modules=modules, device="cpu", num_labels=1, activation_fn=identity).save(
            str(folder), create_model_card=False
        )

    @classmethod
    def saved_in(cls, model: str | Path) -> str | None:
        """The pooling of a folder, or a model of the hub, that :meth:`save_pretrained` wrote; None for any other."""
        about = _file_of(model, _ABOUT)
        if about is None or _file_of(model, _WEIGHTS) is None:
            return None
        return str(json.loads(Path(about).read_text(encoding="utf-8"))["head"])

    def load_head(self, model: str | Path) -> None:
        """Take the head from a folder, or a model of the hub, that :meth:`save_pretrained` wrote."""
        from safetensors.torch import load_file

        about = json.loads(Path(cast(str, _file_of(model, _ABOUT))).read_text(encoding="utf-8"))
        if "whitened" in about:
            self.whiten(*about["whitened"])
        self.classifier.load_state_dict(load_file(cast(str, _file_of(model, _WEIGHTS))))


def _file_of(model: str | Path, name: str) -> str | None:
    """Where a file of a model lies on this machine, fetched from the hub where that is needed; None if there is none."""
    from sentence_transformers.util import load_file_path

    return load_file_path(str(model), name)
