"""Fine-tuning a sentence encoder together with the head of a classifier."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.bi_encoder import BiEncoder
from pyterrier_debias.rankers.dual_encoder import prompt_of
from pyterrier_debias.training.trainer import as_found


class _Labelled(torch.nn.Module):
    """An encoder with a linear head, trained with the cross-entropy of the labels."""

    def __init__(
        self, encoder: torch.nn.Module, represent: Callable[[Any], torch.Tensor], weights: np.ndarray, bias: np.ndarray
    ):
        super().__init__()
        self.encoder = encoder
        self.represent = represent
        self.head = torch.nn.Linear(weights.shape[1], weights.shape[0])
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(weights))
            self.head.bias.copy_(torch.from_numpy(bias))

    def forward(self, features: dict[str, torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(self.represent(self.encoder(features, task="query")))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def fine_tune(
    encoder: BiEncoder,
    weights: np.ndarray,
    bias: np.ndarray,
    texts: Sequence[str],
    targets: np.ndarray,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    seed: int,
) -> tuple[BiEncoder, np.ndarray, np.ndarray]:
    """Train a copy of an encoder together with a head that was fitted on its vectors.

    The optimiser is AdamW, whose learning rate rises over the first tenth of the steps and then falls linearly. Starting with a
    fitted head rather than a random one avoids needless changes of the encoder (Kumar et al., "Fine-Tuning can Distort Pretrained
    Features and Underperform Out-of-Distribution", ICLR 2022).

    Args:
        encoder: A bi-encoder; it is not changed.
        weights: Weights of the head, shape [labels, d].
        bias: Bias of the head, shape [labels].
        texts: n texts.
        targets: Their labels as rows of ``weights``, shape [n].
        epochs: Passes over the texts.
        learning_rate: Peak learning rate.
        batch_size: Texts per step.
        seed: Seed of the order of texts, which does not depend on the order given, and of dropout.

    Returns:
        The trained copy, and its head's weights and bias (float64).
    """
    module, device = copy.deepcopy(encoder.module), encoder.torch_device
    order = np.argsort([keyed_hash(seed, "fine-tune", text) for text in texts], kind="stable")
    rows = [(texts[i], int(targets[i])) for i in order]

    def collate(batch: list[tuple[str, int]]) -> dict[str, Any]:
        features = module.preprocess([text for text, _ in batch], prompt=prompt_of(module, "query") or None, task="query")
        return {"features": features, "labels": torch.tensor([target for _, target in batch])}

    steps = epochs * -(-len(rows) // batch_size)
    # The caller may have switched gradients off.
    with torch.inference_mode(False), torch.enable_grad(), as_found(device), scratch_folder() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            warmup_steps=steps // 10,
            seed=seed,
            use_cpu=device.type == "cpu",
            dataloader_pin_memory=device.type != "cpu",
            remove_unused_columns=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            log_level="error",
        )
        # Several visible devices in one process would mean nn.DataParallel.
        arguments._n_gpu = min(arguments.n_gpu, 1)
        network = _Labelled(module, encoder.represent, weights, bias)
        trainer = transformers.Trainer(model=network, args=arguments, train_dataset=rows, data_collator=collate)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    network.to("cpu").eval()
    head = network.head.weight.detach().numpy().astype(np.float64), network.head.bias.detach().numpy().astype(np.float64)
    options: dict[str, Any] = {"similarity": encoder.similarity, "max_length": encoder.max_length, "device": encoder.device}
    return BiEncoder(InMemory(module, module.tokenizer), **options), *head
