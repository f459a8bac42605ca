"""How differently are the judged passages of female, male and neutral queries worded? Measured with released LIWC scores.

    python examples/gender_bias/psychometrics.py --scores identified_queries --out psychometrics

reads the released LIWC scores of judged passages (`psychological_characteristic_{female,male,neutral}_queries.csv[.gz]`, in per
cent of a passage's words), and compares the groups of queries in the four categories of Table 2 (affect, cognitive processes,
drives, and personal concerns as the sum of their six) and in the 22 columns of the paper's profiles. With `--passages FILE` (JSON
lines: `qid`, `positive`) and `--lexicon FILE` it also compares the passages' own words, by a lexicon that is freely available,
such as Empath's categories; `--lexicon` also takes a .dic file of LIWC.

Intervals come from a bootstrap over the queries of both groups. p comes from shuffling queries between the groups. It is
corrected over the rows of a table by Holm's method; for the passages' own words by Benjamini and Hochberg's.

What it cannot tell: whether a difference is due to the people who judged the passages. Queries of the three groups ask for
different things. The scores are those of the 4,215 queries that Bigdeli et al. identified in 2021. Table 2 of their paper of
2023 uses the same gendered queries and the same categories, but the *ranked lists* of the original and of the debiased ranker
instead of judged passages, so only the pattern can be compared. `tables.py` beside this program makes that table.
"""

import argparse
import gzip
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import program, write_results

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import correct
from pyterrier_debias.gender.data.profiles import FOUR, PAPER_COLUMNS, Lexicon, category_shares, columns_of

GROUPS = ("female", "male", "neutral")
PAIRS = (("female", "male"), ("female", "neutral"), ("male", "neutral"))
NOTES = [
    "first, second: the groups' mean shares of a passage's words; gap: the first group minus the second; low, high: 95 % "
    "bootstrap; p: by shuffling queries between the groups; p_corrected: Holm over the rows of the table.",
    "d: the gap in standard deviations within the groups.",
    "persconc is the sum of work, leisure, home, money, relig and death; the other three are categories of LIWC.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run: scores, lexicon, and the resamples and seed of intervals and tests."""

    scores: str
    lexicon: str
    resamples: int
    seed: int


def scores_of(folder: Path, group: str) -> pd.DataFrame:
    """Released scores of one group, as shares: index ``qid``, one column per category."""
    files = sorted(folder.glob(f"psychological_characteristic_{group}_queries.csv*"))
    if not files:
        raise InputError(f"--scores {folder}: there is no psychological_characteristic_{group}_queries.csv")
    frame = pd.read_csv(files[0])
    # One of the files calls the query's number "Filename".
    return frame.rename(columns={frame.columns[0]: "qid"}).astype({"qid": str}).set_index("qid") / 100


def gap(first: np.ndarray, second: np.ndarray, resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Differences between two groups' means, column by column.

    Args:
        first: Shape [n, columns].
        second: Shape [m, columns].
        resamples: Number of bootstrap resamples and of permutations.
        seed: Seed of both.
    """
    generator = np.random.default_rng(seed)
    n, m = len(first), len(second)
    own = generator.multinomial(n, np.full(n, 1 / n), resamples) / n @ first
    other = generator.multinomial(m, np.full(m, 1 / m), resamples) / m @ second
    low, high = np.quantile(own - other, [0.025, 0.975], axis=0)
    found = first.mean(axis=0) - second.mean(axis=0)
    both = np.concatenate([first, second])
    chance = np.empty((resamples, both.shape[1]))
    for draw in range(resamples):
        chosen = generator.permutation(n + m)[:n]
        mean = both[chosen].mean(axis=0)
        chance[draw] = mean - (both.sum(axis=0) - n * mean) / m
    p = (1 + (np.abs(chance) >= np.abs(found) - 1e-15).sum(axis=0)) / (1 + resamples)
    within = np.sqrt((first.var(axis=0) * n + second.var(axis=0) * m) / (n + m))
    return {"gap": found, "low": low, "high": high, "d": found / np.where(within > 0, within, np.nan), "p": p}


def table_of(
    shares: dict[str, np.ndarray], names: tuple[str, ...], resamples: int, seed: int, correction: str = "holm"
) -> pd.DataFrame:
    """The comparison of all pairs of groups in all columns."""
    rows = []
    for first, second in PAIRS:
        found = gap(shares[first], shares[second], resamples, seed)
        for number, name in enumerate(names):
            rows.append(
                {
                    "category": name, "groups": f"{first} - {second}",
                    "first": shares[first][:, number].mean(), "second": shares[second][:, number].mean(),
                    **{key: values[number] for key, values in found.items()},
                    "n": len(shares[first]) + len(shares[second]),
                }
            )  # fmt: skip
    table = pd.DataFrame(rows)
    return table.assign(p_corrected=correct(table["p"].to_numpy(), correction))


def passages_of(path: Path) -> pd.Series:
    """Passages by their query."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return pd.Series({str(row["qid"]): row["positive"] for row in rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, required=True, help="folder with the released scores")
    parser.add_argument("--passages", type=Path, help="judged passages as JSON lines: qid, positive")
    parser.add_argument("--lexicon", help="lexicon for the passages: Empath's categories or a .dic file")
    parser.add_argument("--resamples", type=int, default=2000, help="bootstrap resamples and permutations (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    options = parser.parse_args()
    scores = {group: scores_of(options.scores, group) for group in GROUPS}
    tables = {}
    for name, wanted in (("four", tuple(FOUR)), ("columns", PAPER_COLUMNS)):
        shares = {g: columns_of(frame.to_numpy(), list(frame.columns), wanted, g) for g, frame in scores.items()}
        tables[name] = table_of(shares, wanted, options.resamples, options.seed)
    if options.passages and options.lexicon:
        lexicon = Lexicon.of(options.lexicon)
        texts = passages_of(options.passages)
        own = {g: category_shares(texts[texts.index.isin(frame.index)], lexicon) for g, frame in scores.items()}
        found = table_of(own, lexicon.names, options.resamples, options.seed, "fdr_bh")
        tables["passages"] = found[found["p_corrected"] <= 0.05].sort_values("p", kind="stable").head(20)
        NOTES.append(
            f"passages: the passages of {', '.join(f'{len(v)} {g}' for g, v in own.items())} queries that --passages holds, in "
            f"{len(lexicon.names)} categories of {lexicon.name}; the first 20 rows with a p up to .05 after Benjamini and "
            f"Hochberg's correction."
        )
    settings = Settings(options.scores.name, str(options.lexicon and Path(options.lexicon).name), options.resamples, options.seed)
    title = f"Psychometrics of judged passages of {sum(map(len, scores.values()))} queries"
    write_results(options.out, title, settings, tables, NOTES)


if __name__ == "__main__":
    sys.exit(program(main))
