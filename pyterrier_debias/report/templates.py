"""The templates of pages, and the filters that format figures."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from pyterrier_debias.report.text import interval, number, probability


def environment() -> Any:
    """The templates of pages: everything that is put into them is escaped.

    Returns:
        A jinja2 environment.
    """
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pyterrier_debias.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters.update(
        number=_signed, percent=_percent, probability=probability, interval=lambda f: _signed_interval(f["low"], f["high"]),
        named=_named,
    )  # fmt: skip
    return found


def framed(page: str, title: str) -> str:
    """A page in an inline frame.

    Args:
        page: An HTML document.
        title: What the frame shows.

    Returns:
        An ``iframe`` element.
    """
    page = html.escape(page, quote=True)
    return f'<iframe srcdoc="{page}" style="width:100%;height:42em;border:0" title="{html.escape(title)}"></iframe>'


def _signed(value: float, digits: int = 3) -> str:
    """A figure with a typographic minus sign."""
    return number(value, digits).replace("-", "\N{MINUS SIGN}")


def _named(text: str, names: Iterable[str]) -> str:
    """A sentence that begins with a name and a colon: behind a name from right to left, a number stays behind it."""
    from markupsafe import Markup

    name = next((name for name in names if text.startswith(f"{name}: ")), None)
    return text if name is None else Markup("<bdi>{}</bdi>{}").format(name, text[len(name) :])


def _percent(share: float) -> str:
    """A share in per cent; blank if it is undefined or too large to mean anything."""
    return "" if not abs(share) < 10 else f"{share:.0%}".replace("-", "\N{MINUS SIGN}")


def _signed_interval(low: float, high: float) -> str:
    return interval(low, high).replace("-", "\N{MINUS SIGN}")
