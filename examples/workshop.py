"""Code shared by the programs that train rankers. The programs import this module; it is not a program itself.

It contains settings, topics and judgements, encoders reduced to their lowest layers, arms that are stored on disk when they are
finished, statistics over seeds and queries, and functions that write results.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import math
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias import BiEncoder, Collection, InputError, Training, open_dataset
from pyterrier_debias.core.files import whole_folder, write_whole
from pyterrier_debias.core.locks import HeldError, only_one
from pyterrier_debias.core.statistics import (
    Interval,
    correct,
    detectable_effect,
    randomisation_test,
    two_level_interval,
    wilcoxon,
)
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.data.readers import read_qrels
from pyterrier_debias.rankers.base import loading, quiet
from pyterrier_debias.report.models import find_model
from pyterrier_debias.training.report import versions

# Settings


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The settings that all programs have; a subclass adds its own settings and may change the defaults.

    Attributes:
        model: Encoder that the rankers start from: hub name, folder, or ``minilm``.
        layers: How many of the encoder's lowest layers are kept; None for all.
        dropout: Dropout of the rankers' encoders in training; None for the model's own. Without dropout, processors use a faster
            attention kernel, and a ranker learns more in few steps.
        head_std: Standard deviation of the weights of a cross-encoder's new head; None for the model's own
            ``initializer_range`` (.02 in BERT). With weights as small as BERT's, many steps pass before the encoder learns.
        precision: Precision of training.
        batch_size: Triples per step.
        triples: Triples per arm.
        steps: Optimiser steps per arm, used instead of ``triples``.
        depth: Candidates per query.
        queries: Number of test queries.
        seeds: Number of seeds.
        resamples: Number of bootstrap resamples.
    """

    model: str = "minilm"
    layers: int | None = 3
    dropout: float | None = None
    head_std: float | None = None
    precision: str = "float32"
    batch_size: int = 8
    triples: int = 1200
    steps: int | None = None
    depth: int = 20
    queries: int = 200
    seeds: int = 3
    resamples: int = 2000

    #: Settings that must be at least 1.
    POSITIVE: ClassVar[tuple[str, ...]] = ("batch_size", "triples", "depth", "queries", "seeds", "resamples")
    #: The allowed values of the settings that have only a few.
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def optimiser_steps(self) -> int:
        """Number of optimiser steps per arm."""
        return self.steps or math.ceil(self.triples / self.batch_size)

    def record(self) -> dict[str, Any]:
        """The settings that all arms in a folder share; ``seeds`` and ``resamples`` may change later."""
        return {name: value for name, value in asdict(self).items() if name not in ("seeds", "resamples")}


def base_parser(doc: str | None, default: Shared) -> argparse.ArgumentParser:
    """A parser with the options that all programs have; an option that is not given keeps the configuration's value."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help=f"encoder that rankers start from: hub name, folder, or minilm (default {default.model})")
    parser.add_argument("--layers", type=int, help=f"how many of its lowest layers are kept (default {default.layers}; 0: all)")
    parser.add_argument("--triples", type=int, help=f"training triples per arm (default {default.triples})")
    parser.add_argument("--steps", type=int, help="optimiser steps per arm, instead of --triples")
    parser.add_argument("--precision", help=f"precision of training: float32, or bfloat16, which is faster if the processor "
                        f"supports it (default {default.precision})")
    parser.add_argument("--depth", type=int, help=f"candidates per query (default {default.depth})")
    parser.add_argument("--queries", type=int, help=f"test queries (default {default.queries})")
    parser.add_argument("--seeds", type=int, help=f"number of seeds; each arm is trained once per seed (default {default.seeds})")
    parser.add_argument("--config", type=Path, help="JSON file with further settings, e.g. full.json beside this program")
    parser.add_argument("--estimate", action="store_true", help="print how long the program will take, and stop")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a run that was stopped continues from it")
    return parser


def read_settings(options: argparse.Namespace, default: Any) -> Any:
    """The default settings, changed by the configuration and then by the command line.

    Args:
        options: The parsed options; ``config`` is the path of the configuration.
        default: The default settings.

    Returns:
        Settings of the same class.

    Raises:
        InputError: For a configuration that cannot be read, an unknown setting, a number below 1, or a value that a setting
            does not allow.
    """
    known = {f.name for f in fields(default)}
    chosen: dict[str, Any] = {}
    if options.config is not None:
        try:
            chosen = json.loads(options.config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"--config {options.config} cannot be read as JSON ({error})") from error
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise InputError(f"--config {options.config}: unknown setting {unknown[0]!r}; use one of {', '.join(sorted(known))}")
    chosen |= {name: value for name, value in vars(options).items() if name in known and value is not None}
    if chosen.get("layers") == 0:
        chosen["layers"] = None
    settings = replace(default, **chosen)
    for name in settings.POSITIVE:
        if getattr(settings, name) < 1:
            raise InputError(f"setting {name}={getattr(settings, name)} must be at least 1")
    for name, values in settings.CHOICES.items():
        if getattr(settings, name) not in values:
            raise InputError(f"setting {name}={getattr(settings, name)!r} must be one of {', '.join(values)}")
    return settings


def named(option: str, given: Sequence[str], what: str = "FILE") -> dict[str, str]:
    """The ``NAME=FILE`` arguments of an option that may be given several times.

    Args:
        option: The option, such as ``--run``.
        given: The arguments.
        what: The word for the part after the equals sign.

    Returns:
        Name to file.

    Raises:
        InputError: For an argument without a name or without a file, or a name that is given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not path:
            raise InputError(f"{option} {text}: write NAME={what}")
        if name in found:
            raise InputError(f"{option} {text}: {name!r} is used twice; give each {what.lower()} its own name")
        found[name] = path
    return found


# Collections


def held(qrels: pd.DataFrame, dataset: Any) -> pd.DataFrame:
    """Judgements of the passages that a collection in memory holds; a sample of a larger collection may lack judged passages."""
    return qrels[qrels["docno"].isin(dataset.corpus["docno"])] if isinstance(dataset, Collection) else qrels


def both_years(folder: Path, *, ties: str = "docno") -> Collection:
    """TREC DL 2019 and 2020 as one collection, with the runs of both.

    Args:
        folder: A folder with the splits ``dl19`` and ``dl20``.
        ties: See :func:`~pyterrier_debias.open_dataset`.

    Returns:
        The collection; the topics' column ``type`` holds the year, which serves as a control when queries are compared by their
        wording.
    """
    years = {year: open_dataset(folder, split=year, ties=ties) for year in ("dl19", "dl20")}
    first = years["dl19"]
    topics = [one.get_topics().assign(type=year) for year, one in years.items()]
    runs = {name: [one.get_runs()[name] for one in years.values()] for name in first.get_runs()}
    return Collection(
        "TREC DL 2019 and 2020",
        corpus=first.corpus,
        topics={"both": pd.concat(topics, ignore_index=True)},
        qrels={"both": pd.concat([one.get_qrels() for one in years.values()], ignore_index=True)},
        runs={name: pd.concat(both, ignore_index=True) for name, both in runs.items()},
    )


def single_positives(folder: Path, option: str) -> pd.DataFrame:
    """Queries of MS MARCO's small development set that have one relevant passage, with its text.

    Args:
        folder: The folder that contains ``msmarco_dev_small``.
        option: The command-line option that named the folder; for the error message.

    Returns:
        ``qid``, ``docno``, ``label``, ``query`` and ``positive``: title and passage, with "- " in place of a missing title.

    Raises:
        InputError: If the folder lacks the passages.
    """
    try:
        lines = gzip.decompress((folder / "msmarco_dev_small" / "positives_text.jsonl.gz").read_bytes()).decode().splitlines()
    except OSError as error:
        raise InputError(f"{option} {folder} lacks msmarco_dev_small/positives_text.jsonl.gz ({error})") from error
    qrels = read_qrels(folder / "msmarco_dev_small" / "qrels.dev.small.txt.gz")
    # The file has the text of one relevant passage per query. If a query has several, the file does not say which one it is.
    return qrels[~qrels["qid"].duplicated(keep=False)].merge(pd.DataFrame(map(json.loads, lines)).astype({"qid": str}), on="qid")


def sampled_tests(folder: Path) -> dict[str, Collection]:
    """The test queries of MS MARCO's samples, with BM25's rankings over all of MS MARCO.

    Args:
        folder: The folder that contains ``msmarco_trec_dl`` and ``msmarco_dev600``.

    Returns:
        By name: TREC DL 2019 and 2020 (97 queries), and dev600 (600 queries of the small development set, whose relevant passage
        counts as grade 2, like passages that answer the query in TREC DL).
    """
    dev = open_dataset(folder / "msmarco_dev600", "msmarco_sparse")
    graded = dev.get_qrels().assign(label=lambda frame: 2 * (frame["label"] > 0))
    own = Collection("dev600", corpus=dev.corpus, topics={"dev": dev.get_topics()}, qrels={"dev": graded}, runs=dev.get_runs())
    return {one.name: one for one in (both_years(folder / "msmarco_trec_dl"), own)}


def relevant_pairs(qrels: pd.DataFrame) -> set[tuple[str, str]]:
    """qid and docno of the relevant documents."""
    relevant = qrels[qrels["label"] > 0]
    return set(zip(relevant["qid"], relevant["docno"]))


def answerable(topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Topics with a relevant passage, their ``qid`` and ``query``."""
    relevant = set(qrels.loc[qrels["label"] > 0, "qid"])
    return topics.loc[topics["qid"].isin(relevant), ["qid", "query"]].reset_index(drop=True)


def draw(topics: pd.DataFrame, n: int, seed: int, purpose: str) -> pd.DataFrame:
    """At most n topics, drawn at random; the draw depends only on the seed, the purpose and the qids."""
    order = sorted(range(len(topics)), key=lambda i: keyed_hash(seed, purpose, topics["qid"].iat[i]))
    return topics.iloc[sorted(order[:n])].reset_index(drop=True)


# Rankers

#: The names of dropout in encoders' configurations (BERT and similar encoders; DistilBERT).
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")


def encoder_of(settings: Any, out: Path) -> str:
    """The encoder that rankers start from: the model itself, or a copy of its lower layers in the results' folder.

    Args:
        settings: An object with ``model``, ``layers``, ``dropout`` and ``head_std``; see :class:`Shared`.
        out: The results' folder.

    Returns:
        Hub name or folder.
    """
    model = find_model(settings.model, "bi").source
    changes = {"layers": settings.layers, "dropout": settings.dropout, "head": settings.head_std}
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        return model
    folder = out / "-".join(["encoder", *(f"{name}-{value}" for name, value in changes.items())])
    with locked(out, folder.name):
        if not folder.is_dir():
            keep_layers(model, settings.layers, folder, dropout=settings.dropout, head_std=settings.head_std)
    return str(folder)


def adapter_of(settings: Any, encoder: str | None = None, **options: Any) -> BiEncoder:
    """An untrained linear layer over vectors; see :func:`fixed_vectors.adapter`. Torch is imported only when this is called.

    Args:
        settings: An object with ``model`` and ``dropout``; see :class:`Shared`.
        encoder: The encoder that makes the vectors; None for ``settings.model``.
        options: Options of the ranker.
    """
    from fixed_vectors import adapter

    return adapter(encoder or find_model(settings.model, "bi").source, dropout=settings.dropout, **options)


def keep_layers(
    model: str, layers: int | None, folder: Path, *, dropout: float | None = None, head_std: float | None = None
) -> None:
    """Save the embeddings and the lowest layers of an encoder as a model folder.

    Args:
        model: Hub name or folder of a Hugging Face encoder.
        layers: How many layers stay; None for all.
        folder: The folder to write.
        dropout: Dropout of the copy in training; None for the model's own.
        head_std: Standard deviation of the weights of new heads on the copy; None for the model's own.

    Raises:
        InputError: If the model has fewer layers, does not keep its layers in one list, or has no known name for its dropout.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    with loading(model, "keep_layers") as where:
        encoder = AutoModel.from_pretrained(where, dtype=torch.float32, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    config = encoder.config
    depth = config.num_hidden_layers
    if layers is not None:
        lists = [m for m in encoder.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == depth]
        if not 1 <= layers <= depth or len(lists) != 1:
            raise InputError(f"model {model} has {depth} layers, so {layers} cannot be kept; choose another number with --layers")
        del lists[0][layers:]
        config.num_hidden_layers = layers
    if dropout is not None:
        names = [name for name in DROPOUTS if hasattr(config, name)]
        if not names:
            raise InputError(f"model {model}: its configuration has none of {', '.join(DROPOUTS)}; set dropout to null")
        for name in names:
            setattr(config, name, dropout)
    if head_std is not None:
        config.initializer_range = head_std
    with whole_folder(folder) as scratch, quiet():
        encoder.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)


def pace(ranker: Any, candidates: pd.DataFrame, qrels: pd.DataFrame, training: Training) -> tuple[float, float]:
    """Measure how fast a ranker trains.

    Args:
        ranker: Any ranker; it is trained for a few steps.
        candidates: Training candidates; a few queries are enough.
        qrels: Their judgements.
        training: Options of the training.

    Returns:
        Seconds per step, and seconds that pass before the first step.
    """
    ranker.score(["a"], ["b"])  # loads weights and libraries
    seconds = []
    for steps in (4, 1, 4):  # the first run warms up, and reads the texts whose vectors adapters then store
        ranker.training = replace(training, max_steps=steps)
        started = time.perf_counter()
        ranker.fit(candidates, qrels)
        seconds.append(time.perf_counter() - started)
    step = max((seconds[2] - seconds[1]) / 3, 1e-6)
    return step, max(seconds[1] - step, 0.0)


# Arms


@dataclass(frozen=True)
class Arm:
    """One trained ranker and its measures.

    Attributes:
        labels: Columns that identify the arm's rows, such as ``ranker`` and ``seed``; together they make the arm's name.
        make: ``make(folder, checkpoints)`` returns the arm's rows and may store files in the folder.
        kind: The kind of ranker, for estimates of time.
        steps: Number of training steps.
        reads: Number of texts that are read in evaluation, for estimates of time.
    """

    labels: dict[str, Any]
    make: Callable[[Path, Path], pd.DataFrame]
    kind: str
    steps: int
    reads: int

    @property
    def name(self) -> str:
        """Name of the arm's folder."""
        return "-".join(re.sub(r"[^\w.]+", "_", str(value)) for value in self.labels.values())


def same_run(out: Path, program: str, settings: Shared, collections: Sequence[str]) -> None:
    """Write the settings into the results' folder, or compare them with those that are already there.

    Args:
        out: The folder.
        program: Name of the program.
        settings: The settings; all results in a folder share them, except ``seeds`` and ``resamples``.
        collections: Names of the collections.

    Raises:
        InputError: If the folder holds results of another program, other collections or other settings.
    """
    record = json.loads(json.dumps({"program": program, "collections": list(collections), **settings.record()}))
    path = out / "arms.json"
    if not path.is_file():
        write_whole(path, json.dumps(record, indent=1) + "\n")
        return
    there = json.loads(path.read_text(encoding="utf-8"))
    differ = [name for name in record if there.get(name) != record[name]]
    if differ:
        raise InputError(
            f"{out} holds arms made with {differ[0]}={there.get(differ[0])!r}, not {record[differ[0]]!r}; name another folder"
        )


def locked(out: Path, name: str, wait: float = math.inf) -> AbstractContextManager[None]:
    """Let one process at a time make something in the results' folder, whose locks are in its subfolder ``locks``.

    Args:
        out: The results' folder.
        name: Name of what is made.
        wait: How many seconds to wait while another process makes it; see :func:`~pyterrier_debias.core.locks.only_one`.
    """
    locks = out / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    return only_one(locks / name, out / name, wait=wait)


#: The subfolder of an arm that holds its ranker, if rankers are kept.
KEPT = "ranker"
#: The option that keeps rankers.
KEEP: dict[str, Any] = {"action": "store_true", "help": f"save each ranker in the folder of its arm, arms/NAME/{KEPT}"}


class Workshop:
    """Runs arms in a folder, each of them once.

    Args:
        out: The folder.
        program: Name of the program.
        settings: The settings that all arms in the folder share.
        materials: The collections, each with a ``name``.

    Raises:
        InputError: See :func:`same_run`.
    """

    def __init__(self, out: Path, program: str, settings: Shared, materials: Sequence[Any]):
        self.out = out
        same_run(out, program, settings, [material.name for material in materials])

    def folder(self, arm: Arm) -> Path:
        """The folder of a finished arm."""
        return self.out / "arms" / arm.name

    def waited(self, arm: Arm) -> Path:
        """The folder of an arm that another one needs, when no process makes it any more."""
        with locked(self.out, arm.name):
            return self.folder(arm)

    def open(self, arms: Sequence[Arm]) -> list[Arm]:
        """The arms that are not finished."""
        return [arm for arm in arms if not (self.folder(arm) / "rows.csv").is_file()]

    def carry_out(self, arms: Sequence[Arm], seconds: Mapping[str, float]) -> pd.DataFrame:
        """Run the unfinished arms, and read the rows of all arms.

        Processes may share a folder, for example one per core, or some that use one GPU: each takes arms that no other has
        begun, and then waits for those of the others. An arm whose process has died is made by another.

        Args:
            arms: The arms in the order in which they are run.
            seconds: Expected seconds of each unfinished arm, by its name.

        Returns:
            The rows of all arms with their labels.
        """
        left, spent, expected = self.open(arms), 0.0, 0.0
        for wait in (0.0, math.inf):
            for arm in left:
                with ExitStack() as stack:
                    try:
                        stack.enter_context(locked(self.out, arm.name, wait))
                    except HeldError:
                        continue
                    if not self.open([arm]):
                        continue
                    took = self._make(arm)
                spent, expected, still = spent + took, expected + seconds[arm.name], self.open(left)
                rest = sum(seconds[other.name] for other in still) * spent / expected
                print(f"{len(left) - len(still)}/{len(left)} {arm.name}: {took:.0f} s; about {minutes(rest)} left", flush=True)
        read = [pd.read_csv(self.folder(arm) / "rows.csv", dtype={"qid": str}) for arm in arms]
        return pd.concat(read, ignore_index=True)

    def _make(self, arm: Arm) -> float:
        """Make an arm; returns the seconds that it took."""
        from pyterrier_debias.training.trainer import remove_checkpoints

        started, checkpoints = time.perf_counter(), self.out / "checkpoints" / arm.name
        with whole_folder(self.folder(arm), overwrite=True) as folder:
            arm.make(folder, checkpoints).assign(**arm.labels).to_csv(folder / "rows.csv", index=False)
        remove_checkpoints(checkpoints)
        return time.perf_counter() - started


def minutes(seconds: float) -> str:
    """A time as text."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


# Statistics

#: A function from means of shape [..., conditions] to values of shape [...].
Statistic = Callable[[np.ndarray], np.ndarray]


def matrix(rows: pd.DataFrame, measure: str, by: Sequence[str]) -> tuple[list[tuple[Any, ...]], np.ndarray]:
    """Values by seed, query and condition.

    Args:
        rows: One row for each seed, qid and condition.
        measure: Column of the values.
        by: Columns that name the condition.

    Returns:
        The conditions, and values of shape [seeds, queries, conditions].

    Raises:
        InputError: If a value is missing.
    """
    wide = rows.pivot(index=["seed", "qid"], columns=list(by), values=measure).sort_index()
    seeds, queries = (wide.index.get_level_values(level).nunique() for level in ("seed", "qid"))
    if wide.isna().any(axis=None) or len(wide) != seeds * queries:
        raise InputError(f"the arms were not all measured on the same queries ({measure})")
    names = [name if isinstance(name, tuple) else (name,) for name in wide.columns]
    return names, wide.to_numpy(dtype=float).reshape(seeds, queries, -1)


def compare(before: np.ndarray, after: np.ndarray, resamples: int) -> dict[str, Any]:
    """Compare two conditions: the difference of means with its interval over seeds and queries, and Wilcoxon's test over queries.

    Args:
        before: Shape [seeds, queries].
        after: Shape [seeds, queries].
        resamples: Bootstrap resamples.

    Returns:
        ``difference`` (after - before), ``low``, ``high``, ``p`` (of the queries' means over seeds), ``seeds``, ``queries``.
    """
    interval = two_level_interval(np.stack([before, after], axis=-1), lambda m: m[..., 1] - m[..., 0], resamples=resamples)
    p = wilcoxon(before.mean(axis=0), after.mean(axis=0)).p
    seeds, queries = before.shape
    return {
        "difference": interval.estimate, "low": interval.low, "high": interval.high, "p": p, "seeds": seeds, "queries": queries
    }


def article_interval(values: np.ndarray, articles: np.ndarray, statistic: Statistic, resamples: int) -> Interval:
    """A statistic of means, with its interval over seeds and articles; each draw takes all questions of an article or none.

    Questions about one article share the ranked paragraphs and are similar to each other.

    Args:
        values: Shape [seeds, questions, conditions].
        articles: Shape [questions].
        statistic: From means of shape [..., conditions] to values of shape [...].
        resamples: Bootstrap resamples.

    Returns:
        The interval; ``n`` is the number of articles.
    """
    names, place = np.unique(articles, return_inverse=True)
    counted = np.concatenate([values, np.ones((*values.shape[:2], 1))], axis=-1)
    sums = np.einsum("sqc,qa->sac", counted, np.eye(len(names))[place])
    found = two_level_interval(sums, lambda m: statistic(m[..., :-1] / m[..., -1:]), resamples=resamples)
    return Interval(found.estimate, found.low, found.high, found.level, len(names))


def over_articles(
    before: np.ndarray,
    after: np.ndarray,
    articles: np.ndarray,
    resamples: int,
    *,
    less: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Like :func:`compare`, but over seeds and articles; on request the difference for some questions minus that for others.

    Args:
        before: Shape [seeds, questions].
        after: Shape [seeds, questions].
        articles: Shape [questions].
        resamples: Bootstrap resamples.
        less: Two masks of shape [questions]: the mean difference over the first questions minus that over the second ones; None
            for the mean difference over all.

    Returns:
        ``difference``, ``low``, ``high``, ``p`` (randomisation; an article's questions change sides together), ``detectable``
        (the smallest effect that one test finds with a power of 80 %), ``seeds``, ``articles``, ``queries``.
    """
    masks = [mask.astype(float) for mask in less or (np.ones(before.shape[1], dtype=bool),)]
    parts = [part for mask in masks for part in (before * mask, after * mask, np.broadcast_to(mask, before.shape))]

    def difference(m: np.ndarray) -> np.ndarray:
        own = [(m[..., at + 1] - m[..., at]) / m[..., at + 2] for at in range(0, len(parts), 3)]
        return own[0] - own[1] if less else own[0]

    interval = article_interval(np.stack(parts, axis=-1), articles, difference, resamples)
    # The weight of a question in the difference: the mean of the weighted values over questions is the difference.
    weight = [len(mask) * mask / mask.sum() for mask in masks]
    count = weight[0] - weight[1] if less else weight[0]
    p = randomisation_test(count * before.mean(axis=0), count * after.mean(axis=0), clusters=articles.tolist()).p
    return {
        "difference": interval.estimate, "low": interval.low, "high": interval.high, "p": p,
        "detectable": detectable_effect(interval), "seeds": len(before), "articles": interval.n,
        "queries": int(np.count_nonzero(sum(masks))),
    }  # fmt: skip


def ends(name: str, interval: Interval) -> dict[str, float]:
    """An estimate and its interval as columns of a table."""
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def share_of_mean_closed(before: np.ndarray, after: np.ndarray, axis: int = 0) -> np.ndarray:
    """The share of a mean that is removed, for :func:`~pyterrier_debias.core.statistics.bootstrap_interval`."""
    return share_closed(before.mean(axis=axis), after.mean(axis=axis))


def share_closed(before: Any, after: Any) -> np.ndarray:
    """The share of a gap that is closed; missing if there was no gap."""
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    return 1 - np.divide(after, before, out=np.full(before.shape, np.nan), where=before != 0)


def closed(values: np.ndarray, before: Statistic, after: Statistic, resamples: int) -> dict[str, Any]:
    """The amount and the share of a gap that are closed, with intervals over seeds and queries.

    Args:
        values: Shape [seeds, queries, conditions].
        before: The original gap, from means of shape [..., conditions].
        after: The remaining gap.
        resamples: Bootstrap resamples.

    Returns:
        ``smaller_by`` and ``share_closed``, each with ``low`` and ``high``. If the original gap may have been 0, the share is
        missing, and ``share_reason`` says so: a share of a gap that may be 0 can be any number, such as -5.85.
    """
    smaller = two_level_interval(values, lambda m: before(m) - after(m), resamples=resamples)
    share = two_level_interval(values, lambda m: share_closed(before(m), after(m)), resamples=resamples)
    gap = two_level_interval(values, before, resamples=resamples)
    clear = gap.low > 0 or gap.high < 0
    missing = float("nan")
    return {
        "smaller_by": smaller.estimate,
        "smaller_low": smaller.low,
        "smaller_high": smaller.high,
        "share_closed": share.estimate if clear else missing,
        "share_low": share.low if clear else missing,
        "share_high": share.high if clear else missing,
        "share_reason": "" if clear else f"the gap may be 0 [{gap.low:.3f}, {gap.high:.3f}]",
    }


def corrected(table: pd.DataFrame) -> pd.DataFrame:
    """The table with p values corrected (Holm) for all its rows."""
    out = table.copy()
    out.insert(out.columns.get_loc("p") + 1, "p_corrected", correct(out["p"].to_numpy()))
    return out


# Results


def cells(column: str, values: pd.Series) -> list[str]:
    """Values as text: numbers with three digits, or four in a column of small numbers; p values with two significant digits."""
    small = pd.api.types.is_float_dtype(values) and values.abs().max() < 0.1
    shape = ".2g" if column in ("p", "p_corrected") else ".4f" if small else ".3f"

    def shown(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return format(value, shape) if isinstance(value, float) else str(value)

    return [shown(value) for value in values.astype(object)]


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown."""
    columns = [str(column) for column in table.columns]
    lines = [columns, ["---"] * len(columns), *zip(*(cells(str(column), table[column]) for column in table.columns))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


#: Columns whose heading in the documentation is not their name with spaces; see :func:`heading`.
HEADINGS = {
    "p_corrected": "corrected p", "p_noninferior": "p, non-inferiority", "p_equivalent": "p, equivalence",
    "gap_trained_original": "gap, trained on original", "gap_trained_rotated": "gap, trained on rotated",
    "smaller_by": "amount closed", "closed": "amount closed", "gap_closed": "share closed", "cv_change": "change of cv",
    "mats_paper": "MATS (paper)", "std_deltas": "sd of deltas", "auc": "AUC", "all_as_printed": "all, as printed",
    "loss": "significant loss",
}  # fmt: skip


def heading(column: str) -> str:
    """The heading of a column in the documentation."""
    return HEADINGS.get(column, column.replace("_", " "))


def restructured(table: pd.DataFrame, caption: str) -> str:
    """A table in reStructuredText, for the documentation: narrower than the CSV.

    The limits of an interval follow their figure in brackets. A column with the same value in all rows goes into the caption.
    """
    columns = {str(name): cells(str(name), table[name]) for name in table.columns}
    for low in [name for name in columns if name == "low" or name.endswith("_low")]:
        values = list(columns)[list(columns).index(low) - 1]
        limits = zip(columns[values], columns.pop(low), columns.pop(f"{low.removesuffix('low')}high"))
        columns[values] = [f"{value} [{lower}, {upper}]" if lower else value for value, lower, upper in limits]
    constant = [name for name, cells in columns.items() if len(table) > 1 and len(set(cells)) == 1]
    same = {name: columns.pop(name)[0] for name in constant}
    caption = "; ".join([caption, *(f"{heading(name)}: {value}" for name, value in same.items() if value)])
    lines = [f".. list-table:: {caption}", "   :header-rows: 1", ""]
    for row in [[heading(name) for name in columns], *zip(*columns.values())]:
        lines += [f"   {'* -' if at == 0 else '  -'} {value}".rstrip() for at, value in enumerate(row)]
    # A @ that is not escaped would make nDCG@10 an e-mail address.
    return "\n".join(lines).replace("@", "\\@") + "\n"


def write_results(
    out: Path,
    title: str,
    settings: Any,
    tables: Mapping[str, pd.DataFrame],
    notes: Sequence[str],
    captions: Mapping[str, str] | None = None,
) -> None:
    """Write each table as CSV and for the documentation; write all tables, settings and versions as JSON; print them as Markdown.

    Args:
        out: The folder.
        title: Title of the page.
        settings: Settings of the run.
        tables: The tables by name, which is also the name of their file.
        notes: Explanations of the tables.
        captions: Captions of tables in the documentation, by the table's name; other captions consist of title and name.
    """
    import torch

    machine = {
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    command = shlex.join(["python", *sys.argv])
    shown = "".join(f"## {name.replace('_', ' ').capitalize()}\n\n{markdown(table)}\n" for name, table in tables.items())
    page = f"# {title}\n\n`{command}`\n\n{shown}" + "".join(f"- {note}\n" for note in notes)
    content = {
        "title": title,
        "command": command,
        "settings": asdict(settings),
        "versions": versions(),
        "machine": machine,
        "notes": list(notes),
        "tables": {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()},
    }
    for name, table in tables.items():
        write_whole(out / f"{name}.csv", table.to_csv(index=False))
        caption = (captions or {}).get(name, f"{title}: {name.replace('_', ' ')}")
        write_whole(out / f"{name}.inc", restructured(table, caption))
    write_whole(out / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_whole(out / "results.md", page)
    print(f"\n{page}\nwritten to {out}")


def program(main: Callable[[], None]) -> int:
    """Run a program. For an error that the user can fix it prints one line, and the exit status is 2.

    Warnings of rankers about new heads and truncated texts are silenced, because every arm would repeat them.
    """
    logger = logging.getLogger("pyterrier_debias")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        logger.setLevel(level)
    return 0
