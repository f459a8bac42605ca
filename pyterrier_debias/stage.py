"""What every public stage shares: options, equality, a readable form. Floor 0."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
import pyterrier as pt


def same_value(left: Any, right: Any) -> bool:
    """Compare two option values; frames and arrays by their content.

    Args:
        left: Any value.
        right: Any value.

    Returns:
        True where both are the same object, or have one type and equal content.
    """
    if left is right:
        return True
    if isinstance(left, (pd.DataFrame, pd.Series)):
        return type(left) is type(right) and left.equals(right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and np.array_equal(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        return len(left) == len(right) and all(same_value(a, b) for a, b in zip(left, right))
    return type(left) is type(right) and bool(left == right)


def _brief(value: Any) -> str:
    """A short form of an option value: frames and arrays by their shape, never by their content."""
    if isinstance(value, (pd.DataFrame, pd.Series, np.ndarray)):
        return f"<{type(value).__name__} {'x'.join(map(str, value.shape))}>"
    if isinstance(value, Mapping) and len(repr(value)) > 60:
        return f"<{type(value).__name__} of {len(value)}>"
    return repr(value)


class Stage(pt.Transformer):
    """A transformer that is equal to another one when their options are.

    A subclass assigns each ``__init__`` parameter to the attribute of the same name and does nothing else there;
    that is what ``pt.inspect``, ``repr``, equality and ``GridScan`` read. Two equal stages behind one prefix run
    once under ``pt.Experiment(plan='tree')``.

    A stage whose output depends on more than its options (a ranker on its weights) extends :meth:`identity`.
    """

    #: Options that never change what the stage returns.
    _NOT_IDENTITY: frozenset[str] = frozenset({"verbose"})

    def options(self) -> dict[str, Any]:
        """The constructor's parameters and their present values, in the order of the signature."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def identity(self) -> dict[str, Any]:
        """What two stages must share to be equal: by default every option that can change the result."""
        return {name: value for name, value in self.options().items() if name not in self._NOT_IDENTITY}

    def apply_attributes(self, **attributes: Any) -> Self:
        """The same stage with other options, for ``pt.inspect.transformer_apply_attributes``; what was fitted stays.

        Args:
            attributes: Options by name.

        Returns:
            A copy that shares what is not an option.

        Raises:
            pt.inspect.InspectError: For an option that there is not.
        """
        unknown = attributes.keys() - self.options().keys()
        if unknown:
            raise pt.inspect.InspectError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        changed = copy.copy(self)
        for name, value in attributes.items():
            setattr(changed, name, value)
        return changed

    def __eq__(self, other: object) -> bool:
        """Equal type and equal identity."""
        if type(other) is not type(self):
            return NotImplemented
        return self is other or same_value(self.identity(), other.identity())

    def __hash__(self) -> int:
        """Hash of the type alone: options may be tuned while the stage is a key of a dictionary."""
        return hash(type(self))

    def __repr__(self) -> str:
        """The constructor call, with the options that differ from their defaults."""
        parameters = inspect.signature(type(self).__init__).parameters
        parts = []
        for name, value in self.options().items():
            parameter = parameters[name]
            if name == "verbose" or same_value(value, parameter.default):
                continue
            keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            parts.append(f"{name}={_brief(value)}" if keyword else _brief(value))
        return f"{type(self).__name__}({', '.join(parts)})"


def flatten(pipeline: pt.Transformer) -> list[pt.Transformer]:
    """The stages of a pipeline in order; a single stage is a pipeline of one.

    Args:
        pipeline: A transformer, possibly composed with ``>>``.

    Returns:
        The stages that ``>>`` joined, with nested compositions opened.
    """
    if isinstance(pipeline, pt.Compose):
        return [stage for part in pipeline for stage in flatten(part)]
    return [pipeline]


def chain(stages: list[pt.Transformer]) -> pt.Transformer | None:
    """Join stages with ``>>``; None for none.

    Args:
        stages: The stages in order.

    Returns:
        The composed pipeline, the stage itself when there is one, or None.
    """
    pipeline = None
    for stage in stages:
        pipeline = stage if pipeline is None else pipeline >> stage
    return pipeline
