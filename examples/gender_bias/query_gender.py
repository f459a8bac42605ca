"""How well can the gender of a query be predicted? Held-out accuracy of words, of a linear head, and of a fine-tuned encoder.

    python examples/gender_bias/query_gender.py --queries queries_gender_annotated.csv --out query_gender

reads queries that people labelled female, male, neutral or other (lines `qid,query,label`; the 3,750 of Rekabsaz and Schedl,
SIGIR 2020), and measures how often each labeller is right on queries that it was not fitted on (five folds). The labellers are
the list of words, a linear head on a frozen encoder, and a linear head on an encoder that was fine-tuned for `--epochs` passes.
This is done for all four labels, and again without `other`, as in Bigdeli et al. (ECIR 2023), whose fine-tuned BERT reached .856.

    python examples/gender_bias/query_gender.py --queries queries_gender_annotated.csv --epochs 0 --save my-classifier --out words
    pyterrier-debias audit --dataset FOLDER --gender-classifier my-classifier

With `--save` a classifier is then fitted on all queries and written to this folder, for `--gender-classifier` and
`GenderClassifier.load`. This is the fine-tuned classifier. With `--epochs 0` nothing is fine-tuned, the program takes a minute,
and the linear head is saved with the name of its encoder.

What it cannot tell: how well a labeller does on queries of another kind; how often people agree with each other, since each query
has one label; and which share of the errors are errors of the labels.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import program, write_results

from pyterrier_debias import GenderClassifier, InputError, QueryGender
from pyterrier_debias.gender.data.query_gender import label_accuracies, read_gender_queries
from pyterrier_debias.report.models import find_model

NOTES = [
    "accuracy: share of the queries that get the right label; in the row of a label: its recall; low, high: 95 %, exact "
    "binomial; precision: how often a predicted label is right. Measured on held-out folds, except for words, which are "
    "not fitted.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    queries: str
    model: str
    epochs: int
    learning_rate: float
    batch_size: int
    folds: int
    seed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=Path, required=True, help="annotated queries, lines qid,query,label")
    parser.add_argument("--model", default="minilm", help="sentence encoder: hub name, folder, or minilm (default)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of fine-tuning (default 3; 0: none)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="learning rate of fine-tuning (default 1e-4)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="folder for a classifier that is fitted on all queries")
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    options = parser.parse_args()
    if options.save is not None and options.save.exists():
        raise InputError(f"--save {options.save} exists already; name another folder")
    annotated = read_gender_queries(options.queries)
    encoder = find_model(options.model, "bi").source
    how = {"epochs": options.epochs, "learning_rate": options.learning_rate, "batch_size": options.batch_size}
    classifiers = {"linear head": GenderClassifier(encoder)}
    if options.epochs:
        classifiers["fine-tuned"] = GenderClassifier(encoder, seed=options.seed, **how)
    tables = {}
    for name, frame in {"four": annotated, "three": annotated[annotated["gender"] != "other"]}.items():
        said = QueryGender()(frame.drop(columns="gender"))["gender"]
        parts = [label_accuracies(said, frame["gender"]).assign(labeller="words")]
        for labeller, classifier in classifiers.items():
            print(f"{name} labels: {labeller}", flush=True)
            found = classifier.cross_validate(
                frame["query"].tolist(), frame["gender"].tolist(), folds=options.folds, seed=options.seed
            )
            parts.append(found.assign(labeller=labeller))
        table = pd.concat(parts, ignore_index=True)
        tables[f"{name}_labels"] = table[["labeller", *(column for column in table if column != "labeller")]]
    settings = Settings(options.queries.name, options.model, **how, folds=options.folds, seed=options.seed)
    write_results(options.out, f"Gender of {len(annotated)} queries", settings, tables, NOTES)
    if options.save is not None:
        labeller, classifier = list(classifiers.items())[-1]
        classifier.fit(annotated["query"].tolist(), annotated["gender"].tolist()).save(options.save)
        print(f"{labeller}, fitted on all {len(annotated)} queries: {options.save}")


if __name__ == "__main__":
    sys.exit(program(main))
