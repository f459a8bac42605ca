"""Gives an encoder a masked-language-model head, which SPLADE starts from. Programs import it; it is not a program."""

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
    """Train an encoder and a new head over its token embeddings to predict masked tokens, one pass over texts, once.

    A model that already has a head is not changed.

    Args:
        encoder: Hub name or folder of a masked language model, or of a BERT-shaped encoder.
        read_texts: Gives the texts, in the order in which they are learned from; called only where a model is made.
        folder: Where the model is kept; what is there is not made again.
        learning_rate: The highest, after a tenth of the steps; it falls to 0 on a line.
        batch_size: Texts of a step.
        max_length: Longest text in tokens.
        seed: Of the head, of the tokens that are masked, and of dropout.

    Returns:
        The folder; the encoder itself where it brings its head.

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
        raise InputError(f"model {encoder} is not BERT-shaped ({type(model).__name__}), as a head for SPLADE needs it")
    texts = read_texts()
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
            batch = collate([{name: values[i] for name, values in read.items()} for i in range(len(part))])
            labels = batch.pop("labels")
            chosen = labels != -100
            # A logit for each term of the vocabulary is made where a token is to be predicted, and nowhere else.
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
