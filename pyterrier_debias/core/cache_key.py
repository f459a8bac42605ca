"""Cache keys of finished trainings and of biases: stages and their options as JSON-compatible values."""

from __future__ import annotations

import dis
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.fingerprints import weights_fingerprint
from pyterrier_debias.core.frames import frame_digest
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.terrier import is_retriever, retriever_key

#: Options that do not change results.
_UNSEEN = {"verbose", "device", "batch_tokens"}

#: Attributes of foreign objects that do not matter.
_STATELESS = (type(threading.Lock()), type(threading.RLock()), logging.Logger)

_ADDRESS = re.compile(r"( at )?0x[0-9a-fA-F]+")


def known_by(value: Any, *, exact: bool = False) -> Any:
    """The cache key of a stage: its options and theirs as JSON-compatible values, equal for equal stages.

    Stages and training options define a method of this name that returns what matters.

    Args:
        value: A stage, an option, or anything else.
        exact: Whether functions are distinguished by what they compute (their code, and what it reads: defaults, variables of the
            enclosing function and of their module), and objects from outside this package by their content. Otherwise functions
            are identified by their names, and such objects by their printed form. Functions of this package are always identified
            by their names: keep its version with the key.

    Returns:
        Names, numbers, lists and mappings; frames, arrays, sets and weights by a hash of their content.

    Raises:
        InputError: With ``exact`` for an object that can be identified by its address in memory only.

    Example:
        >>> known_by({"labels": (1, 2), "of": len})
        {'labels': [1, 2], 'of': 'builtins.len'}
        >>> one, other = (known_by(pt.apply.doc_score(f), exact=True) for f in (lambda row: 1.0, lambda row: 2.0))
        >>> one == other
        False
    """
    return _Description(exact)(value)


class _Description:
    """One description; remembers the enclosing objects, so that an object that contains itself does not recurse forever."""

    def __init__(self, exact: bool):
        self.exact = exact
        self.above: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if any(value is one for one in self.above):
            return f"the {type(value).__name__} above"
        self.above.append(value)
        try:
            return self._of(value)
        finally:
            self.above.pop()

    def _of(self, value: Any) -> Any:
        if isinstance(value, pt.Compose):
            return [self(stage) for stage in flatten(value)]
        if isinstance(value, Stage):
            return self._stage(value)
        if isinstance(value, pd.DataFrame):
            return frame_digest(value)
        if isinstance(value, pd.Series):
            return _hash(repr((value.name, value.index.tolist(), value.tolist())).encode())
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return self(value.tolist())
            return _hash(value.tobytes() + str((value.shape, value.dtype)).encode())
        if isinstance(value, Mapping):
            return {str(name): self(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(one) for one in value]
        if isinstance(value, (set, frozenset)):
            return _hash(repr(sorted(value, key=repr)).encode())
        if callable(getattr(value, "known_by", None)) and not isinstance(value, type):
            return self(value.known_by())
        if is_dataclass(value) and not isinstance(value, type):
            return {"object": type(value).__name__, **{f.name: self(getattr(value, f.name)) for f in fields(value) if f.init}}
        if self.exact:
            return self._exactly(value)
        if callable(value) and hasattr(value, "__qualname__"):
            return _name(value)
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

    def _stage(self, stage: Stage) -> dict[str, Any]:
        known = {name: self(one) for name, one in stage.known_by().items() if name not in _UNSEEN}
        weights = {"weights": stage.fingerprint()} if hasattr(stage, "fingerprint") else {}
        return {"stage": type(stage).__name__, **known, **weights}

    # Objects from outside this package

    def _exactly(self, value: Any) -> Any:
        if isinstance(value, (type, ModuleType)):
            return _name(value)
        if isinstance(value, partial):
            return {"partial": self(value.func), "given": [self(value.args), self(value.keywords)]}
        of = getattr(value, "__self__", None)
        if callable(value) and hasattr(value, "__qualname__") and of is not None and not isinstance(of, ModuleType):
            return {"method": value.__qualname__, "of": self(of)}
        if isinstance(value, FunctionType):
            return self._function(value)
        if callable(value) and hasattr(value, "__name__") and not hasattr(value, "__dict__"):
            return _name(value)  # built in
        if callable(getattr(value, "fingerprint", None)):
            return {"object": _name(type(value)), "fingerprint": self(value.fingerprint())}
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.nn.Module):
            return {"object": _name(type(value)), "weights": weights_fingerprint(value)}
        if torch is not None and isinstance(value, torch.Tensor):
            content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            return _hash(content + str((value.shape, value.dtype)).encode())
        if is_retriever(value):
            return self(retriever_key(value))
        if callable(getattr(value, "toString", None)):  # Java's
            return _told_apart(re.sub(r"@[0-9a-f]+", "", str(value.toString())))
        return self._object(value)

    def _function(self, function: FunctionType) -> Any:
        if function.__module__.split(".")[0] == __name__.split(".")[0] and "<" not in function.__qualname__:
            return _name(function)
        about = {"function": _name(function), "code": _code(function.__code__)}
        others = [one for one in self.above[:-1] if isinstance(one, FunctionType)]
        if others and function.__module__ != others[0].__module__:
            return about  # of a library that the function calls
        closure = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        names = {name for name in _globals(function.__code__) if name in function.__globals__}
        read = {name: function.__globals__[name] for name in sorted(names)}
        defaults = [one for one in (function.__defaults__, function.__kwdefaults__) if one]
        given = {"defaults": defaults, "closure": closure, "reads": read}
        return {**about, **{name: self(one) for name, one in given.items() if one}}

    def _object(self, value: Any) -> Any:
        kind, own = type(value), type(value).__repr__ is not object.__repr__
        printed = repr(value) if own else ""
        stage = isinstance(value, pt.Transformer)
        if own and not stage and not _ADDRESS.search(printed):
            return printed
        try:
            state = value.__getstate__()
        except Exception:
            state = None
        if isinstance(state, Mapping):
            state = {name: one for name, one in state.items() if name not in _UNSEEN and not isinstance(one, _STATELESS)}
        if state is None and not stage:
            around = [type(one).__name__ for one in self.above[:-1] if isinstance(one, pt.Transformer)]
            raise InputError(
                f"checkpoint: a {_name(kind)}{f' in a {around[-1]}' if around else ''} has no cache key, since only its "
                f"address in memory is known, so trainings with different ones cannot be distinguished; give it a method "
                f"fingerprint() that returns a text that changes when the object does, or leave checkpoint out"
            )
        about = {"object": _name(kind), "code": [_code(one) for one in _methods(kind)], "state": self(state)}
        return {**about, "prints": _told_apart(_ADDRESS.sub("", printed))} if own else about


def _told_apart(printed: str) -> str:
    """The printed form of a Java object, or of a stage around one; all Terrier indexes in memory have the same."""
    if re.search(r"\bMemoryIndex\b", printed):
        raise InputError(
            "checkpoint: Terrier indexes in memory cannot be distinguished, so results of one could be used for another; "
            "index into a folder, or leave checkpoint out"
        )
    return printed


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or value.__name__
    return f"{module}.{name}" if module else name


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # of a function that is not complete yet
        return False
    return True


def _code(code: CodeType) -> str:
    """A hash of what a function computes, whatever its file, line and comments."""
    constants = [
        _code(one) if isinstance(one, CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else repr(one)
        for one in code.co_consts
    ]
    return _hash(repr((code.co_code, constants, code.co_names, code.co_freevars)).encode())


def _globals(code: CodeType) -> set[str]:
    """Names of a module's variables that a function reads, and functions inside it."""
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals(one) for one in code.co_consts if isinstance(one, CodeType)))


def _methods(kind: type) -> Iterator[CodeType]:
    """The code of a class and of those that it is made from, except PyTerrier's."""
    for one in kind.__mro__:
        if one.__module__.split(".")[0] not in ("builtins", "pyterrier"):
            for _, attribute in sorted(vars(one).items(), key=lambda pair: pair[0]):
                function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
                if isinstance(function, FunctionType):
                    yield function.__code__
