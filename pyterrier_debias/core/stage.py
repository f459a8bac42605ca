"""The base class of all public stages: options, equality, ``repr``."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, overload

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.columns import tells_columns
from pyterrier_debias.core.frames import frame_digest, reads_frames, stage_name
from pyterrier_debias.core.indexing import GuardedIndexer
from pyterrier_debias.core.options import check_options
from pyterrier_debias.core.pieces import refuses_pieces
from pyterrier_debias.core.text import in_one_order


def same_value(left: Any, right: Any) -> bool:
    """Compare two option values; frames and arrays by their content.

    Args:
        left: Any value.
        right: Any value.

    Returns:
        True if both are the same object, or have the same type and equal content; for pipelines see :func:`same_pipeline`.
    """
    if left is right:
        return True
    if isinstance(left, (pd.DataFrame, pd.Series)):
        return type(left) is type(right) and left.equals(right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and np.array_equal(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        # In order: of a mapping from groups to words, the order decides a contrast's sign.
        return list(left) == list(right) and all(same_value(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        return len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right))
    if isinstance(left, pt.Transformer) or isinstance(right, pt.Transformer):
        return same_pipeline(left, right)
    return type(left) is type(right) and bool(left == right)


def described(value: Any) -> str:
    """A text that identifies an option value: the same in every process, and different for a different value.

    Args:
        value: Any value.

    Returns:
        For frames and arrays a hash of their content, for functions their names (see
        :func:`~pyterrier_debias.core.cache_key.function_name`), for objects their ``repr``; for objects without
        one, or with an address in it, their class and attributes.

    Example:
        >>> from functools import partial, wraps
        >>> described(partial(sorted, reverse=True))
        'partial(builtins.sorted, reverse=True)'
    """
    return _text(value, exact=True)


def brief(value: Any) -> str:
    """A short form of :func:`described` for ``repr``: frames and arrays by their shape, never by their content.

    Args:
        value: Any value.

    Returns:
        The text, without an address.
    """
    return _text(value, exact=False)


def _text(value: Any, exact: bool, within: tuple[int, ...] = ()) -> str:
    """The text of a value that lies in others (by their ids)."""
    if isinstance(value, (pd.DataFrame, pd.Series, np.ndarray)):
        content = f" {frame_digest(value)}" if exact else ""
        return f"<{type(value).__name__} {'x'.join(map(str, value.shape))}{content}>"
    if id(value) in within:
        return "..."

    def text(one: Any) -> str:
        return _text(one, exact, (*within, id(value)))

    if isinstance(value, partial):
        keywords = [f"{name}={text(one)}" for name, one in value.keywords.items()]
        return f"partial({', '.join([text(value.func), *map(text, value.args), *keywords])})"
    if inspect.ismethod(value):
        return f"{text(value.__self__)}.{value.__name__}"
    if callable(value) and hasattr(value, "__qualname__"):
        from pyterrier_debias.core.cache_key import function_name  # which needs this module

        module = getattr(value, "__module__", None)
        return f"{f'{module}.' * bool(module)}{function_name(value)}" if exact else value.__qualname__
    if isinstance(value, Mapping):
        whole = f"{{{', '.join(f'{text(name)}: {text(one)}' for name, one in value.items())}}}"
        whole = whole if type(value) is dict else f"{type(value).__name__}({whole})"
        return whole if exact or len(whole) <= 60 else f"<{type(value).__name__} of {len(value)}>"
    if type(value) in (list, tuple, set, frozenset) and len(value):
        parts = [text(one) for one in value]
        brackets: dict[type, Sequence[str]] = {
            list: "[]", tuple: ("(", ",)" if len(parts) == 1 else ")"), set: "{}", frozenset: ("frozenset({", "})"),
        }  # fmt: skip
        left, right = brackets[type(value)]
        return f"{left}{', '.join(sorted(parts) if isinstance(value, (set, frozenset)) else parts)}{right}"
    if isinstance(value, str):
        return repr(value)
    if type(value).__repr__ is not object.__repr__:
        own = repr(value)
        if " at 0x" not in own:
            return in_one_order(own)
    name = f"{type(value).__module__}.{type(value).__qualname__}" if exact else type(value).__qualname__
    return f"{name}({', '.join(f'{key}={text(one)}' for key, one in _attributes(value).items())})"


def _attributes(value: Any) -> dict[str, Any]:
    """What an object consists of, as its pickle would hold it."""
    state = value.__getstate__()
    own, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if not all(part is None or isinstance(part, dict) for part in (own, slots)):
        return {"state": state}
    return {**(own or {}), **(slots or {})}


def same_pipeline(left: Any, right: Any) -> bool:
    """Whether two pipelines certainly do the same, so that the results of one can be used for the other.

    ``==`` of other packages' stages is not used: it ignores the tokeniser and the weighting function of Terrier's retrievers, and
    all retrievers over indexes in memory are equal.

    Args:
        left: A pipeline.
        right: A pipeline.

    Returns:
        Whether they consist of the same stages: the same objects, equal stages of this package, or PyTerrier's operators over
        these.

    Example:
        >>> first = pt.apply.generic(lambda frame: frame)
        >>> same_pipeline(first % 2, first % 2), same_pipeline(first, pt.apply.generic(lambda frame: frame))
        (True, False)
    """
    if left is right:
        return True
    if isinstance(left, pt.Compose) and isinstance(right, pt.Compose):
        stages = flatten(left), flatten(right)
        return len(stages[0]) == len(stages[1]) and all(map(same_pipeline, *stages))
    if type(left) is not type(right):
        return False
    if isinstance(left, Stage):
        return left == right
    if type(left).__module__ != pt.RankCutoff.__module__:
        return False
    return vars(left).keys() == vars(right).keys() and all(same_value(vars(left)[name], vars(right)[name]) for name in vars(left))


class Stage(pt.Transformer):
    """Base class of the stages of this package: a transformer that equals another one if their options are equal.

    The ``__init__`` of a subclass only assigns each parameter to the attribute of the same name; ``pt.inspect``, ``repr``,
    equality and ``GridScan`` read these attributes. Under ``pt.Experiment(plan='tree')``, two equal stages after the same prefix
    run once.

    A stage whose output depends on more than its options (a ranker's depends on its weights) extends :meth:`identity`.

    ``transform`` of every subclass gets the frame that :func:`~pyterrier_debias.core.frames.with_string_ids` returns, or raises
    its errors.
    """

    #: Options that never change what the stage returns.
    _NOT_IDENTITY: frozenset[str] = frozenset({"verbose"})

    #: What a frame may be cut into, so that the results of the pieces are those of the frame: ``'rows'``; ``'scores'``: rows, but
    #: for the ranks, which are of whole lists; ``'queries'``, each with all of its rows; ``'frame'``: nothing.
    pieces: ClassVar[str] = "queries"

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Refuse options that do not exist, and suggest the one that was probably meant."""
        check_options(cls.__name__, cls.__init__, options, positional=len(args))
        return super().__new__(cls, *args, **options)

    def __init_subclass__(cls, **options: Any) -> None:
        """Normalise frames before they reach the ``transform`` of a subclass, the only method that pipelines call."""
        super().__init_subclass__(**options)
        if "transform" in vars(cls):
            cls.transform = refuses_pieces(reads_frames(cls.transform))  # type: ignore[method-assign]
        if "transform_iter" in vars(cls):
            cls.transform_iter = tells_columns(cls.transform_iter, stage_name)  # type: ignore[method-assign]

    if TYPE_CHECKING:

        @overload
        def __call__(self, inp: list[dict[str, Any]]) -> list[dict[str, Any]]: ...

        @overload
        def __call__(self, inp: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]: ...

        @overload
        def __call__(self, inp: pd.DataFrame) -> pd.DataFrame: ...

        def __call__(self, inp: Any) -> Any:
            """What :meth:`transform` returns, in the form of the input."""

    def options(self) -> dict[str, Any]:
        """The constructor's parameters and their current values, in the order of the signature."""
        if type(self).__init__ is object.__init__:
            return {}
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def changes(self) -> frozenset[str]:
        """The columns whose texts the stage replaces without changing identifiers.

        A cache after this stage must have these columns in its key; see :mod:`pyterrier_debias.core.caches`.
        """
        return frozenset()

    def changes_within(self) -> frozenset[str]:
        """The text columns that the stage changes for the pipelines that it calls, but not in its own output."""
        return frozenset()

    def by_docno(self) -> tuple[str, str] | None:
        """What the stage draws for each docno, and what to use instead in a ranker that is probed, in words.

        None if its output does not depend on docnos. Probes rename documents, so they cannot examine a ranker with such a stage.
        """
        return None

    # The name was PyTerrier's before: there it makes a stage that returns its input, and is called on the class.
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        """The values that must agree for two stages to be equal: by default, every option that can change the result."""
        return {name: value for name, value in self.options().items() if name not in self._NOT_IDENTITY}

    def cache_key(self) -> dict[str, Any]:
        """The cache key of the stage: its options, and its fitted state as far as equality depends on it."""
        options = self.options()
        return {**options, **{name: value for name, value in self.identity().items() if name not in options}}

    def apply_attributes(self, **attributes: Any) -> Self:
        """The same stage with other options, for ``pt.inspect.transformer_apply_attributes``; fitted state is kept.

        Args:
            attributes: Options by name.

        Returns:
            A copy that shares everything that is not an option.

        Raises:
            pt.inspect.InspectError: If an option is unknown.
        """
        unknown = attributes.keys() - self.options().keys()
        if unknown:
            raise pt.inspect.InspectError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        changed = copy.copy(self)
        for name, value in attributes.items():
            setattr(changed, name, value)
        return changed

    def __rshift__(self, right: Any) -> Pipeline:
        """The pipeline of both. If it ends in an indexer, errors in its stream of documents are raised."""
        return Pipeline(self, right)

    def __eq__(self, other: object) -> bool:
        """Equal type and equal identity."""
        if type(other) is not type(self):
            return NotImplemented
        return self is other or same_value(self.identity(), other.identity())

    def __hash__(self) -> int:
        """Hash of the type only, because options may be tuned while the stage is a key of a dictionary."""
        return hash(type(self))

    def __repr__(self) -> str:
        """The constructor call, with the options that differ from their defaults."""
        return self._call({name: brief(value) for name, value in self.changed_options().items()})

    def changed_options(self) -> dict[str, Any]:
        """The options that differ from their defaults, without ``verbose``."""
        parameters = inspect.signature(type(self).__init__).parameters
        given = {name: value for name, value in self.options().items() if not same_value(value, parameters[name].default)}
        return {name: value for name, value in given.items() if name != "verbose"}

    def _call(self, texts: dict[str, str]) -> str:
        """The constructor call with these options, whose values are given as texts."""
        parameters = inspect.signature(type(self).__init__).parameters
        keywords = {name for name in texts if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY}
        parts = [f"{name}={text}" if name in keywords else text for name, text in texts.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


class RowWise(Stage):
    """A stage that treats each row separately: what it adds to a row, or whether it keeps it, depends on no other row.

    A cut-off after it can therefore move before it, up to the retriever, with the same result. A reranker is not such a stage,
    because it changes ranks.
    """

    pieces: ClassVar[str] = "rows"

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Apply the cut-off first; see the class."""
        return pt.RankCutoff(k) >> self


class Pipeline(pt.Compose):
    """Stages joined by ``>>`` that begin with a stage of this package.

    A cache that identifies documents by docno is refused after a stage that changes texts; see
    :mod:`pyterrier_debias.core.caches`. An indexer at the end gets a guarded stream of documents:
    ``RotatePassages() >> pt.IterDictIndexer(...)`` rotates in Terrier's thread, where an error would be lost; see
    :func:`pyterrier_debias.core.indexing.handed_over`.
    """

    def __init__(self, *transformers: pt.Transformer):
        """
        Args:
            transformers: The stages; nested compositions are flattened.

        Raises:
            InputError: If there is such a cache.
        """
        from pyterrier_debias.core.caches import check_caches  # it walks pipelines of stages

        super().__init__(*(stage for part in transformers for stage in flatten(part)))
        check_caches(self)

    def __rshift__(self, right: Any) -> Pipeline:
        """The longer pipeline."""
        return Pipeline(self, right)

    def index(self, iter: Any, batch_size: int | None = None) -> Any:
        """Index documents; see ``pt.Compose``.

        Args:
            iter: The documents.
            batch_size: The number of documents that are transformed at a time.

        Returns:
            What the indexer returns.

        Raises:
            InputError: If a stage cannot process a document, or the indexer did not read the stream to its end.
        """
        *before, last = self
        return pt.Compose(*before, GuardedIndexer(cast(pt.Indexer, last))).index(iter, batch_size)


def named_parts(stage: pt.Transformer) -> dict[str, Any]:
    """The pipelines that a stage calls, such as the sides of a sum or the pipeline of a cache, by the names of its options.

    Args:
        stage: Any stage.

    Returns:
        For each such option, a pipeline or several; empty if nothing is known about them.
    """
    try:
        return pt.inspect.subtransformers(stage)
    except Exception:  # stages that cannot be inspected differ in what they raise
        return {}


def parts_of(stage: pt.Transformer) -> list[pt.Transformer]:
    """The pipelines that a stage calls, see :func:`named_parts`.

    Args:
        stage: Any stage.

    Returns:
        The pipelines.

    Example:
        >>> first = pt.Transformer.identity()
        >>> len(parts_of(first + first)), parts_of(first)
        (2, [])
    """
    return [part for parts in named_parts(stage).values() for part in (parts if isinstance(parts, (list, tuple)) else [parts])]


def flatten(pipeline: pt.Transformer) -> list[pt.Transformer]:
    """The stages of a pipeline in order; a single stage is a pipeline of one.

    Args:
        pipeline: A transformer, possibly composed with ``>>``.

    Returns:
        The stages that ``>>`` joined, with nested compositions flattened.
    """
    if isinstance(pipeline, pt.Compose):
        return [stage for part in pipeline for stage in flatten(part)]
    return [pipeline]


def all_stages(pipeline: pt.Transformer) -> Iterator[pt.Transformer]:
    """The stages of a pipeline, and of the pipelines that they call.

    Args:
        pipeline: Any pipeline.

    Yields:
        Each stage, followed by the stages that it calls.
    """
    for stage in flatten(pipeline):
        yield stage
        for part in parts_of(stage):
            yield from all_stages(part)


def identities(pipeline: pt.Transformer) -> list[Any]:
    """The identities of all stages of a pipeline; compare them with :func:`same_value` to see whether it has changed.

    Args:
        pipeline: Any pipeline.

    Returns:
        The identity of each of :func:`all_stages`; for a stage of another package the stage itself, whose changes go unnoticed.
    """
    return [stage.identity() if isinstance(stage, Stage) else stage for stage in all_stages(pipeline)]


def scores_rows(pipeline: pt.Transformer) -> bool:
    """Whether the score that a pipeline gives a row depends on no other row, as far as that can be known.

    Args:
        pipeline: A ranker or a pipeline of stages.

    Returns:
        True for rankers of this package that score pairs, for ``pt.apply.doc_score``, and for these after stages that treat each
        row separately. False for all others: rankers of other packages may look at whole lists.

    Example:
        >>> from pyterrier_debias import CrossEncoder, RotatePassages
        >>> ranker = CrossEncoder("hub/model")
        >>> scores_rows(RotatePassages() >> ranker), scores_rows(ranker % 2 >> ranker)
        (True, False)
    """

    def alone(stage: pt.Transformer) -> bool:
        theirs = type(stage).__name__ == "ApplyDocumentScoringTransformer"
        return (theirs or getattr(stage, "pieces", None) in ("rows", "scores")) and all(map(scores_rows, parts_of(stage)))

    *before, last = flatten(pipeline)
    return alone(last) and all(isinstance(stage, RowWise) and alone(stage) for stage in before)


def chain(stages: list[pt.Transformer]) -> pt.Transformer | None:
    """Join stages with ``>>``; None for none.

    Args:
        stages: The stages in order.

    Returns:
        The composed pipeline, the stage itself if there is only one, or None.
    """
    return join(*stages) if stages else None


def join(first: pt.Transformer, *others: pt.Transformer) -> pt.Transformer:
    """Join one or more stages with ``>>``.

    Args:
        first: The first stage.
        others: The others in order.

    Returns:
        The composed pipeline, or the stage itself if there is only one.
    """
    pipeline = first
    for stage in others:
        pipeline = pipeline >> stage
    return pipeline
