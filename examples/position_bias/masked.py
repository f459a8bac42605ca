"""Gives an encoder a masked-language-model head, which SPLADE starts from. Programs import this module."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyterrier as pt

from pyterrier_debias import InputError
from pyterrier_debias.core.files import whole_folder
from pyterrier_debias.rankers.base import loading, quiet
from pyterrier_debias.training.seeds import drawn_from

#: Share of the tokens that are to be predicted, as in BERT.
MASKED = 0.15


def masked_encoder(
    encoder: str, read_texts: Callable[[], Sequence[str]], folder: Path, *,
    learning_rate: float, batch_size: int, max_length: int, seed: int,
) -> str:  # fmt: skip
    """Train an encoder and a new head over its token embeddings to predict masked tokens, in one pass over texts.

    This is done only once. A model that already has a head is not changed.

    Args:
        encoder: Hub name or folder of a masked language model, or of a BERT-shaped encoder.
        read_texts: A function that returns the texts in the order of training; it is only called if a model is trained.
        folder: The folder of the model; if it exists, nothing is trained.
        learning_rate: Peak learning rate, reached after a tenth of the steps; it then falls linearly to 0.
        batch_size: Texts per step.
        max_length: Largest number of tokens of a text.
        seed: Seed of the head, of the masked tokens, and of dropout.

    Returns:
        The folder, or the encoder itself if it already has a head.

    Raises:
        InputError: If the encoder has no head and is not BERT-shaped.
    """
    if folder.is_dir():
        return str(folder)
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling, get_linear_schedule_with_warmup

    with drawn_from(seed), loading(encoder, "masked_encoder") as where:
        options = {"dtype": torch.float32, "trust_remote_code": False, "output_loading_info": True}
        model, report = AutoModelForMaskedLM.from_pretrained(where, **options)
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    if not report["missing_keys"]:
        return encoder
    if type(model).__name__ != "BertForMaskedLM":
        raise InputError(f"model {encoder} is a {type(model).__name__}; SPLADE needs a BERT-shaped one, or one with its own head")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, texts = model.to(device), read_texts()
    steps = -(-len(texts) // batch_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = get_linear_schedule_with_warmup(optimiser, steps // 10, steps)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED)
    model.train()
    started, total = time.perf_counter(), 0.0
    with drawn_from(seed):
        for step in pt.tqdm(range(steps), desc="masked language model", unit="step", disable=None):
            part = texts[step * batch_size : (step + 1) * batch_size]
            read = tokenizer(list(part), truncation=True, max_length=max_length, return_special_tokens_mask=True)
            batch = collate([{name: values[i] for name, values in read.items()} for i in range(len(part))]).to(device)
            labels = batch.pop("labels")
            chosen = labels != -100
            # Logits over the vocabulary are only computed for the tokens that are to be predicted.
            logits = model.cls(model.bert(**batch).last_hidden_state[chosen])
            loss = torch.nn.functional.cross_entropy(logits, labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item() * (step >= steps - steps // 10 - 1)
    seconds, last = time.perf_counter() - started, total / (steps // 10 + 1)
    print(f"masked language model: {len(texts)} texts, {seconds:.0f} s, loss {last:.2f} at the end", flush=True)
    with whole_folder(folder) as scratch, quiet():
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
    return str(folder)
