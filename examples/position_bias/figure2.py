"""How much encoders' word vectors depend on position: Figure 2 of Hofstätter et al. (ECIR 2021), for given encoders.

    python examples/position_bias/figure2.py --dataset squad_dev_v2.0.json --model all-MiniLM-L6-v2 --out figure2

encodes some passages of a collection (a folder or file that `open_dataset` knows, or an irds: id) with each encoder, unchanged
and rotated, and writes into the folder `figure2`

- `ats.png`: ATS over the distance of two occurrences of a word, with the spread over pairs;
- `ats.csv`: the curves of the picture;
- `mats.csv`: MATS under every convention.

`--positions-off` adds a null for each encoder with learned absolute positions (BERT and similar ones): the same weights with all
position vectors set to zero. This encoder cannot know a word's position, so its MATS has other causes.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

import pandas as pd

from pyterrier_debias import InputError, MATSProbe, RotatePassages, open_dataset
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.position.measures.mats_probe import plot_ats
from pyterrier_debias.rankers.base import InMemory, loading


def some_passages(dataset: str, count: int, seed: int) -> pd.DataFrame:
    """At most ``count`` passages, drawn at random by their docnos."""
    corpus = ((str(d["docno"]), d["text"]) for d in open_dataset(dataset).get_corpus_iter())
    drawn = sorted(corpus, key=lambda document: keyed_hash(seed, "figure2", document[0]))
    return pd.DataFrame(islice(drawn, count), columns=["docno", "text"])


def positions_off(model: str) -> InMemory:
    """An encoder with its learned position vectors set to zero."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    with loading(model, "figure2") as where:
        module = AutoModel.from_pretrained(where, dtype=torch.float32, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    positions = getattr(getattr(module, "embeddings", None), "position_embeddings", None)
    if not isinstance(positions, torch.nn.Embedding):
        raise InputError(f"figure2: {model} has no table of position vectors to set to zero; leave out --positions-off")
    torch.nn.init.zeros_(positions.weight)
    return InMemory(module, tokenizer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="a collection: file, folder or irds: id")
    parser.add_argument("--model", action="append", required=True, help="hub name or folder of an encoder; may be repeated")
    parser.add_argument("--passages", type=int, default=400, help="number of passages that are read (default 400)")
    parser.add_argument("--max-delta", type=int, default=100, help="the largest distance that counts (default 100; 0: all)")
    parser.add_argument("--term-average", default="present", help="average over terms: present (as in the paper), all, or paired")
    parser.add_argument("--layer", type=int, default=-1, help="layer whose hidden states are used (default: the last)")
    parser.add_argument("--positions-off", action="store_true", help="add each encoder with its positions set to zero")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw of passages and of their rotation")
    parser.add_argument("--out", type=Path, default=Path("figure2"), help="folder for picture and tables")
    options = parser.parse_args()
    try:
        passages = some_passages(options.dataset, options.passages, options.seed)
        rotated = RotatePassages(seed=options.seed)(passages)
        results = {}
        for model in options.model:
            name = Path(model).name
            runs = [(name, model, passages), (f"{name}, rotated passages", model, rotated)]
            if options.positions_off:
                runs.append((f"{name}, positions off", positions_off(model), passages))
            for label, encoder, frame in runs:
                probe = MATSProbe(
                    encoder,
                    layer=options.layer,
                    max_delta=options.max_delta or None,
                    term_average=options.term_average,
                    verbose=True,
                )
                results[label] = probe.result(frame)
        curves = pd.concat([result.curve().assign(encoder=label) for label, result in results.items()])
        summary = pd.concat([result.mats().assign(encoder=label) for label, result in results.items()])
        plot_ats(results, path=options.out / "ats.png")
        write_whole(options.out / "ats.csv", curves.to_csv(index=False))
        write_whole(options.out / "mats.csv", summary.to_csv(index=False))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    columns = ["encoder", "pair_scope", "term_average", "mats_paper", "mats_mean", "std_deltas", "ats_0", "max_delta", "pairs"]
    print(summary[columns].to_string(index=False, float_format="{:.4f}".format))
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
