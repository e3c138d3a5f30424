"""Dependencies are pinned, hashed and listed with their licence."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

import licences

ROOT = licences.ROOT
UNHASHED = {"torch"}  # the Makefile says why


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _name(line: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=;\[ ]", line)[0]).lower()


def _pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return {_name(line): line.split("==")[1].split()[0] for line in lines if "==" in line}


def test_every_dependency_is_listed_with_its_licence() -> None:
    """Name, versions and extras on the page are those of pyproject.toml, each with a licence."""
    rows = [line.split(" | ") for line in licences.PAGE.read_text("utf-8").splitlines()[6:]]
    assert {row[0].strip("| `"): row[1] for row in rows} == licences.declared()
    assert all(row[2].strip("| ") for row in rows)


@pytest.mark.parametrize(("file", "extras"), [("demo", ["report"]), ("test", None)])
def test_every_dependency_is_pinned_with_hashes(file: str, extras: list[str] | None) -> None:
    """All that demo and test install is in the file, at the version of constraints.txt."""
    project = _project()["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(one for e in extras or optional for one in optional[e])]
    pins, known = _pins(f"requirements/{file}.txt"), _pins("constraints.txt")
    assert {_name(line) for line in lines} - {"crg-tta", *UNHASHED} <= set(pins)
    differ = {name for name in pins if name in known and known[name] != pins[name]}
    assert not differ
    text = (ROOT / f"requirements/{file}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-zA-Z])", text)[1:]
    assert blocks and all("--hash=sha256:" in block for block in blocks)


def test_the_build_tool_is_one_version_everywhere() -> None:
    """The build uses the tool that the files of pins have."""
    wanted = _project()["build-system"]["requires"]
    assert _project()["dependency-groups"]["build"] == wanted
    for file in ("constraints.txt", "requirements/demo.txt", "requirements/test.txt"):
        assert [f"hatchling=={_pins(file)['hatchling']}"] == wanted
