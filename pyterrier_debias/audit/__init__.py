"""One call over all rooms: findings, corrections, pictures, reports; the command line on top of it. Floor 4.

``pyterrier_debias.audit`` is this package, and it can be called: it is the function that runs an audit
(:func:`pyterrier_debias.audit.run.audit`), with its signature and its documentation. One name cannot be a package for some and a
function for others, since which of the two a program got would depend on what it imported first.
"""

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)

    @property
    def _function(self) -> Callable[..., Any]:
        from pyterrier_debias.audit.run import audit

        return audit

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def __doc__(self) -> str | None:
        return self._function.__doc__

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _CallablePackage
