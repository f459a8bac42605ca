"""Where answers sit in their passages: Figure 1 of Hofstätter et al. (ECIR 2021), from your own files.

    python examples/position_bias/figure1.py --squad squad_train_v1.1.json.gz --spans human_spans.jsonl --out figure1

writes into the folder `figure1`

- `answer_positions.png`: original and rotated positions of the collections in one picture;
- `sentence_rotation.png`: the bias that remains if sentences are rotated instead of words;
- `answer_positions.csv`: the bins of both pictures;
- `summary.csv`: sizes, omissions, means, tests of uniformity;
- `captions.txt`: a caption for each picture.

The paper's MS MARCO curve shows the answers that annotators wrote, matched in the passages of the training set. `--spans` takes
passages in which people marked the answer to the query; it gives an analogue of that curve, not the same one.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from pyterrier_debias import AnswerPositions, InputError, RotatePassages, open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.position.data.answers import Positions, label_bins

SQUAD, SPANS = "SQuAD", "MS MARCO, human-marked spans"


def measure(paths: list[str], name: str, unit: str) -> Positions:
    """The answers of some files as one collection; an answer that several files hold counts once."""
    stage = AnswerPositions(rotation=RotatePassages(unit=unit))
    frame = pd.concat([stage.measure(open_dataset(path)).frame for path in paths], ignore_index=True)
    return Positions(frame.drop_duplicates(["qid", "docno", "answer", "start"]), name)


def summary_of(positions: Positions, unit: str) -> dict[str, object]:
    tests = {
        "original": positions.uniformity_test(),
        "placed": positions.uniformity_test(method="placed"),
        "rotated": positions.uniformity_test(rotated=True),
    }
    figures = {f"{k}_{v}": getattr(test, v) for k, test in tests.items() for v in ("statistic", "p")}
    return {"collection": positions.name, "unit": unit, **positions.summary(), **figures}


def table_of(positions: Positions, unit: str, bins: int) -> pd.DataFrame:
    """The bins of the original curve and of the rotated curve."""
    parts = [positions.histogram(bins, rotated=r).assign(rotated=unit if r else "no") for r in (False, True)]
    return pd.concat(parts).assign(collection=positions.name)


def draw_units(by_word: list[Positions], by_sentence: list[Positions], bins: int, path: Path) -> None:
    """A panel for each collection: original, rotated by sentences, rotated by words."""
    import matplotlib.pyplot as plt

    with plots.style():
        figure, panels = plt.subplots(1, len(by_word), figsize=(6.5 * len(by_word), 4.6), squeeze=False)
        for i, (axes, words, sentences) in enumerate(zip(panels[0], by_word, by_sentence)):
            words.draw_curve(axes, bins, colour=plots.colour(i), label="original")
            sentences.draw_curve(axes, bins, rotated=True, colour=plots.colour(2), label="sentences rotated")
            words.draw_curve(axes, bins, rotated=True, colour=plots.GREY, label="words rotated")
            label_bins(axes, bins, title=f"{words.name} (n = {len(words.matches):,} answers)")
            axes.legend()
        plots.save(figure, path)


def caption(collections: list[Positions], summary: pd.DataFrame, unit: str) -> str:
    """Means and tests of one way to rotate, in one sentence per collection."""
    parts = []
    for positions in collections:
        row = summary[(summary["collection"] == positions.name) & (summary["unit"] == unit)].iloc[0]
        parts.append(
            f"{positions.name}: answers begin at {row['mean_relative']:.3f} of their passage on average "
            f"({row['mean_placed']:.3f} if they were placed at random, p = {row['placed_p']:.2g}), after rotation at "
            f"{row['mean_rotated']:.3f} (uniform: {row['mean_uniform']:.3f}, p = {row['rotated_p']:.2g})."
        )
    return " ".join(parts)


def captions(collections: list[Positions], summary: pd.DataFrame, bins: int) -> str:
    """A caption for each picture."""
    first = (
        f"answer_positions.png: Share of answers that begin in each of {bins} equal parts of their passage: in the original "
        f"passages (solid), in passages rotated at a random word, one draw per passage (dashed), and if the same answers were "
        f"placed anywhere in their passages without being split (dotted). Bands: 95 % intervals over passages. "
        f"{caption(collections, summary, 'word')}"
    )
    if any(positions.name == SPANS for positions in collections):
        first += (
            f" {SPANS}: what people marked in the passage as answering the query. This is an analogue of the published MS MARCO "
            f"curve, which counts every exact match of the annotators' free-text answers in the selected passages of the "
            f"training set. Marked spans need no match, are longer, and are far fewer."
        )
    second = (
        f"sentence_rotation.png: The same with whole sentences rotated. An answer keeps its place within its sentence, and a "
        f"passage of one sentence does not change. {caption(collections, summary, 'sentence')}"
    )
    return f"{first}\n\n{second}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", action="append", default=[], help="a SQuAD JSON file; may be repeated")
    parser.add_argument("--spans", action="append", default=[], help="a file of human-marked spans, one JSON object per line")
    parser.add_argument("--bins", type=int, default=10, help="number of parts of a passage (default 10)")
    parser.add_argument("--out", type=Path, default=Path("figure1"), help="folder for pictures and tables")
    options = parser.parse_args()
    files = {name: paths for name, paths in ((SQUAD, options.squad), (SPANS, options.spans)) if paths}
    if not files:
        parser.error("name at least one file with --squad or --spans")
    try:
        by_unit = {unit: [measure(paths, name, unit) for name, paths in files.items()] for unit in ("word", "sentence")}
        summary = pd.DataFrame([summary_of(p, unit) for unit, collections in by_unit.items() for p in collections])
        table = pd.concat([table_of(p, unit, options.bins) for unit, collections in by_unit.items() for p in collections])
        first, *others = by_unit["word"]
        plots.save(first.plot(*others, bins=options.bins).figure, options.out / "answer_positions.png")
        draw_units(by_unit["word"], by_unit["sentence"], options.bins, options.out / "sentence_rotation.png")
        write_whole(options.out / "answer_positions.csv", table.drop_duplicates().to_csv(index=False))
        write_whole(options.out / "summary.csv", summary.to_csv(index=False))
        write_whole(options.out / "captions.txt", captions(by_unit["word"], summary, options.bins))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(summary.T.to_string(header=False, float_format="{:.4g}".format))
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
