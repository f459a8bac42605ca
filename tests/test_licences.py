"""Nothing that an installation brings may be under the GPL, the AGPL or a non-commercial licence."""

import re
from importlib import metadata

import pytest

#: Reviewed by hand; each says why it may stay.
REVIEWED = {
    "docutils": "public domain and BSD; the GPL covers one Emacs mode that is not part of the wheel",
    "npids": "names no licence in its metadata; the licence file in its wheel is the MPL 2.0",
}

FORBIDDEN = re.compile(
    r"(?<!L)(?<!Lesser )\b(A?GPL|GNU (Affero )?General Public|GNU GPL)|non-?commercial|\bCC[- ]BY[- ]NC", re.IGNORECASE
)


def licence_of(distribution) -> str:
    """Everything that the metadata says of the licence, in one line."""
    fields = distribution.metadata
    declared = [fields.get("License-Expression"), (fields.get("License") or "")[:200]]
    classifiers = [c for c in fields.get_all("Classifier") or [] if c.startswith("License ::")]
    return " | ".join(part for part in [*declared, *classifiers] if part)


INSTALLED = {d.metadata["Name"]: licence_of(d) for d in metadata.distributions()}


@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_licence_is_permissive(name):
    if name in REVIEWED:
        return
    licence = INSTALLED[name]
    assert licence, f"{name} names no licence: look it up and list it in REVIEWED, or do without it"
    assert not FORBIDDEN.search(licence), f"{name} is under {licence}"


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "GNU General Public License v3 (GPLv3)", "AGPL-3.0", "CC-BY-NC-4.0", "GNU Affero General Public"]
)
def test_what_is_forbidden_is_seen(licence):
    assert FORBIDDEN.search(licence)


@pytest.mark.parametrize("licence", ["LGPL-3.0-or-later", "GNU Lesser General Public License v3 (LGPLv3)", "MPL-2.0", "MIT"])
def test_what_is_allowed_passes(licence):
    assert not FORBIDDEN.search(licence)
