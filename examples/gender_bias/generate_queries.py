"""Queries for documents: fine-tune a T5 on pairs of a query and a document, and generate queries for other documents.

    python examples/gender_bias/generate_queries.py --model google-t5/t5-small --train train.tsv --documents documents.tsv
        --out generated

train.tsv has the columns query and text; documents.tsv has docno and text. Both are tab-separated. The program writes the
fine-tuned model, and pairs.tsv with qid, query, docno, which tables.py takes as `--pairs`. You do not need the program if you
have pairs with real queries; if a ready model is enough, use `pyterrier_doc2query`.

What it cannot do: a few hundred pairs do not teach a T5 to write queries; the T5 then copies the first words of the passage. Read
the generated queries before you use them.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_debias import InputError
from pyterrier_debias.core.files import check_folder, whole_folder, write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.rankers.base import loading, pick_device, quiet

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import minutes, program


def read(path: Path, columns: tuple[str, ...], option: str) -> pd.DataFrame:
    """Read a table with columns of text.

    Raises:
        InputError: If the table cannot be read, lacks a column or a text, or has no rows.
    """
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, quoting=3)
    except (OSError, ValueError) as error:
        raise InputError(f"{option} {path} cannot be read as a table ({error})") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise InputError(f"{option} {path} lacks the column {missing[0]!r}; it needs {', '.join(columns)}")
    if table[list(columns)].isna().any(axis=None) or not len(table):
        raise InputError(f"{option} {path} has no rows, or a row without a text")
    return table


def fine_tune(model: Any, tokenizer: Any, pairs: pd.DataFrame, options: argparse.Namespace) -> list[float]:
    """Train in place with the cross-entropy of the query's tokens given the document, by AdamW with a linearly falling rate.

    Returns:
        The loss of each step.
    """
    import torch
    from transformers import get_linear_schedule_with_warmup

    device, losses = model.device, []
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = get_linear_schedule_with_warmup(optimiser, 0, options.steps)
    order: list[int] = []
    epoch = 0
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        started = time.perf_counter()
        for step in range(options.steps):
            while len(order) < options.batch_size:
                order += sorted(range(len(pairs)), key=lambda i, epoch=epoch: keyed_hash(options.seed, str(epoch), str(i)))
                epoch += 1
            rows, order = pairs.iloc[order[: options.batch_size]], order[options.batch_size :]
            inputs = tokens_of(tokenizer, rows["text"].tolist(), options.max_length).to(device)
            labels = tokens_of(tokenizer, rows["query"].tolist(), options.query_length)["input_ids"].to(device)
            loss = model(**inputs, labels=labels.masked_fill(labels == tokenizer.pad_token_id, -100)).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
            if step == 4:
                left = (time.perf_counter() - started) / 5 * (options.steps - 5)
                print(f"about {minutes(left)} of training left", flush=True)
    model.eval()
    return losses


def tokens_of(tokenizer: Any, texts: list[str], length: int) -> Any:
    """A padded batch of token ids."""
    return tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")


def generate(model: Any, tokenizer: Any, texts: list[str], options: argparse.Namespace) -> list[str]:
    """Generate one query for each text by beam search; nothing is random."""
    import torch

    found: list[str] = []
    for start in range(0, len(texts), options.batch_size):
        batch = tokens_of(tokenizer, texts[start : start + options.batch_size], options.max_length).to(model.device)
        with torch.inference_mode():
            out = model.generate(**batch, max_new_tokens=options.query_length, num_beams=options.beams, do_sample=False)
        found += [" ".join(query.split()) for query in tokenizer.batch_decode(out, skip_special_tokens=True)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a T5: hub name or folder")
    parser.add_argument("--train", type=Path, required=True, help="tab-separated table with the columns query and text")
    parser.add_argument("--documents", type=Path, required=True, help="tab-separated table with the columns docno and text")
    parser.add_argument("--steps", type=int, default=1000, help="steps of training (default 1000)")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-length", type=int, default=192, help="largest number of tokens of a document (default 192)")
    parser.add_argument("--query-length", type=int, default=32, help="largest number of tokens of a query (default 32)")
    parser.add_argument("--beams", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and pairs.tsv")
    options = parser.parse_args()
    pairs = read(options.train, ("query", "text"), "--train")
    documents = read(options.documents, ("docno", "text"), "--documents")
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    with loading(options.model, "generate_queries") as where:
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(where, dtype=torch.float32, trust_remote_code=False)
        model = model.to(pick_device(options.device))
    check_folder(options.out / "model", overwrite=True)
    losses = fine_tune(model, tokenizer, pairs, options)
    queries = generate(model, tokenizer, documents["text"].tolist(), options)
    table = pd.DataFrame({"qid": "g-" + documents["docno"], "query": queries, "docno": documents["docno"]})
    table = table[table["query"].ne("")]
    with whole_folder(options.out / "model", overwrite=True) as scratch, quiet():
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
    write_whole(options.out / "pairs.tsv", table.to_csv(sep="\t", index=False, quoting=3))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; {len(table)} of {len(documents)} documents have a query, in {options.out}")


if __name__ == "__main__":
    sys.exit(program(main))
