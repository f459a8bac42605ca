"""The systems that an audit examines, and the data that biases share during an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.caches import check_caches
from pyterrier_debias.core.columns import remedy
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.decomposition import behind_text, loads_text, take_apart, without_cutoff
from pyterrier_debias.core.errors import InputError, kind_of, one_line, shortened
from pyterrier_debias.core.foreign_memory import ForeignMemory
from pyterrier_debias.core.frames import (
    ROWS,
    QueryRows,
    check_overlap,
    check_pairs,
    check_scores,
    in_parts,
    pair_numbers,
    ranked,
    shared_texts,
    stage_name,
    tied_with_the_one_before,
    with_string_ids,
    with_ties_drawn,
)
from pyterrier_debias.core.kept_scores import KeptScores
from pyterrier_debias.core.naming import stage_name_of, system_name
from pyterrier_debias.core.retrieval import answered, asking_for, tied_at, unanswered_notes, unanswered_queries
from pyterrier_debias.core.stage import chain, flatten, join, same_pipeline
from pyterrier_debias.core.terrier import is_expression, property_notes

#: Makes a retriever over documents (dictionaries with ``docno`` and ``text``).
Indexer = Callable[[Iterable[dict[str, Any]]], pt.Transformer]

_TOPICS = ["qid", "query"]
_RESULTS = [*_TOPICS, "docno", "score", "rank", "text"]

#: Candidates without a score, which a ranker adds.
_UNSCORED = [*_TOPICS, "docno", "text"]

#: Columns that tell of a document; a stage that asks for one of them is given candidates.
_OF_DOCUMENTS = {"docno", "docid", "text", "doc_vec"}


class BrokenSystemError(RuntimeError):
    """Raised if a part of an examined system raises an error; that error is the cause of this one.

    Attributes:
        system: The system's name.
    """

    def __init__(self, system: str, told: str):
        """
        Args:
            system: The system's name.
            told: The error that it raised, in words.
        """
        super().__init__(system, told)
        self.system = system

    def __str__(self) -> str:
        """The system's name and the error, in one line."""
        return "system {!r} raised {}".format(*self.args)


class UnfitSystemError(BrokenSystemError, InputError):
    """Raised if a probe refuses a single system because of what the system does with its input.

    The cause is an :class:`InputError`; code that examines only one system may treat it as one.
    """

    def __str__(self) -> str:
        """The reason, which names the system if that helps."""
        return str(self.args[1])


@contextmanager
def refused_alone(system: System) -> Iterator[None]:
    """Attribute errors of a probe to one system, so that the other systems are still examined.

    Args:
        system: The system that is probed.

    Raises:
        UnfitSystemError: In place of an :class:`InputError`, or of the error about a column that a stage lacks.
    """
    try:
        yield
    except UnfitSystemError:
        raise
    except pt.validate.InputValidationError as error:
        raise UnfitSystemError(system.name, lacking(error)) from error
    except InputError as error:
        raise UnfitSystemError(system.name, " ".join(str(error.args[0]).split())) from error


def lacking(error: pt.validate.InputValidationError) -> str:
    """Which columns a stage lacks, in words, and what to do about it.

    Args:
        error: The error that the stage raised.

    Returns:
        One sentence with the stage, the columns that are missing, and the remedy.
    """
    missing = min((mode.missing_columns for mode in error.modes), key=len)
    stage = next((one for one in reversed(_raising(error)) if not isinstance(one, (pt.Compose, _Named))), None)
    who = "a stage" if stage is None else f"its stage {stage_name_of(stage)}"
    if not missing:
        return f"{who} refuses its input: {' '.join(str(error.args[0]).split())}"
    return f"{who} needs {', '.join(map(repr, missing))}; {remedy(missing)}"


@dataclass(frozen=True, eq=False)
class System:
    """A pipeline as an audit examines it: split into candidates and ranker, under the name that reports show.

    Attributes:
        name: The name in reports.
        candidates: A transformer from topics to candidates: ``qid``, ``docno``, ``query``, and ``text`` if a ranker follows.
        ranker: A black box from frames with ``query`` and text to scores; None for a retriever alone.
        indexer: A function that makes the same kind of retriever over changed documents, for probes of a retriever; None if that
            is not possible.
        note: What a report must say about the system, in one sentence; may be empty.
        out_of_reach: Why changed texts cannot reach its ranker or its index, in one sentence; probes that change texts then leave
            the system out. Empty if they can, or if the only obstacle is that there is no indexer.
        untreated: The name of the same system without a treatment, if both are audited: reports then say what the treatment
            cost.
        indexed: Whether the candidates come from the indexer applied to the dataset's documents; these are then not indexed again
            for comparison with changed ones.
        memory: The memory of the ranker's scores during an audit; None if it scores every time.
        kept: Where its scores are stored until the audit ends; None if they are not.

    When not to use it: for a pipeline or a run that needs no name of its own and no indexer; an audit accepts it directly.

    Example:
        ::

            audit([System('BM25', bm25, indexer=indexer), System('mine', bm25 >> texts, ranker)], dataset)
    """

    name: str
    candidates: pt.Transformer
    ranker: pt.Transformer | None = None
    indexer: Indexer | None = None
    note: str = ""
    out_of_reach: str = ""
    untreated: str = ""
    indexed: bool = False
    memory: ForeignMemory | None = None
    kept: KeptScores | None = None

    def __post_init__(self) -> None:
        """Refuse an indexer that makes no retriever, and a cache that would hide changed texts (``core.caches``)."""
        if self.indexer is not None and not callable(self.indexer):
            raise InputError(
                f"System {self.name!r}: indexer is {kind_of(self.indexer)}; give a function from documents to a retriever"
            )
        whole = self.candidates if self.ranker is None else pt.Compose(self.candidates, self.ranker)
        check_caches(whole)

    @classmethod
    def of(cls, name: str, pipeline: Any, *, dataset: Any = None, indexer: Indexer | None = None) -> System:
        """Split a pipeline after its text stage; see :func:`pyterrier_debias.core.decomposition.take_apart`.

        Text loaders and cut-offs right after the text stage belong to the candidates: ``bm25 % 20 >> loader >> ranker`` and
        ``bm25 >> loader % 20 >> ranker`` are the same system. If texts are loaded and scored inside one stage, such as
        ``(loader >> ranker) ** pl2``, the pipeline is not split: it is measured, and ``out_of_reach`` says why it is not probed.

        Args:
            name: The name in reports.
            pipeline: A pipeline from topics to results; a result frame; a ranker alone (its candidates are the dataset's first
                run, or what labellers were shown); or a System, which is returned unchanged.
            dataset: The source of candidates and texts for a ranker alone.
            indexer: See the class.

        Returns:
            The system.

        Raises:
            InputError: If the pipeline is none of these, or it is a ranker alone and the dataset has no candidates.
        """
        if isinstance(pipeline, System):
            return pipeline
        if isinstance(pipeline, pd.DataFrame):
            return cls(name, pt.Transformer.from_df(check_run(pipeline, name)), None, indexer)
        if not isinstance(pipeline, pt.Transformer):
            raise InputError(
                f"system {name!r} is {kind_of(pipeline)}; give a PyTerrier pipeline, a result frame or a ranker"
            )
        stages = flatten(pipeline)
        if _needs_candidates(stages[0], pt.inspect.transformer_outputs(stages[0], _TOPICS, strict=False)) or _ranks(pipeline):
            return cls._ranker_alone(name, pipeline, dataset, indexer)
        parts = take_apart(stages)
        ranker = chain(parts.ranker)
        note = f"{name}: the depth does not affect its ranker, because {parts.reason}." if parts.reason and ranker is None else ""
        return cls(name, join(*parts.candidates), ranker, indexer, note, parts.reason)

    @classmethod
    def _ranker_alone(cls, name: str, ranker: pt.Transformer, dataset: Any, indexer: Indexer | None) -> System:
        runs = provided(dataset, "get_runs") or {}
        run = next(iter(runs.values()), None)
        if run is None:
            run = provided(dataset, "get_candidates")
        if run is None:
            raise InputError(
                f"system {name!r} does not start from topics, and the collection has no run for it to rank; "
                f"put a retriever and a text loader before it: retriever >> dataset.text_loader() >> ranker"
            )
        parts = behind_text(flatten(ranker), _RESULTS)
        # Texts that it loads itself take the place of the collection's.
        texts = [] if any(loads_text(stage, _RESULTS) for stage in parts.candidates) else [dataset.text_loader()]
        candidates = join(pt.Transformer.from_df(run), *texts, *parts.candidates)
        whole = ranker if not parts.candidates else chain(parts.ranker)
        return cls(name, candidates, whole, indexer, out_of_reach=parts.reason)


def _needs_candidates(stage: pt.Transformer, outputs: list[str] | None) -> bool:
    """Whether a stage needs documents as input, by what it declares and what it does with empty frames.

    A stage that refuses topics needs documents if all kinds of input that it accepts have them. A stage that accepts anything,
    such as ``pt.apply.doc_score``, gives topics a score and no document. A retriever that passes empty frames through does
    neither.
    """
    if outputs is not None and {"score", "docno"} <= set(outputs):
        return _lacks_documents(stage)
    if outputs is not None:
        return "score" in outputs
    inputs = pt.inspect.transformer_inputs(stage, strict=False)
    if inputs is None:  # it neither validates nor takes a frame without texts
        return pt.inspect.transformer_outputs(stage, _RESULTS, strict=False) is not None
    return bool(inputs) and all(_OF_DOCUMENTS & set(columns) for columns in inputs)


def _lacks_documents(stage: pt.Transformer) -> bool:
    """Whether a function over whole frames needs documents when there is a query, which an empty frame does not show.

    An example is ``text_scorer()`` of pyterrier_colbert, which returns results for any empty frame.
    """
    if type(stage).__name__ != "ApplyGenericTransformer":
        return False
    try:
        stage.transform(pd.DataFrame({"qid": ["1"], "query": ["a"]}))
    except KeyError as error:
        return bool(error.args) and error.args[0] in _OF_DOCUMENTS
    except Exception:  # the biases say so
        return False
    return False


def _ranks(pipeline: pt.Transformer) -> bool:
    """Whether a pipeline scores given documents although it also accepts topics alone, as a query encoder does.

    Examples are the encoders of pyterrier_dr, which encode queries or score pairs, depending on the columns.
    """
    found = pt.inspect.transformer_outputs(pipeline, _TOPICS, strict=False)
    if found is None or "docno" in found:
        return False
    scored = pt.inspect.transformer_outputs(pipeline, _UNSCORED, strict=False)
    return scored is not None and {"docno", "score"} <= set(scored)


def takes_topics(pipeline: Any, dataset: Any, stage: Any) -> bool:
    """Whether a probe needs only topics: for a system, a pipeline that begins with a retriever, or a ranker with a dataset.

    Args:
        pipeline: The pipeline that the probe was given.
        dataset: The probe's dataset, or None.
        stage: The probe that the message names.

    Returns:
        True if topics are enough; a ranker without a dataset needs candidates.

    Raises:
        InputError: If it is not a pipeline.
    """
    if not isinstance(pipeline, (System, pt.Transformer)):
        raise InputError(f"{stage_name(stage)}: the pipeline is {kind_of(pipeline)}; give a ranker, a pipeline or a System")
    if isinstance(pipeline, System) or dataset is not None:
        return True
    first = flatten(pipeline)[0]
    outputs = pt.inspect.transformer_outputs(first, _TOPICS, strict=False)
    return outputs is not None and not _needs_candidates(first, outputs) and not _ranks(pipeline)


def probed_system(pipeline: Any, dataset: Any, stage: Any, *, candidates: bool = False) -> System:
    """The system that a probe examines: the pipeline, split; for a ranker alone, candidates are given to the probe.

    Args:
        pipeline: See :func:`takes_topics`.
        dataset: See :func:`takes_topics`.
        stage: See :func:`takes_topics`.
        candidates: Whether the probe was given candidates; a ranker then needs no run of the dataset.

    Returns:
        The system, named after its stages; see :func:`~pyterrier_debias.core.naming.system_name`.

    Raises:
        InputError: See :func:`takes_topics` and :meth:`System.of`.
    """
    if takes_topics(pipeline, None if candidates else dataset, stage):
        name = pipeline.name if isinstance(pipeline, System) else system_name(pipeline)
        return with_indexer(System.of(name, pipeline, dataset=dataset), dataset)
    return System(system_name(pipeline), pt.Transformer.identity(), pipeline)


def with_indexer(system: System, dataset: Any) -> System:
    """A retriever with the indexer that its collection provides, so that it can be probed over changed documents.

    Args:
        system: Any system.
        dataset: Its collection. A collection over an index, such as :class:`~pyterrier_debias.TerrierCollection`, has
            ``indexer_of``, and ``reindexing_reason``, which says why there is no indexer.

    Returns:
        The system; unchanged if it has an indexer or a ranker, or the collection gives neither an indexer nor a reason.
    """
    if system.indexer is not None or system.ranker is not None:
        return system
    indexer = provided(dataset, "indexer_of", system.candidates)
    if indexer is not None:
        return replace(system, indexer=indexer)
    return replace(system, out_of_reach=system.out_of_reach or provided(dataset, "reindexing_reason", system.candidates) or "")


def check_run(run: pd.DataFrame, name: str) -> pd.DataFrame:
    """Refuse a run without rows, with repeated pairs, or with scores that are not numbers.

    Args:
        run: Result frame.
        name: The system that messages name.

    Returns:
        The run with string identifiers.

    Raises:
        InputError: If it has no rows, lacks a column, repeats a pair or has a NaN score.
    """
    run = with_string_ids(run, f"run {name!r}")
    missing = [c for c in ("qid", "docno", "score") if c not in run.columns]
    if missing:
        there = ", ".join(map(str, run.columns))
        raise InputError(f"run {name!r}: column {missing[0]!r} is missing; it has {there}: {remedy(missing)}")
    if len(run) == 0:
        raise InputError(f"run {name!r} is empty; nothing was retrieved for any topic: check the index and the queries")
    check_scores(run, f"run {name!r}")
    check_pairs(run, f"run {name!r}")
    return run


def _check_topics_of_run(system: System, topics: pd.DataFrame) -> None:
    """Refuse a run of other topics, for which a pipeline would find nothing without a reason."""
    source = flatten(system.candidates)[0]
    if not isinstance(source, pt.transformer.SourceTransformer) or source.df.empty or "qid" not in source.df.columns:
        return
    own, asked = (with_string_ids(frame[["qid"]], f"run {system.name!r}")["qid"] for frame in (source.df, topics))
    if not own.isin(set(asked)).any():
        raise InputError(
            f"run {system.name!r}: none of its qids (e.g. {own.iloc[0]!r}) is among the topics (e.g. {asked.iloc[0]!r}); "
            f"give the dataset and the split from which the run was made"
        )


class Asked:
    """A view of a collection with other topics and judgements; everything else comes from the collection."""

    def __init__(self, dataset: Any, topics: pd.DataFrame, qrels: pd.DataFrame):
        """
        Args:
            dataset: The collection.
            topics: What ``get_topics()`` returns.
            qrels: What ``get_qrels()`` returns.
        """
        self._dataset, self._topics, self._qrels = dataset, topics, qrels

    def __getattr__(self, name: str) -> Any:
        """The collection's attribute of this name."""
        return getattr(self._dataset, name)

    def get_topics(self, *variant: Any) -> pd.DataFrame:
        """The topics; for a named variant, those of the collection."""
        return self._dataset.get_topics(*variant) if variant else self._topics

    def get_qrels(self, *variant: Any) -> pd.DataFrame:
        """The judgements; for a named variant, those of the collection."""
        return self._dataset.get_qrels(*variant) if variant else self._qrels


@dataclass(frozen=True, eq=False)
class _Retrieved:
    """What a retriever returned.

    Attributes:
        pipeline: The retriever, with the stages before the ranker.
        depth: The rank up to which the lists are complete; None for everything that the retriever returns.
        frame: The results, sorted by rank.
        asked: The number of queries.
        unanswered: qid to the reason why the query has no results.
        cut: The results above a depth, by depth.
    """

    pipeline: pt.Transformer
    depth: int | None
    frame: pd.DataFrame
    asked: int
    unanswered: dict[str, str]
    cut: dict[int, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Whole:
    """A system's results.

    Attributes:
        results: The results, list by list.
        lists: Where the rows of each query are.
    """

    results: pd.DataFrame
    lists: QueryRows

    def frame(self, candidates: pd.DataFrame, depth: int | None = None, qids: Iterable[str] | None = None) -> pd.DataFrame:
        """The results, or the first ``depth`` of each list, of all queries or some of them."""
        if depth is None and qids is None:
            return self.results
        return self.results.take(self.lists.of(qids, depth)[0]).reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class _Moved:
    """Results that are candidates in a new order, with new scores; a large system's are stored in this form.

    Attributes:
        rows: The candidate of each row.
        scores: The scores of the rows.
        lists: Where the rows of each query are.
        columns: The columns, in their order.
    """

    rows: np.ndarray
    scores: np.ndarray
    lists: QueryRows
    columns: list[str]

    @classmethod
    def of(cls, results: pd.DataFrame, candidates: pd.DataFrame) -> _Moved | None:
        """Ranked results in this form; None if they are not a reordering of candidates."""
        if set(results.columns) != {*candidates.columns, "score", "rank"}:
            return None
        given, found = pair_numbers(candidates, results)
        order = np.argsort(given)
        places = order[np.minimum(np.searchsorted(given[order], found), len(given) - 1)]
        if (given[places] != found).any():
            return None
        moved = cls(places.astype(np.int32), results["score"].to_numpy(), QueryRows(results["qid"]), list(results.columns))
        return moved if moved.frame(candidates).equals(results) else None

    @classmethod
    def joined(cls, parts: Sequence[_Moved]) -> _Moved:
        """The results of parts of the queries, which follow each other."""
        rows, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "scores"))
        return cls(rows, scores, QueryRows.joined([part.lists for part in parts]), parts[0].columns)

    def frame(self, candidates: pd.DataFrame, depth: int | None = None, qids: Iterable[str] | None = None) -> pd.DataFrame:
        """The results, or the first ``depth`` of each list, of all queries or some of them."""
        at, ranks = self.lists.of(qids, depth)
        rows = candidates.drop(columns=["score", "rank"], errors="ignore").take(self.rows[at]).reset_index(drop=True)
        return rows.assign(score=self.scores[at], rank=ranks)[self.columns]


def _in_order(parts: Sequence[pd.DataFrame | _Moved], candidates: pd.DataFrame) -> _Whole | _Moved:
    """Ranked results, in one part or several parts of whole queries, which follow each other like their candidates."""
    if all(isinstance(part, _Moved) for part in parts):
        return _Moved.joined(cast(Sequence[_Moved], parts))
    frames = [part.frame(candidates) if isinstance(part, _Moved) else part for part in parts]
    whole = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    return _Whole(whole, QueryRows(whole["qid"]))


def _sharing_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame in which rows of the same query or document share one text object, to save memory."""
    texts = [c for c in frame.columns if c not in ("qid", "docno") and isinstance(frame[c].dtype, pd.StringDtype)]
    shared = {}
    for column in texts:
        codes, values = pd.factorize(frame[column], use_na_sentinel=False)
        shared[column] = shared_texts(values, codes, frame.index)
    return frame.assign(**shared) if shared else frame


def _checked(found: pd.DataFrame, system: System) -> pd.DataFrame:
    """A system's retrieved run, checked by :func:`check_run`; PyTerrier's ``|`` and ``&`` return no scores.

    The former sorts documents by docno, an order that cannot be cut at a depth or compared with a ranker's.
    """
    if "docno" in found.columns and "score" not in found.columns:
        kind = "results" if system.ranker is None else "candidates"
        raise InputError(
            f"run {system.name!r}: its {kind} have no column 'score', which is needed to order them and cut them at a depth; "
            f"PyTerrier's | and & drop scores: add scores afterwards, e.g. (a | b) >> bm25 or (a | b) >> "
            f"pt.apply.doc_score(lambda row: 0.0); a + b has scores, but leaves docid and query empty where only b returned a "
            f"document, so it is not for pipelines with index.text_loader() or a ranker"
        )
    return check_run(found, system.name)


def _without_topics_text(frame: pd.DataFrame, topics: pd.DataFrame) -> pd.DataFrame:
    """Candidates without a column ``text`` that the retriever carried along from the topics: it is no document's text."""
    if "text" not in frame.columns or "text" not in topics.columns:
        return frame
    own = frame["qid"].map(topics.drop_duplicates("qid").set_index("qid")["text"])
    return frame.drop(columns="text") if (frame["text"] == own).all() else frame


@dataclass(eq=False)
class Context:
    """What the biases of one audit share: systems, collection, and their results, which are computed only once.

    Retrieval and scoring run when they are first needed. If they raise an error, it is kept too, and they do not run again.

    Attributes:
        systems: The systems to examine.
        dataset: The collection.
        topics: ``qid``, ``query`` and further columns of the topics.
        qrels: ``qid``, ``docno``, ``label``.
        depth: The number of candidates per query that a ranker is given.
        seed: Seed of all random choices.
        draws: The number of random variants of each text; None leaves it to the bias.
        verbose: Whether to show progress.
        sharing: All systems that may need the same retrieval later; None means ``systems``.
        remarks: What biases tell the reader of the report besides their findings, one sentence each, which begins with the
            system's name and a colon.

    When not to use it: outside a bias. An audit creates it and passes it to :meth:`~pyterrier_debias.Bias.examine`.

    Example:
        ::

            class Length(Bias):
                def examine(self, context):
                    for system in context.systems:
                        ...
    """

    systems: Sequence[System]
    dataset: Any
    topics: pd.DataFrame
    qrels: pd.DataFrame
    depth: int = 100
    seed: int = 0
    draws: int | None = None
    verbose: bool = False
    sharing: Sequence[System] | None = None
    remarks: list[str] = field(default_factory=list, repr=False)
    _retrieved: list[_Retrieved] = field(default_factory=list, repr=False)
    _ranked: dict[tuple[str, int], tuple[Any, Any, _Whole | _Moved]] = field(default_factory=dict, repr=False)
    _raised: dict[str, BrokenSystemError] = field(default_factory=dict, repr=False)
    _made: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Remember all systems, because a copy may examine only some of them."""
        self.sharing = self.systems if self.sharing is None else self.sharing

    @property
    def asked(self) -> Asked:
        """The collection with the topics and judgements of the audit in place of its own, as biases see it."""
        return Asked(self.dataset, self.topics, self.qrels)

    def candidates(self, system: System) -> pd.DataFrame:
        """The system's candidates, cut at ``depth`` if a ranker follows; computed once for each retriever.

        If a retriever raises an error, it runs again without the queries that cause it; :attr:`notes` names them.

        Args:
            system: One of the systems.

        Returns:
            Result frame with the ``query``, and ``text`` if a ranker follows, sorted by rank.

        Raises:
            UnfitSystemError: If nothing is retrieved, a pair is repeated, a score is NaN, or no qid is judged.
            BrokenSystemError: If the retriever raised an error for every query.
        """
        depth = None if system.ranker is None else self.depth
        known = self._known(system, depth)
        if known is None:
            if system.name in self._raised:
                raise self._raised[system.name]
            with self._refused(system):
                known = self._retrieve(system, depth)
            self._retrieved.append(known)
        if depth is None:
            return known.frame
        if depth not in known.cut:
            above = known.frame["rank"] < depth
            known.cut[depth] = known.frame if above.all() else known.frame[above].reset_index(drop=True)
        return known.cut[depth]

    def first_alike(self, system: System) -> System:
        """The first system with the same candidates, so that what is computed from them is computed once for all.

        Args:
            system: One of the systems.

        Returns:
            The system, or an earlier one with the same retriever, and with a ranker if this one has one.
        """
        cut = system.ranker is None
        alike = (one for one in self.systems if (one.ranker is None) == cut and same_pipeline(one.candidates, system.candidates))
        return next(alike, system)

    def _known(self, system: System, depth: int | None) -> _Retrieved | None:
        return next(
            (
                known for known in self._retrieved
                if same_pipeline(known.pipeline, system.candidates) and (known.depth is None or known.depth == depth)
            ),
            None,
        )

    def _retrieve(self, system: System, depth: int | None) -> _Retrieved:
        """Run a system's retriever, for no more documents than any system that shares the retrieval needs."""
        about = f"run {system.name!r}"
        _check_topics_of_run(system, self.topics)
        rest = [one.ranker is None for one in self.sharing or () if same_pipeline(one.candidates, system.candidates)]
        shallow = None if depth is None or any(rest) or self._property_notes else asking_for(system.candidates, depth + 1)
        told: dict[str, str] = {}

        def asked(pipeline: pt.Transformer, topics: pd.DataFrame) -> pd.DataFrame:
            found, failed = self._asked(system, lambda inp: answered(pipeline, inp), topics)
            told.update(failed)
            return found

        if shallow is None or depth is None:
            frame, depth = asked(system.candidates, self.topics), None
        else:
            frame = _checked(asked(shallow, self.topics), system)
            # Where the last two have one score, it is not the retriever who decides which of equal ones is cut off.
            tied = tied_at(frame, depth)
            if tied:
                more = asked(system.candidates, self.topics[self.topics["qid"].isin(tied)].reset_index(drop=True))
                order = {qid: number for number, qid in enumerate(frame["qid"].drop_duplicates())}
                frame = pd.concat([frame[~frame["qid"].isin(tied)], with_string_ids(more, about)], ignore_index=True)
                frame = frame.sort_values("qid", key=lambda qids: qids.map(order), kind="stable", ignore_index=True)
        frame = _without_topics_text(_sharing_texts(ranked(_checked(frame, system), about)), self.topics)
        check_overlap(frame, self.qrels, about)
        return _Retrieved(system.candidates, depth, frame, len(self.topics), unanswered_queries(self.topics, frame, told))

    @property
    def _property_notes(self) -> list[str]:
        pipelines = {s.name: s.candidates if s.ranker is None else s.candidates >> s.ranker for s in self.sharing or ()}
        return property_notes(pipelines)

    @property
    def notes(self) -> list[str]:
        """Remarks about the systems, as far as these have run: one sentence each."""
        own = (note for system in self.systems for note in self._notes_on(system))
        return list(dict.fromkeys([*self._property_notes, *own, *self.remarks]))

    def unanswered(self, system: System) -> set[str] | None:
        """The qids of topics for which a system has no results, as far as it has run; None if it has not."""
        known = self._known(system, None if system.ranker is None else self.depth)
        return None if known is None else {*known.unanswered, *self._left_out(system, known)}

    def _left_out(self, system: System, known: _Retrieved) -> dict[str, str]:
        """The queries for which a system's ranker returned nothing; none if it has not run."""
        order = self._ranked.get((system.name, self.depth))
        if order is None or order[1] is not system.ranker:
            return {}
        return unanswered_queries(known.frame, self.results(system, depth=1), {})

    def _notes_on(self, system: System) -> list[str]:
        known = self._known(system, None if system.ranker is None else self.depth)
        if known is None:
            return []
        notes = unanswered_notes(system.name, known.asked, known.unanswered)
        left_out = self._left_out(system, known)
        notes += unanswered_notes(system.name, known.asked, left_out, nothing="its ranker returned no document")
        if system.ranker is not None and "query" in known.frame.columns:
            first = known.frame.drop_duplicates("qid")
            other = first[first["query"] != first["qid"].map(dict(zip(self.topics["qid"], self.topics["query"])))]
            written = [query for query in other["query"] if is_expression(query)]
            if written:
                shown = shortened(written[0], 60)
                notes.append(
                    f"{system.name}: its ranker reads a query rewritten for Terrier instead of the original for {len(written)} "
                    f"of {len(first)} queries, such as {shown!r}; put pt.rewrite.reset() after the retriever, once for each "
                    f"rewriting."
                )
        return notes

    def results(self, system: System, *, depth: int | None = None, qids: Iterable[str] | None = None) -> pd.DataFrame:
        """The system's results for the topics: the candidates in its ranker's order, or as they were retrieved.

        Args:
            system: One of the systems.
            depth: How many documents of each query are needed; None for all. With a depth, or for some of the queries, only the
                rows that are needed are built, which saves memory where lists are long.
            qids: Only the results of these queries (distinct, as strings), in this order; None for all queries.

        Returns:
            Result frame sorted by rank.

        Raises:
            UnfitSystemError: See :meth:`candidates`.
            BrokenSystemError: If the retriever or the ranker raised an error.
        """
        order, candidates = self._order(system)
        return order.frame(candidates, depth, qids)

    def results_with_ties_drawn(
        self, system: System, *, depth: int | None = None, qids: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """As :meth:`results` to the audit's depth, with the tied documents of each query in a random order (that of its seed).

        For figures about which documents come first, of whatever relevance: see
        :func:`~pyterrier_debias.core.frames.with_ties_drawn`. Measures of effectiveness follow trec_eval instead.

        Args:
            system: See :meth:`results`.
            depth: See :meth:`results`.
            qids: See :meth:`results`.

        Returns:
            Result frame sorted by rank.

        Raises:
            UnfitSystemError: See :meth:`results`.
            BrokenSystemError: See :meth:`results`.
        """
        if depth is None:
            return self._with_ties_drawn(system, qids)
        # One more, which may be tied with the last.
        top = self.results(system, depth=depth + 1, qids=qids)
        tied = top["qid"][tied_with_the_one_before(top)].unique()
        if len(tied):
            drawn = self._with_ties_drawn(system, tied)
            both = pd.concat([top[~top["qid"].isin(tied)], drawn], ignore_index=True)
            places = pd.Index(top["qid"].unique()).get_indexer(both["qid"])
            top = both.iloc[np.argsort(places, kind="stable")]
        return top[top["rank"] < depth].reset_index(drop=True)

    def _with_ties_drawn(self, system: System, qids: Iterable[str] | None) -> pd.DataFrame:
        results = self.results(system, depth=self.depth, qids=qids)
        return with_ties_drawn(results, self.seed)

    def longest_list(self, system: System) -> int:
        """The number of documents in the longest list of a system's results.

        Args:
            system: One of the systems.

        Returns:
            The number, at least 1.

        Raises:
            UnfitSystemError: See :meth:`results`.
            BrokenSystemError: See :meth:`results`.
        """
        return self._order(system)[0].lists.longest

    def _order(self, system: System) -> tuple[_Whole | _Moved, pd.DataFrame]:
        """The order of a system's results, and the candidates that it is an order of."""
        frame, key = self.candidates(system), (system.name, self.depth)
        known = self._ranked.get(key)
        # A copy of this context may have another system of this name.
        if known is None or known[0] is not system.candidates or known[1] is not system.ranker:
            parts = [frame] if system.ranker is None else self._reranked(system, system.ranker, frame)
            known = self._ranked[key] = system.candidates, system.ranker, _in_order(parts, frame)
        return known[2], frame

    def _reranked(self, system: System, ranker: pt.Transformer, candidates: pd.DataFrame) -> list[pd.DataFrame | _Moved]:
        """A ranker's results, computed in parts, so that memory does not grow with the number of lists."""
        ask, few, before = _through(system, ranker), len(candidates) <= ROWS, 0
        found: list[pd.DataFrame | _Moved] = []
        for part in in_parts(candidates):
            results = self._asked(system, ask, part)
            with self._refused(system):
                if few or not isinstance(results, pd.DataFrame) or len(results):
                    results = ranked(check_run(results, system.name), f"ranker of {system.name!r}")
                    moved = None if few else _Moved.of(results, part)
                    found.append(results if moved is None else replace(moved, rows=moved.rows + np.int32(before)))
            before += len(part)
        if not found:  # every part was empty, as the last one
            with self._refused(system):
                check_run(results, system.name)
        return found

    def place(self, system: str) -> int:
        """The number of a system among all systems of the audit; it gives the system the same colour in all pictures.

        Args:
            system: The name of one of the systems.

        Returns:
            A number from 0.
        """
        return self.names.index(system)

    @property
    def names(self) -> list[str]:
        """The names of all systems of the audit, including those that a bias leaves out."""
        return [one.name for one in self.sharing or self.systems]

    def once(self, what: str, system: System | None, make: Callable[[], Any]) -> Any:
        """Compute something from one system or all systems, once under these settings, and return it on later calls.

        The findings and the figures of a bias share it. If one system turns out to be unfit, the results of others are kept.

        Args:
            what: A name for what is computed.
            system: One of the systems; None for all of them together.
            make: The function that computes it.

        Returns:
            What ``make`` returned, now or earlier.

        Raises:
            BrokenSystemError: If a part of the system raised an error.
            UnfitSystemError: If a probe refuses the system.
        """
        # A copy of this audit with other settings or systems shares what was made.
        of = tuple(one.name for one in self.systems) if system is None else system.name
        given = (self.dataset, self.topics, self.qrels)
        key = (what, of, self.depth, self.seed, self.draws, *map(id, given))
        if key not in self._made:
            with nullcontext() if system is None else refused_alone(system):
                self._made[key] = make(), given  # what is kept alive keeps its id
        return self._made[key][0]

    @contextmanager
    def _refused(self, system: System) -> Iterator[None]:
        """Attribute errors about one system's results to that system, which does not run again."""
        try:
            with refused_alone(system):
                yield
        except UnfitSystemError as error:
            self._raised[system.name] = error
            raise

    def _asked(self, system: System, asked: Callable[[pd.DataFrame], Any], inp: pd.DataFrame) -> Any:
        """The output of a part of a system for a frame. A system that has raised an error does not run again."""
        if system.name in self._raised:
            raise self._raised[system.name]
        try:
            return _told(system.name, asked, inp)
        except BrokenSystemError as error:
            self._raised[system.name] = error
            raise


def said_together(notes: Sequence[str], systems: Sequence[System]) -> list[str]:
    """Merge notes: each appears once, and systems with the same note share it.

    Args:
        notes: Sentences; a sentence about a system begins with its name and a colon.
        systems: The systems.

    Returns:
        The sentences, in the order in which each first occurs.

    Example:
        >>> both = [System(name, pt.Transformer.identity()) for name in ("BM25", "DPH")]
        >>> said_together(["BM25: nothing was found.", "A note.", "DPH: nothing was found."], both)
        ['BM25, DPH: nothing was found.', 'A note.']
    """
    said: dict[str, list[str]] = {}
    for note in notes:
        name = next((system.name for system in systems if note.startswith(f"{system.name}: ")), "")
        names = said.setdefault(note.removeprefix(f"{name}: "), [])
        if name not in names:
            names.append(name)
    return [f"{', '.join(names)}: {text}" if any(names) else text for text, names in said.items()]


def named_where_it_raises(system: System) -> System:
    """A system whose errors name it, for a probe that runs its parts more often than an audit's context does.

    Args:
        system: Any system.

    Returns:
        The same system. Errors of its retriever, its ranker, its indexer and the retrievers that this makes become a
        :class:`BrokenSystemError`, except errors about their input. Retrievers leave out single queries that raise an error.
    """
    name = system.name

    def named(indexer: Indexer) -> Indexer:
        def indexed(documents: Iterable[dict[str, Any]]) -> pt.Transformer:
            return _Named(_told(name, indexer, documents), name, apart=True)

        return indexed

    ranker: pt.Transformer | None = None
    if system.ranker is not None:
        whole, cut = without_cutoff(system.ranker)
        ranker = _Named(whole, name, of=system)
        if cut is not None:  # stays visible to the probe
            ranker = ranker >> pt.apply.generic(lambda found: ranked(found, name)) % cut
    return replace(
        system,
        candidates=_Named(system.candidates, name, apart=True),
        ranker=ranker,
        indexer=None if system.indexer is None else named(system.indexer),
    )


def _through(system: System | None, ranker: pt.Transformer) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A ranker that first looks for scores in its memory, if it has one, and among stored scores."""
    ask: Callable[[pd.DataFrame], pd.DataFrame] = ranker
    if system is not None and system.memory is not None:
        ask = partial(system.memory.ask, ranker)
    return ask if system is None or system.kept is None else partial(system.kept.ask, ask)


class _Named(pt.Transformer):
    """A part of a system whose errors name the system; if ``apart``, queries that raise an error are left out."""

    def __init__(self, stage: pt.Transformer, system: str, apart: bool = False, of: System | None = None):
        self.stage, self.system, self.apart, self.of = stage, system, apart, of

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return self.answered(inp)[0]

    def answered(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
        """What :func:`pyterrier_debias.core.retrieval.answered` returns."""
        if self.apart:
            return _told(self.system, lambda topics: answered(self.stage, topics), inp)
        return _told(self.system, _through(self.of, self.stage), inp), {}


def _told(system: str, asked: Callable[[Any], Any], given: Any) -> Any:
    """The output of a part of a system; its errors name the system."""
    try:
        return asked(given)
    except pt.validate.InputValidationError as error:
        raise UnfitSystemError(system, lacking(error)) from error
    except (InputError, BrokenSystemError):
        raise
    except Exception as error:
        unranked = _without_rank(system, error)
        if unranked is not None:
            raise UnfitSystemError(system, str(unranked)) from error
        raise BrokenSystemError(system, one_line(error) + _where(error)) from error


def _without_rank(system: str, error: BaseException) -> InputError | None:
    """What is wrong with scores that PyTerrier could not rank (it raises an error about number types); None for other errors."""
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code is pt.model.add_ranks.__code__:
            found = at.tb_frame.f_locals["df"]
            try:
                check_scores(found, f"system {system!r}")
            except InputError as told:
                return told
        at = at.tb_next
    return None


def _where(error: BaseException) -> str:
    """Which stage of a pipeline an exception comes from, in words: the innermost that its traceback passes through."""
    passed = _raising(error)
    stages = [stage for one in passed if isinstance(one, pt.Compose) for stage in flatten(one)]
    found = next((one for one in reversed(passed) if any(one is stage for stage in stages)), None)
    return "" if found is None else f" (in its stage {stage_name_of(found)})"


def _raising(error: BaseException) -> list[pt.Transformer]:
    """The transformers that a traceback passes through, outer ones first."""
    at, found = error.__traceback__, []
    while at is not None:
        own = at.tb_frame.f_locals.get("self")
        if isinstance(own, pt.Transformer):
            found.append(own)
        at = at.tb_next
    return found
