"""Do the primary tests keep their level on real collections that are changed to have no bias?

Null cases are made from the texts, topics, judgements and rankings of real collections, which have properties that planted ones
lack: several answers to a query, skewed measures, ties, lists of unequal length. In each null case a test's null hypothesis is
true by construction, so every p value at or below 0.05 is a false alarm:

- position, *rotated passages*: ranks of relevant passages; all versions of a passage, including the one called original, are
  random rotations; a lexical ranker that prefers early matches ranks them among unchanged passages; *by passage*: all queries
  about a passage see the same rotations, as in an audit (only where most queries share their passages:
  ``--data FOLDER/squad --collections xquad.en.json.gz --queries 600``);
- position, *rotated texts*: nDCG@10 of lists; all of them have random rotations of the same passages, and one is called original;
- position, *swapped halves*: quality on passages and on passages whose halves are swapped, with the two conditions exchanged at
  random query by query: real differences, most of them 0, with random signs;
- gender, *random words*: two groups of random words, each as frequent in the candidates as a word of the library's list; *by
  article*: the signs of questions about one article flip together (only SQuAD has such articles: ``--collections squad``);
- linguistic, *random complexity*: the complexity of queries is permuted among them; *skewed*: it is 0 for most queries;
- pooling, *even judging*: each document that BM25 or a reranker returns is judged with a probability of one half;
- survivorship, *random order*: ten documents of each query in a random order, half of its answers among them; BM25's quality.

    python benchmarks/real_nulls.py --data FOLDER --out real-nulls

reads the collections from FOLDER (see ``--collections``), writes p_values.csv (one row per null case), rates.csv and
real_nulls.inc (the table of the documentation), and prints them. The columns are the number of queries, the number of queries
that decide a figure (Kish's effective number, the mean over null cases), the share of false alarms, how often the 95 % interval
excludes 0, and how often interval and test disagree. A test passes if the 99 % interval of its false alarms ends below 7 %.

Finished null cases are kept in the folder: a run that was stopped resumes, and a run with more ``--nulls``, or other seeds
(``--first-seed``), adds to them. ``calibration.py --real FOLDER`` makes the same null cases.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from calibrating import LEVEL, finished, rates, shown, write_table

from pyterrier_debias import ARaBEvaluator, PlantedRanker, RotatePassages, WordList, open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.frames import ranked, with_string_ids
from pyterrier_debias.core.statistics import effective_number, exchange_test, inverted_interval, randomisation_test
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data.planted_rankers import wording_complexity
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.linguistic.audit import of_candidates, prepared_topics, ranker_slope
from pyterrier_debias.pooling.audit import judged_difference
from pyterrier_debias.position.measures.sensitivity_result import displacements, labels_of, passage_clusters
from pyterrier_debias.report.first_stage import first_stage
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks, list_strata
from pyterrier_debias.survivorship.formulas.binary_gain import discounted_gain
from pyterrier_debias.survivorship.formulas.nested import trend

COLLECTIONS = ("msmarco_trec_dl", "msmarco_dev600", "nfcorpus", "vaswani")
MEASURE = "nDCG@10"
DEPTH = 30
#: Rotations that are ranked once; every null case draws four of them for each query.
ROTATIONS = 16
LISTS = 4
#: Null cases of one task.
LOT = 50

#: The figure, the ends of its interval, p, and the effective number of queries that decide it (NaN for ranks, which count alike).
Figures = tuple[float, float, float, float, float]
#: The figures of a null that a collection cannot have.
NONE: Figures = (float("nan"),) * 5


@dataclass(frozen=True)
class Ground:
    """A real collection: some of its queries, BM25's candidates, and the orders of a lexical ranker."""

    folder: Path
    queries: int
    draws: int

    @cached_property
    def _loaded(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        dataset = open_dataset(str(self.folder))
        topics, qrels = with_string_ids(dataset.get_topics(), "topics"), with_string_ids(dataset.get_qrels(), "qrels")
        topics = topics[topics["qid"].isin(set(qrels.loc[qrels["label"] > 0, "qid"]))]
        topics = topics.sample(min(self.queries, len(topics)), random_state=0).sort_values("qid", ignore_index=True)
        with tempfile.TemporaryDirectory() as scratch:
            run = first_stage(dataset, Path(scratch), depth=DEPTH).candidates(topics[["qid", "query"]])
            found = with_string_ids(run, "run")[["qid", "docno", "score"]].merge(topics[["qid", "query"]], on="qid")
            found = ranked(found)
            found = dataset.text_loader()(found[found["rank"] < DEPTH])
        topics = topics[topics["qid"].isin(set(found["qid"]))].reset_index(drop=True)
        return topics, qrels[qrels["qid"].isin(set(topics["qid"]))].reset_index(drop=True), ranked(found)

    @property
    def topics(self) -> pd.DataFrame:
        """Queries with a relevant document and candidates, sorted."""
        return self._loaded[0]

    @property
    def qrels(self) -> pd.DataFrame:
        """Judgements of the queries."""
        return self._loaded[1]

    @property
    def bm25(self) -> pd.DataFrame:
        """Candidates with texts."""
        return self._loaded[2]

    @cached_property
    def articles(self) -> pd.Series | None:
        """The title of the article that answers each query; None if documents are not parts of titled articles."""
        title = {doc["docno"]: doc["title"] for doc in open_dataset(str(self.folder)).get_corpus_iter() if doc.get("title")}
        if len(set(title.values())) >= len(title) / 2:  # there are no titles, or most documents have their own
            return None
        answers = self.qrels[self.qrels["label"] > 0].drop_duplicates("qid").set_index("qid")["docno"]
        return answers.map(title)

    @cached_property
    def reranked(self) -> pd.DataFrame:
        """The candidates as the lexical ranker orders them."""
        return self.ranker(self.bm25)

    @cached_property
    def ranker(self) -> PlantedRanker:
        """The lexical ranker: it counts common words, and gives early ones more weight."""
        return PlantedRanker("position", strength=1.0)

    def quality(self, results: pd.DataFrame) -> np.ndarray:
        """nDCG@10 of each query."""
        head = results[results["rank"] < 10]
        return per_query(head, self.qrels[self.qrels["label"] > 0], [MEASURE], self.topics["qid"].tolist())[MEASURE].to_numpy()

    @cached_property
    def rotated_lists(self) -> list[pd.DataFrame]:
        """The ranker's order of each rotation of all passages."""
        found = []
        for draw in range(ROTATIONS):
            turn = RotatePassages(seed=0).rotator(draw)
            rows = zip(self.bm25["text"].tolist(), self.bm25["docno"].tolist(), self.bm25["qid"].tolist())
            ranking = self.ranker(self.bm25.assign(text=[turn(*row)[0] for row in rows]))
            found.append(ranking[["qid", "docno", "score", "rank"]].assign(arm="rotated", draw=draw))
        return found

    @cached_property
    def rotated(self) -> np.ndarray:
        """Quality of lists of rotated passages: queries by rotations."""
        return np.column_stack([self.quality(ranking) for ranking in self.rotated_lists])

    @cached_property
    def places(self) -> pd.DataFrame:
        """The ranks of relevant passages, each rotated alone: pairs of query and passage, by rotations."""
        arms = pd.concat([self.reranked.assign(arm="original", draw=0), *self.rotated_lists])
        found = displacements(arms, self.qrels, self.topics["qid"].tolist())
        return found.pivot_table(index=["qid", "docno"], columns="draw", values="after")

    @cached_property
    def moved(self) -> np.ndarray:
        """The mean rank of a query's relevant passages: queries with relevant passages, by rotations."""
        return self.places.groupby("qid").mean().to_numpy()

    @cached_property
    def swapped(self) -> np.ndarray:
        """The change of quality if the halves of every passage are swapped."""

        def swap(text: str) -> str:
            words = text.split()
            return " ".join(words[len(words) // 2 :] + words[: len(words) // 2])

        return self.quality(self.ranker(self.bm25.assign(text=self.bm25["text"].map(swap)))) - self.quality(self.reranked)

    @cached_property
    def frequencies(self) -> pd.Series:
        """The number of candidates in which each word occurs, rarest first."""
        words = self.bm25.drop_duplicates("docno")["text"].map(lambda text: sorted(set(regex_word(text)))).explode()
        return words.value_counts(ascending=True)

    @cached_property
    def prepared(self) -> tuple[pd.DataFrame, list[str], np.ndarray, np.ndarray]:
        """Topics with the complexity of their wording, as the audit measures it, and the controls; what the candidates leave the
        ranker; and its quality."""
        found, controls, _ = prepared_topics(self.topics, self.qrels)
        found = found.dropna(subset=["complexity"]).sort_values("qid", ignore_index=True)
        qids = list(found["qid"])
        values = pd.Series(self.quality(self.reranked), index=self.topics["qid"]).loc[qids].to_numpy()
        return found, controls, of_candidates(self.bm25, self.qrels, qids), values

    @cached_property
    def gains(self) -> np.ndarray:
        """BM25's DCG@10 on binary labels."""
        return discounted_gain(self.bm25, self.qrels, self.topics["qid"].tolist(), min_label=1)

    @cached_property
    def lists(self) -> dict[str, tuple[list[str], list[str]]]:
        """For each query half of its answers, at most nine, and other documents that complete a list of ten."""
        answers = self.qrels[self.qrels["label"] > 0].groupby("qid")["docno"].agg(list)
        found = {}
        for qid, own in self.bm25.groupby("qid"):
            some = sorted(answers[qid])[: min(9, (len(answers[qid]) + 1) // 2)]
            found[qid] = some, [docno for docno in own["docno"] if docno not in set(answers[qid])][: 10 - len(some)]
        return found


def _chance(seed: int) -> np.random.Generator:
    """A generator for a null; its draws are independent of the test's, whose generator has the same seed."""
    return np.random.default_rng([seed, 1])


def _tested(difference: np.ndarray, ground: Ground, seed: int) -> Figures:
    interval = inverted_interval(difference, resamples=ground.draws, seed=seed)
    p = randomisation_test(np.zeros(len(difference)), difference, resamples=ground.draws, seed=seed).p
    return interval.estimate, interval.low, interval.high, p, effective_number(difference**2)


def rotated_texts(ground: Ground, seed: int) -> Figures:
    """Four rotations of a query's list, one of which is called the original."""
    return _exchanged(ground.rotated, ground, seed)


def rotated_passages(ground: Ground, seed: int) -> Figures:
    """Four rotations of relevant passages, one of which is called the original."""
    return _exchanged(ground.moved, ground, seed)


def rotated_by_passage(ground: Ground, seed: int) -> Figures:
    """The same where all queries about a passage see the same rotations of it."""
    of, passages = pd.factorize(ground.places.index.get_level_values("docno"))
    order = _chance(seed).permuted(np.tile(np.arange(ROTATIONS), (len(passages), 1)), axis=1)[of, :LISTS]
    table = pd.DataFrame(np.take_along_axis(ground.places.to_numpy(), order, axis=1), index=ground.places.index)
    table = table.groupby("qid").mean()
    clusters = labels_of(passage_clusters(ground.qrels, table.index.tolist()), table.index)
    if clusters is None or len(set(clusters)) > len(table) / 2:
        return NONE
    return _compared(table.to_numpy(), ground, seed, clusters)


def _exchanged(values: np.ndarray, ground: Ground, seed: int) -> Figures:
    return _compared(_chance(seed).permuted(values, axis=1)[:, :LISTS], ground, seed)


def _compared(table: np.ndarray, ground: Ground, seed: int, clusters: np.ndarray | None = None) -> Figures:
    interval = inverted_interval(table, clusters=clusters, resamples=ground.draws, seed=seed)
    p = exchange_test(table, clusters=clusters, resamples=ground.draws, seed=seed).p
    return interval.estimate, interval.low, interval.high, p, effective_number(table.var(axis=1))


def swapped_halves(ground: Ground, seed: int) -> Figures:
    """Real differences with random signs."""
    return _tested(ground.swapped * _chance(seed).choice([-1.0, 1.0], len(ground.swapped)), ground, seed)


def random_words(ground: Ground, seed: int, *, by_article: bool = False) -> Figures:
    """Two groups of random words instead of the library's groups."""
    if by_article and ground.articles is None:
        return NONE
    rng = _chance(seed)
    real, frequencies = WordList.of("debias"), ground.frequencies
    free = frequencies[~frequencies.index.isin({word for group in real.groups.values() for word in group})]
    taken: set[str] = set()
    groups: dict[str, list[str]] = {}
    for name, words in real.groups.items():
        groups[name] = []
        for count in sorted(frequencies[frequencies.index.isin(words)]):
            near = int(np.searchsorted(free.to_numpy(), count))
            around = free.index[max(0, near - 15) : near + 15]
            word = str(rng.choice([word for word in around if word not in taken]))
            taken.add(word)
            groups[name].append(word)
    if not all(groups.values()):  # texts without a word of the library's list, such as those of physicists
        return NONE
    topics = ground.topics[["qid"]]
    clusters = {"topics": topics.assign(article=topics["qid"].map(ground.articles)), "clusters": "article"} if by_article else {}
    evaluator = ARaBEvaluator([10], wordlist=WordList(groups, "random"), query_filter=neutral_qids(ground.topics))
    found = evaluator.evaluate(ground.reranked, seed=seed, **clusters)
    row, of_queries = found.table.iloc[0], effective_number(found.per_query["added"].to_numpy() ** 2)
    return row["added"], row["added_low"], row["added_high"], row["added_p"], of_queries


def random_complexity(ground: Ground, seed: int) -> Figures:
    """Complexity permuted among queries."""
    return _permuted(ground.prepared[0]["complexity"], ground, seed)


def random_skewed_complexity(ground: Ground, seed: int) -> Figures:
    """The same for a complexity that is 0 for most queries: that of long queries with subordinate clauses."""
    return _permuted(ground.prepared[0]["query"].map(wording_complexity), ground, seed)


def _permuted(complexity: pd.Series, ground: Ground, seed: int) -> Figures:
    topics, controls, before, after = ground.prepared
    topics = topics.assign(complexity=_chance(seed).permutation(complexity))
    slope = ranker_slope(after, before, topics, controls, resamples=ground.draws, seed=seed)
    return slope.per_sd.estimate, slope.per_sd.low, slope.per_sd.high, slope.p, slope.effective_n


def even_judging(ground: Ground, seed: int) -> Figures:
    """Half of the ranked documents are judged."""
    pairs = ground.bm25[["qid", "docno"]]
    qrels = pairs[_chance(seed).random(len(pairs)) < 0.5].assign(label=0)
    frame, test = judged_difference(ground.reranked, ground.bm25, qrels, ground.topics["qid"].tolist(), seed=seed)
    difference = frame["difference"].to_numpy()
    interval = inverted_interval(difference, seed=seed)
    return interval.estimate, interval.low, interval.high, test.p, effective_number(difference**2)


def random_order(ground: Ground, seed: int) -> Figures:
    """The documents that labellers were shown, in a random order."""
    rng = _chance(seed)
    frames = [(qid, docno, place) for qid, (some, rest) in ground.lists.items()
              for place, docno in enumerate(rng.permutation([*some, *rest]))]  # fmt: skip
    listed = pd.DataFrame(frames, columns=["qid", "docno", "rank"])
    ranks = first_relevant_ranks(listed, ground.qrels).set_index("qid").loc[ground.topics["qid"]]
    found = trend(
        ground.gains, ranks["first_relevant_rank"].to_numpy(), strata=list_strata(ranks["relevant_shown"], ranks["shown"]),
        resamples=ground.draws, seed=seed,
    )  # fmt: skip
    return found.rho, found.low, found.high, found.p, float("nan")


NULLS: dict[tuple[str, str], Callable[[Ground, int], Figures]] = {
    ("position", "rotated passages"): rotated_passages,
    ("position", "rotated passages, by passage"): rotated_by_passage,
    ("position", "rotated texts"): rotated_texts,
    ("position", "swapped halves"): swapped_halves,
    ("gender", "random words"): random_words,
    ("gender", "random words, by article"): partial(random_words, by_article=True),
    ("linguistic", "random complexity"): random_complexity,
    ("linguistic", "random skewed complexity"): random_skewed_complexity,
    ("pooling", "even judging"): even_judging,
    ("survivorship", "random order"): random_order,
}

ground_of = lru_cache(maxsize=1)(Ground)


def p_values(task: tuple[Path, int, int, Sequence[int]]) -> list[dict[str, Any]]:
    """All nulls of some seeds on one collection."""
    folder, queries, draws, seeds = task
    logging.disable(logging.WARNING)
    ground, rows = ground_of(folder, queries, draws), []
    for seed in seeds:
        for (test, null), made in NULLS.items():
            value, low, high, p, deciding = made(ground, seed)
            # A null without a p is left out later: the collection cannot have it, for example with one answer in every list.
            rows.append(
                {
                    "collection": folder.name, "test": test, "null": null, "seed": seed, "value": value, "low": low,
                    "high": high, "p": p, "deciding": deciding, "queries": len(ground.topics), "asked": queries, "draws": draws,
                }
            )  # fmt: skip
    return rows


def agreement(found: pd.DataFrame) -> pd.DataFrame:
    """How often the interval excludes 0, and how often interval and test disagree."""
    out = (found["low"] > 0) | (found["high"] < 0)
    found = found.assign(leaves_0_out=out, disagree=out != (found["p"] <= LEVEL))
    return found.groupby(["collection", "test", "null"], sort=False)[["leaves_0_out", "disagree"]].mean().reset_index()


def examine(
    data: Path, collections: Sequence[str], seeds: range, out: Path, *, queries: int, draws: int, workers: int
) -> list[str]:
    """Make the null cases that a folder lacks, and write all null cases of these collections, as files and a table.

    Args:
        data: The folder of real collections.
        collections: The names of their folders.
        seeds: Seeds of the null cases.
        out: The folder of results. Results of an earlier run are used, whatever its seeds, if it had the same queries and draws.
        queries: Number of queries of each collection.
        draws: Permutations per test.
        workers: Number of processes.

    Returns:
        One line for each goal: whether it is reached or missed.
    """
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)

    def tasks(there: pd.DataFrame) -> Iterator[tuple[Path, int, int, list[int]]]:
        if len(there) and set(zip(there["asked"], there["draws"])) != {(queries, draws)}:
            raise SystemExit(f"{out} holds null cases that were made with other --queries or --draws; name another folder")
        for name in collections:
            known = set(there.loc[there["collection"] == name, "seed"]) if len(there) else set()
            left = [seed for seed in seeds if seed not in known]
            yield from ((data / name, queries, draws, left[first : first + LOT]) for first in range(0, len(left), LOT))

    found = finished(out / "p_values.csv", tasks, p_values, workers)
    found = found[found["collection"].isin(collections)].dropna(subset=["p"])
    table = rates(found, ["test", "null", "collection"], means=["queries", "deciding"]).merge(agreement(found))
    table.to_csv(out / "rates.csv", index=False)
    head = ["Test, null", "collection", "queries", "deciding queries", "nulls"]
    rows = [[*head, "p at or below .05", "interval excludes 0", "test and interval disagree"]]
    for row in table.to_dict("records"):
        rows.append([
            f"{row['test']}, {row['null']}", row["collection"], f"{row['queries']:.0f}",
            "" if np.isnan(row["deciding"]) else f"{row['deciding']:.1f}", str(row["seeds"]), shown(row),
            f"{row['leaves_0_out']:.1%}", f"{row['disagree']:.1%}",
        ])  # fmt: skip
    first = int(found["seed"].min())
    title = (
        f"False alarms on real collections [99 % interval]; ``python benchmarks/real_nulls.py --data FOLDER "
        f"--nulls {found['seed'].nunique()} {f'--first-seed {first} ' if first else ''}--queries {queries} --draws {draws}``"
    )
    write_table(out / "real_nulls.inc", title, rows)
    lines = [f"{len(found)} nulls in {time.perf_counter() - started:.0f} s", table.round(4).to_string(index=False)]
    for row in table.to_dict("records"):
        verdict = "reached" if row["high"] <= 0.07 else "MISSED" if row["low"] > 0.07 else "too few to say"
        lines.append(f"false alarms, {row['test']}, {row['null']}, {row['collection']}: {shown(row)}: {verdict}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of real collections")
    parser.add_argument("--collections", nargs="*", default=list(COLLECTIONS), help="names of the collections' folders in --data")
    parser.add_argument("--nulls", type=int, default=2_000, help="null cases of each kind on each collection")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed; another one gives fresh null cases")
    parser.add_argument("--queries", type=int, default=100, help="queries of each collection")
    parser.add_argument("--draws", type=int, default=999, help="permutations per test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("real-nulls"))
    o = parser.parse_args()
    seeds = range(o.first_seed, o.first_seed + o.nulls)
    told = examine(o.data, o.collections, seeds, o.out, queries=o.queries, draws=o.draws, workers=o.workers)
    print("\n".join(told))


if __name__ == "__main__":
    main()
