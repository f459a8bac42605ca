"""Keys that show whether something has changed: stages and their options as JSON, and hashes of networks' weights.

A finished training, or the findings of a bias, are stored under their :func:`cache_key`. torch is imported only for a network.
"""

from __future__ import annotations

import dis
import json
import logging
import os
import re
import sys
import sysconfig
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import frame_digest
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.terrier import is_retriever, retriever_key
from pyterrier_debias.core.text import in_one_order

if TYPE_CHECKING:
    import torch

#: Options that do not change results.
_UNSEEN = {"verbose", "device", "batch_tokens"}

#: Attributes of foreign objects that do not matter.
_STATELESS = (type(threading.Lock()), type(threading.RLock()), logging.Logger)

#: Where installed libraries lie, whose versions a key does not tell.
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))

#: What a model's configuration says of where it comes from; the type of the weights is told by the weights.
_ORIGIN = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}

#: Settings of a module that only training uses, and how a printed dropout tells its rate.
_TRAINED_ONLY, _DROPOUT = re.compile("drop|gradient_checkpointing"), re.compile(r"(Dropout\w*\()p=[^,)]*")

#: Attributes of a module that scoring changes: how long the texts were that it has met.
_SCORED = re.compile("cached")

#: Tells the hooks of this process from those of others: what a hook computes is not known, and their numbers start again.
_PROCESS = uuid.uuid4().hex

_ADDRESS = re.compile(r"( at )?0x[0-9a-fA-F]+")


def cache_key(value: Any, *, exact: bool = False) -> Any:
    """The cache key of a stage: its options and theirs as JSON-compatible values, equal for equal stages.

    Stages and training options define a method of this name that returns what matters.

    Args:
        value: A stage, an option, or anything else.
        exact: Whether functions are distinguished by what they compute (their code, and what it reads: defaults, variables of the
            enclosing function and of their module), and objects from outside this package by their printed form, their content,
            the attributes of their class, and what its methods compute (of an installed library: by their code). Otherwise
            functions are identified by their names, and such objects by their printed form. Functions of this package are always
            identified by their names: keep its version with the key.

    Returns:
        Names, numbers, lists and mappings; frames, arrays, sets and weights by a hash of their content.

    Raises:
        InputError: With ``exact``, if an object can be identified only by its address in memory.

    Example:
        >>> cache_key({"labels": (1, 2), "of": len})
        {'labels': [1, 2], 'of': 'builtins.len'}
        >>> one, other = (cache_key(pt.apply.doc_score(f), exact=True) for f in (lambda row: 1.0, lambda row: 2.0))
        >>> one == other
        False
    """
    return _Description(exact)(value)


def function_name(function: Any) -> str:
    """A function's name; for a user's or a nested one, with a hash of what it computes, since all lambdas have one name.

    Args:
        function: A function or a class.

    Returns:
        The qualified name, without the module.

    Example:
        >>> one, other = (lambda text: text.split()), (lambda text: list(text))
        >>> function_name(len), function_name(one) == function_name(other)
        ('len', False)
    """
    name: str = function.__qualname__
    if not isinstance(function, FunctionType) or not (_is_users(function) or "<" in name):
        return name
    try:
        key = cache_key(function, exact=True)
    except InputError:  # it uses an object of which nothing but its address is known
        return name
    return f"{name}:{_hash(json.dumps(key, sort_keys=True).encode())[:8]}"


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
        if isinstance(value, (pd.DataFrame, pd.Series, np.ndarray)):
            return self(value.tolist()) if isinstance(value, np.ndarray) and value.dtype.hasobject else frame_digest(value)
        if isinstance(value, (pd.Index, pd.api.extensions.ExtensionArray)):
            return self(np.asarray(value))
        if isinstance(value, Mapping):
            found = self._named(value)
            # Whoever compares the key may sort names; of groups, their order decides a contrast's sign.
            return found if list(found) == sorted(found) else {**found, "in the order": list(found)}
        if isinstance(value, (list, tuple)):
            return [self(one) for one in value]
        if isinstance(value, (set, frozenset)):
            return _hash(repr(sorted(value, key=repr)).encode())
        if callable(getattr(value, "cache_key", None)) and not isinstance(value, type):
            own = value.cache_key()
            return self._named(own) if isinstance(own, Mapping) else self(own)
        if is_dataclass(value) and not isinstance(value, type):
            return {"object": type(value).__name__, **{f.name: self(getattr(value, f.name)) for f in fields(value) if f.init}}
        if self.exact:
            return self._exactly(value)
        if callable(value) and hasattr(value, "__qualname__"):
            return _name(value)
        return re.sub(r" at 0x[0-9a-f]+", "", in_one_order(repr(value)))

    def _named(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(name): self(one) for name, one in values.items()}

    def _stage(self, stage: Stage) -> dict[str, Any]:
        known = {name: self(one) for name, one in stage.cache_key().items() if name not in _UNSEEN}
        weights = {"weights": stage.fingerprint()} if hasattr(stage, "fingerprint") else {}
        return {"stage": type(stage).__name__, **known, **weights}

    # Objects from outside this package

    def _exactly(self, value: Any) -> Any:
        if isinstance(value, (type, ModuleType)):
            return _name(value)
        if isinstance(value, _STATELESS):
            return _name(type(value))
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
            return _hash_weights("", [("", value)])
        if callable(getattr(value, "get_vocab", None)):
            return tokenizer_fingerprint(value)
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
        kind, stage = type(value), isinstance(value, pt.Transformer)
        printed = "" if kind.__repr__ is object.__repr__ else in_one_order(repr(value))
        says = bool(printed) and not _ADDRESS.search(printed)
        code = [self(one) if _is_users(kind_of) else _code(one.__code__) for kind_of, one in _methods(kind)]
        if says and not stage and (isinstance(value, os.PathLike) or not code):  # nothing else of it is seen, or matters
            return printed
        try:
            state = value.__getstate__()
        except Exception:
            state = None
        if isinstance(state, Mapping):
            seen = {name: one for name, one in state.items() if name not in _UNSEEN and not isinstance(one, _STATELESS)}
            state = self._named(seen)
        else:
            state = self(state)
        if state is None and not stage and not says:
            around = [type(one).__name__ for one in self.above[:-1] if isinstance(one, pt.Transformer)]
            raise InputError(
                f"checkpoint: a {_name(kind)}{f' in a {around[-1]}' if around else ''} has no cache key: only its "
                f"address in memory is known, so results of two such objects could be confused; give it a method "
                f"fingerprint() that returns a text that changes when the object changes, or leave checkpoint out"
            )
        about = {"object": _name(kind), "code": code, "shared": self._named(_attributes(kind)), "state": state}
        return {**about, "prints": _told_apart(_ADDRESS.sub("", printed))} if printed else about


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


def _methods(kind: type) -> Iterator[tuple[type, FunctionType]]:
    """The methods of a class and of those that it is made from, except PyTerrier's, each with its class."""
    for one in kind.__mro__:
        if one.__module__.split(".")[0] not in ("builtins", "pyterrier"):
            for _, attribute in sorted(vars(one).items(), key=lambda pair: pair[0]):
                function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
                if isinstance(function, FunctionType):
                    yield one, function


def _attributes(kind: type) -> dict[str, Any]:
    """What the objects of a user's class share, by name: all that is no method, nor made by Python."""
    found: dict[str, Any] = {}
    for one in filter(_is_users, kind.__mro__):
        for name, value in vars(one).items():
            if not (name.startswith(("__", "_abc_")) or name in _UNSEEN or hasattr(type(value), "__get__")):
                found.setdefault(name, value)
    return {name: found[name] for name in sorted(found)}


def _is_users(kind: type | FunctionType) -> bool:
    """Whether a class or a function is neither built in nor of an installed library, PyTerrier or this package."""
    if kind.__module__.split(".")[0] in ("builtins", "pyterrier", __name__.split(".")[0]):
        return False
    return not (getattr(sys.modules.get(kind.__module__), "__file__", None) or "").startswith(_INSTALLED)



# Weights


def weights_fingerprint(module: torch.nn.Module, *, structure: bool = True) -> str:
    """A hash of all weights and of how the module computes with them.

    Args:
        module: Any torch module.
        structure: Whether the hash covers how the module computes; False covers only the weights, which are the same after saving
            and opening even if the printed form changes.

    Returns:
        ``weights:`` and 32 hexadecimal digits, over names, types, shapes and values, the printed structure, the configurations,
        the numbers and switches of its parts, what a sentence-transformers model knows beyond its weights, and hooks, of which
        each is another one in another process.
    """
    return _hash_weights(f"{structure_of(module)} {_scoring(module)}" if structure else "", module.state_dict().items())


def trainable_fingerprint(module: torch.nn.Module) -> str:
    """A hash of the weights that training can change, whatever the module's location and printed form.

    Args:
        module: Any torch module.

    Returns:
        As :func:`weights_fingerprint`.
    """
    return _hash_weights("", ((name, value) for name, value in module.named_parameters() if value.requires_grad))


def structure_of(module: torch.nn.Module) -> str:
    """How a module computes with its weights: its printed form, its configurations, the settings of sentence-transformers, and
    the hooks on the forward passes of its parts, by numbers that torch gives each only once in a process."""
    names = ("prompts", "default_prompt_name", "truncate_dim", "max_active_dims", "max_seq_length")
    beyond = [getattr(module, name, None) for name in names]
    found: list[Any] = [getattr(part, "config", None) for part in module.modules()]
    configs = {id(config): config.to_dict() for config in found if hasattr(config, "to_dict")}
    told = [{name: one for name, one in config.items() if name not in _ORIGIN} for config in configs.values()]
    hooks = [
        (name, number)
        for name, part in module.named_modules()
        for number, hook in (*part._forward_pre_hooks.items(), *part._forward_hooks.items())
        # transformers sets its own, which collect the states of layers, while it scores.
        if not str(getattr(hook, "__module__", "")).startswith("transformers.")
    ]
    return f"{module!r} {beyond} {json.dumps(told, sort_keys=True, default=repr)} {[_PROCESS, *hooks] if hooks else hooks}"


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of how a tokenizer turns texts into numbers, without state that a call leaves behind (padding, truncation).

    Args:
        tokenizer: A Hugging Face tokenizer; for any other object, only the class counts.

    Returns:
        ``tokenizer:`` and 16 hexadecimal digits.
    """
    fast, content = getattr(tokenizer, "backend_tokenizer", tokenizer), None
    if hasattr(fast, "to_str"):
        content = {**json.loads(fast.to_str()), "truncation": None, "padding": None}
    elif hasattr(tokenizer, "get_vocab"):
        content = tokenizer.get_vocab()
    told = [type(tokenizer).__name__, tokenizer_marks(tokenizer), content]
    return f"tokenizer:{_hash(json.dumps(told, sort_keys=True, default=repr).encode())}"


def tokenizer_marks(tokenizer: Any) -> tuple[Any, ...]:
    """What of a tokenizer can be changed in place and is cheap to compare: its settings, how it prepares and frames texts, and
    the size of its vocabulary."""
    settings = ("truncation_side", "padding_side", "model_max_length", "do_lower_case")
    told = [getattr(tokenizer, name, None) for name in settings]
    fast = getattr(tokenizer, "backend_tokenizer", None)
    parts = [getattr(fast, name, None) for name in ("normalizer", "pre_tokenizer", "post_processor")]
    states = [_hash(part.__getstate__()) for part in parts if hasattr(part, "__getstate__") and part is not None]
    return *told, *states, len(tokenizer) if hasattr(tokenizer, "__len__") else None


def _hash_weights(structure: str, weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    import torch

    state = blake2b(digest_size=16)
    state.update(structure.encode())
    for name, value in sorted(weights, key=lambda pair: pair[0]):
        if not isinstance(value, torch.Tensor):
            continue
        state.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        state.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"weights:{state.hexdigest()}"


def marks(module: torch.nn.Module) -> tuple[tuple[int, int], ...]:
    """Values that change when weights do: far cheaper than a hash, about as expensive as scoring one pair.

    PyTorch counts how often a weight was written to, but misses writes by fused optimisers and ``.data``; for a replaced weight
    (``load_state_dict(assign=True)``) the count starts again. Therefore the numbers are also summed, as the integers that their
    bits represent: any change of a single number is detected. An exchange of numbers within a weight through ``.data`` is not.

    Args:
        module: Any torch module.

    Returns:
        The count and the sum for each parameter and saved buffer.
    """
    import torch

    weights = [value for value in module.state_dict().values() if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        found = [_sum_of_bits(value) for value in weights]
        # One wait for the device, not one for each weight.
        alike = len({value.device for value in found}) == 1
        sums = torch.stack(found).tolist() if alike else [int(value) for value in found]
    return tuple((0 if value.is_inference() else value._version, total) for value, total in zip(weights, sums))


def scoring_marks(module: torch.nn.Module) -> tuple[Any, ...]:
    """What decides, apart from the weights, how a module scores; cheap to compare.

    Args:
        module: Any torch module.

    Returns:
        The public numbers and switches of its parts, and its structure with its hooks, both without what only training uses
        (dropout, gradient checkpointing, the mode).
    """
    return _scoring(module), _DROPOUT.sub(r"\1", structure_of(module))


def _scoring(module: torch.nn.Module) -> tuple[Any, ...]:
    """The settings of a module's parts that scoring uses."""
    return tuple(one for one in _settings(module) if not _TRAINED_ONLY.search(one[1]))


def training_marks(module: torch.nn.Module) -> tuple[Any, ...]:
    """What decides, apart from the weights, how a module is trained; cheap to compare.

    Args:
        module: Any torch module.

    Returns:
        The names of its frozen weights, the public numbers and switches of its parts (a dropout, also one that is not a module;
        not the mode, which training sets), and its structure.
    """
    frozen = tuple(name for name, value in module.named_parameters() if not value.requires_grad)
    return frozen, _settings(module), structure_of(module)


def _settings(module: torch.nn.Module) -> tuple[tuple[str, str, bool | float], ...]:
    """The public numbers and switches of a module's parts. The p of a Dropout is called dropout.

    A whole number of a user's part is not one of them, because it may count calls.
    """
    return tuple(
        (name, "dropout" if key == "p" and "Dropout" in type(part).__name__ else key, value)
        for name, part in module.named_modules()
        for kinds in [(bool, float) if _is_users(type(part)) else (bool, float, int)]
        for key, value in vars(part).items()
        if type(value) in kinds and key != "training" and not key.startswith("_") and not _SCORED.search(key)
    )


def _sum_of_bits(weight: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor read as 64-bit whole numbers, added up and wrapped."""
    import torch

    if weight.device.type not in ("cpu", "cuda"):
        weight = weight.cpu()
    numbers = weight.detach().reshape(-1).view(torch.uint8)
    short = -len(numbers) % 8
    if short or numbers.storage_offset() % 8:
        numbers = torch.cat([numbers, numbers.new_zeros(short)])
    return numbers.view(torch.int64).sum()
