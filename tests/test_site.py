"""The documents as a site, and the notebooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import crg
import notebooks
from documents import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
FEWER = {"--limit 500": "--limit 150", "range(5)": "range(2)", "count=400": "count=200"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning, such as of a link that leads nowhere, is an error."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(place)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


class Page(HTMLParser):
    """Identifiers, links and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.uses: list[tuple[str, str]] = []  # tag and address
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        self.uses += [(tag, found[name] or "") for name in ("href", "src") if name in found]


def test_every_address_of_the_site_is_a_file(site: Path) -> None:
    """Links and images lead to files of the site, and nothing is loaded from elsewhere."""
    pages = [(path, Page(path)) for path in site.rglob("*.html")]
    for path, tag, address in [(path, *use) for path, page in pages for use in page.uses]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            assert tag == "a" or parts.scheme == "data", f"{path} loads {address}"
        elif parts.path and path.name != "404.html":  # whose addresses start at the root
            assert (path.parent / unquote(parts.path)).exists(), f"{path} links to {address}"
    assert (site / "docs/results/report.html").exists()


def test_the_reference_has_every_public_name_method_and_option(site: Path) -> None:
    """Each exported name has an entry, and each method a section with its options."""
    ids = set().union(*(Page(path).ids for path in (site / "api").glob("*.html")))
    ours = [each for each in crg.list_methods() if crg.get_method(each).__module__[:4] == "crg."]
    assert {f"crg.{name}" for name in crg.__all__} | {*ours} <= ids
    text = (site / "api/options.html").read_text(encoding="utf-8")
    for name in ours:
        assert all(f">{each.name}</code>" in text for each in fields(crg.get_method(name).Config))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fewer images a notebook runs to its end and prints what is stored in it, numbers aside."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored = notebooks.printed(json.loads(path.read_text(encoding="utf-8")))
    assert notebooks.printed(notebooks.run(path, FEWER)) == stored, "make golden renews the outputs"
