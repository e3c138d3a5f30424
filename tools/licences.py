"""Writes docs/licences.md: what crg depends on, for which extra, under which licence.

python tools/licences.py, where all extras are installed.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
_HEAD = """# Licences of dependencies

`tools/licences.py` reads them from package metadata. crg is under Apache-2.0.

| package | for | licence |
| --- | --- | --- |
"""
_OURS = "crg-tta"
_UNSAID = {"label-studio-sdk": "Apache-2.0"}  # in its licence file only


def declared() -> dict[str, str]:
    """The extras that want a package, by its name and the versions that will do."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: dict[str, list[str]] = {}
    for extra, lines in {
        "all": project["dependencies"],
        **project["optional-dependencies"],
    }.items():
        for line in lines:
            if not line.startswith(_OURS):
                wanted.setdefault(line, []).append(extra)
    return {line: ", ".join(extras) for line, extras in sorted(wanted.items())}


def licence(package: str) -> str:
    """What an installed package says: an SPDX expression, a classifier, or how its text begins."""
    facts: Any = metadata(package)
    kinds = [each.split(" :: ")[-1] for each in facts.get_all("Classifier") or []
             if each.startswith("License")]  # fmt: skip
    begin = " ".join((facts.get("License") or "").split()[:4])
    return facts.get("License-Expression") or " and ".join(kinds) or begin or _UNSAID[package]


def page() -> str:
    """The whole page."""
    rows = [
        f"| `{line}` | {extras} | {licence(re.split('[<>=]', line)[0])} |\n"
        for line, extras in declared().items()
    ]
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
