"""Registers this library's architectures with transformers' ``AutoModel`` without importing transformers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The module of transformers that looks up models by their type, and this library's module that registers them there.
_ASKS, _REGISTERS = "transformers.models.auto.modeling_auto", "pyterrier_debias.rankers.tk_model"


class _Registrar(MetaPathFinder):
    """Waits on ``sys.meta_path`` until transformers loads ``AutoModel``, then removes itself and registers."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own specification; its loader registers our models afterwards."""
        if name != _ASKS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            load(module)
            importlib.import_module(_REGISTERS)

        spec.loader.exec_module = load_and_register  # type: ignore[method-assign]  # this loader only, for this import
        return spec


def register() -> None:
    """Register our architectures with ``AutoModel``: now if transformers has loaded it, otherwise as soon as it does.

    transformers has no entry points for plug-ins, and ``import pyterrier_debias`` must not spend seconds on importing it.

    Example:
        >>> register()      # the package has done so when it was imported; once more changes nothing
    """
    if _ASKS in sys.modules:
        importlib.import_module(_REGISTERS)
    elif not any(isinstance(finder, _Registrar) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Registrar())
