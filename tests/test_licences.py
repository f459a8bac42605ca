"""Nothing that our requirements bring may be under the GPL, the AGPL or a non-commercial licence; what else is installed may."""

import re
from collections.abc import Iterable
from configparser import ConfigParser
from importlib import invalidate_caches, metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

#: Reviewed by hand; each says why it may stay.
REVIEWED = {
    "docutils": "public domain and BSD; the GPL covers one Emacs mode that is not part of the wheel",
    "npids": "names no licence in its metadata; the licence file in its wheel is the MPL 2.0",
}

#: Run-time libraries of the makers of accelerators. PyPI's torch for Linux brings them, under terms of their makers, and with
#: another build of torch they are not there: they may stay where torch, or another of them, brings them, and nowhere else.
VENDORS = re.compile(r"(nvidia|cuda|rocm|intel)-")

FORBIDDEN = re.compile(
    r"(?<!L)(?<!Lesser )\b(A?GPL|GNU (Affero )?General Public|GNU GPL)|non-?commercial|\bCC[- ]BY[- ]NC", re.IGNORECASE
)


def our_requirements() -> list[str]:
    """What ``setup.cfg`` asks for, with all extras."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    return [line for line in "\n".join(lines).splitlines() if line and not line.startswith("#")]


def brought(requirements: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What requirements bring on this machine, by way of what: names of installed distributions, without those of vendors."""
    todo = [(Requirement(line), ("",), ()) for line in requirements]
    found, seen = {}, set()
    while todo:
        requirement, extras, way = todo.pop(0)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = canonicalize_name(requirement.name)
        of_vendor = bool(VENDORS.match(name)) and way[-1:] != () and (way[-1] == "torch" or way[-1] not in found)
        key = name, frozenset(requirement.extras), of_vendor
        if key in seen:
            continue
        seen.add(key)
        try:
            needs = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue  # An extra that is not installed here.
        if not of_vendor:
            found.setdefault(name, way)
        todo += [(Requirement(line), ("", *requirement.extras), (*way, name)) for line in needs]
    return found


def licence_of(name: str) -> str:
    """Everything that the metadata says of the licence, in one line."""
    fields = metadata.distribution(name).metadata
    declared = [fields.get("License-Expression"), (fields.get("License") or "")[:200]]
    classifiers = [c for c in fields.get_all("Classifier") or [] if c.startswith("License ::")]
    return " | ".join(part for part in [*declared, *classifiers] if part)


def culprits(requirements: Iterable[str]) -> list[str]:
    """What requirements bring and must not, or nothing is known of: one line each."""
    lines = []
    for name, way in sorted(brought(requirements).items()):
        licence = licence_of(name)
        if name in REVIEWED or (licence and not FORBIDDEN.search(licence)):
            continue
        what = f"is under {licence}" if licence else "names no licence: look it up and list it in REVIEWED, or do without it"
        lines.append(f"{' > '.join((*way, name))} {what}")
    return lines


def test_all_that_our_requirements_bring_is_under_a_permissive_licence():
    found = brought(our_requirements())
    assert {"numpy", "torch", "transformers", "ir-datasets", "pytest"} <= set(found)
    assert found["tokenizers"] == () and found["joblib"]  # asked for by us; by others only
    assert culprits(our_requirements()) == []


@pytest.fixture
def install(tmp_path, monkeypatch):
    """``install(name, licence, *requires)`` puts a distribution of that description next to those that are installed."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name, licence, *requires):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {line}" for line in requires)]
        lines += [f"License-Expression: {licence}"] if licence else []
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        invalidate_caches()
        assert metadata.distribution(name).version == "1.0"

    return put


def test_what_else_a_user_installed_is_no_concern(install):
    install("their-editor", "GPL-3.0-only", "their-library")
    install("their-library", "")
    assert "their-editor" in {d.metadata["Name"] for d in metadata.distributions()}
    assert culprits(our_requirements()) == []


def test_what_a_requirement_brings_is_seen_wherever_it_stands(install):
    install("first", "MIT", "second[more]>=1", "absent", 'unmet; python_version < "3"', 'other; extra == "never"')
    install("second", "BSD-3-Clause", 'Copy_Left; extra == "more"', "nameless", "first")
    install("copy-left", "GPL-2.0-or-later")
    install("nameless", "")
    install("unmet", "AGPL-3.0-only")
    install("other", "CC-BY-NC-4.0")
    assert culprits([*our_requirements(), "first"]) == [
        "first > second > copy-left is under GPL-2.0-or-later",
        "first > second > nameless names no licence: look it up and list it in REVIEWED, or do without it",
    ]


def test_libraries_of_vendors_may_stay_where_torch_brings_them(install):
    """However deep; what they bring besides is looked at, and so are they where something else brings them."""
    install("torch", "BSD-3-Clause", "cuda-all[math]", "nvidia-kernels")
    install("cuda-all", "", 'nvidia-math; extra == "math"', "helper")
    install("nvidia-math", "LicenseRef-Proprietary, non-commercial use")
    install("nvidia-kernels", "")
    install("helper", "GPL-3.0-only")
    assert set(brought(["torch"])) == {"torch", "helper"}
    assert culprits(["torch"]) == ["torch > cuda-all > helper is under GPL-3.0-only"]
    install("trees", "MIT", "nvidia-math")
    for requirements in (["torch", "trees"], ["trees", "torch"]):
        (line, _) = sorted(culprits(requirements), reverse=True)
        assert line == "trees > nvidia-math is under LicenseRef-Proprietary, non-commercial use"
    assert culprits(["nvidia-kernels"]) == [
        "nvidia-kernels names no licence: look it up and list it in REVIEWED, or do without it"
    ]


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "GNU General Public License v3 (GPLv3)", "AGPL-3.0", "CC-BY-NC-4.0", "GNU Affero General Public"]
)
def test_what_is_forbidden_is_seen(licence):
    assert FORBIDDEN.search(licence)


@pytest.mark.parametrize("licence", ["LGPL-3.0-or-later", "GNU Lesser General Public License v3 (LGPLv3)", "MPL-2.0", "MIT"])
def test_what_is_allowed_passes(licence):
    assert not FORBIDDEN.search(licence)
