"""One call over all rooms: findings, corrections, pictures, reports; the command line on top of it. Floor 4.

``pyterrier_debias.audit`` is this package and the function that runs an audit (:func:`pyterrier_debias.audit.run.audit`).
Which of the two a program gets depends on what it imported first, so the package can be called like the function.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from pyterrier_debias.audit.run import audit

        return audit(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
