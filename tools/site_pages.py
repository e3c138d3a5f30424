"""The pages of the site, as hooks of MkDocs: see mkdocs.yml and ``make docs``.

A page stands where its document stands in the repository, so a link means the same in both. A file
of code that a document links to becomes a page, and the API reference is generated.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import crg
from notebooks import as_markdown

ROOT = Path(__file__).resolve().parents[1]
_ROOT_DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_REFERENCE = {
    "images": ("Classifier", "Answer", "pipeline"),
    "features": ("Task", "create", "load", "Adapter", "Prediction", "Diagnostics", "Features",
                 "read_features", "write_features", "InputError"),
    "evaluation": ("evaluate",),
    "your-own-method": ("Method", "Sample", "option", "register", "list_methods", "get_method",
                        "checks"),
}  # fmt: skip
_LINK = re.compile(r"\]\(([^)#\s:]+)\)")
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_NESTED_TOO_LITTLE = re.compile(r"^ {1,3}([-*]|\d+\.) ", re.MULTILINE)


class Shown(File):
    """A file that is not Markdown and has a page all the same."""

    def is_documentation_page(self) -> bool:
        """It is rendered, not copied."""
        return True


class Doctests(griffe.Extension):
    """Show the examples in docstrings as code, also those without a heading."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put each doctest of a docstring into a fence."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _DOCTEST.sub(lambda code: f"```pycon\n{code[0]}\n```", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put every document where the repository has it, and add the generated pages."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    found = [path for path in (ROOT / "docs").rglob("[!.]*") if path.is_file()]
    names = {path.relative_to(ROOT).as_posix() for path in found}
    documents = {name for name in names if "/." not in name} | {*_ROOT_DOCUMENTS}
    for name in sorted(documents | _linked(documents)):
        if name in documents and not name.endswith(".ipynb"):
            files.append(File(name, str(ROOT), config.site_dir, use_directory_urls=False))
        else:
            shown = Shown.generated(config, name, content=_in_markdown(name))
            shown.dest_uri = f"{name}.html"
            files.append(shown)
    for name, content in _api().items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Search finds text, not code and tables; a list must be one for GitHub and for MkDocs."""
    name = page.file.src_uri
    if not name.endswith((".md", ".ipynb")) or name == "docs/results/tables.md":
        page.meta["search"] = {"exclude": True}
    elif name.endswith(".md") and _NESTED_TOO_LITTLE.search(_FENCE.sub("", markdown)):
        raise PluginError(f"{name}: indent nested list items by four spaces.")
    return markdown


def _linked(documents: set[str]) -> set[str]:
    """The files elsewhere in the repository that documents link to."""
    found = set()
    for name in [name for name in documents if name.endswith(".md")]:
        for target in _LINK.findall((ROOT / name).read_text(encoding="utf-8")):
            path = (ROOT / name).parent.joinpath(target).resolve()
            if path.is_file() and path.is_relative_to(ROOT):
                found.add(path.relative_to(ROOT).as_posix())
    return found - documents


def _in_markdown(name: str) -> str:
    """A file that is not Markdown as a page: a notebook with its outputs, or code in a fence."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        return f"{as_markdown(text)}\n*To run it: {name} in the repository.*\n"
    language = {".py": "python", ".toml": "toml"}.get(Path(name).suffix, "text")
    return f"# {name}\n\n~~~~~ {language}\n{text}\n~~~~~\n"


def _api() -> dict[str, str]:
    """The pages of the reference: exported names from their docstrings, methods with options."""
    pages = {}
    for page, names in _REFERENCE.items():
        blocks = [f"::: crg.{name}\n" for name in names]
        pages[page] = "\n".join([f"# {page.replace('-', ' ').capitalize()}\n", *blocks])
    pages["options"] = "\n".join(["# Options of the methods\n", *map(_method, crg.list_methods())])
    return pages


def _method(name: str) -> str:
    """A method: its docstring, its paper, and a table of its options."""
    method = crg.get_method(name)
    shown = {"show_root_heading": False, "show_root_toc_entry": False, "members": False}
    docstring = f"::: {method.__module__}.{method.__qualname__}\n    options: {json.dumps(shown)}\n"
    rows = [
        f"| `{each.name}` | `{_number(each.default)}` | {_limits(each.metadata)} "
        f"| {each.metadata['help']} |"
        for each in dataclasses.fields(method.Config)
    ]
    table = ["| option | default | values | meaning |", "| --- | --- | --- | --- |", *rows]
    parts = [f"## {name}\n", docstring, f"*{method.paper}*\n", *(table if rows else []), ""]
    return "\n".join(parts)


def _limits(rules: Any) -> str:
    """The values that an option takes, in words."""
    if rules["choices"]:
        return ", ".join(f"`{choice}`" for choice in rules["choices"])
    words = {"at_least": "at least", "above": "above", "at_most": "at most"}
    said = [f"{words[rule]} {_number(rules[rule])}" for rule in words if rules[rule] is not None]
    return ", ".join(said)


def _number(value: Any) -> str:
    """A value to read: a float with seven digits at most."""
    return f"{value:,.7g}" if isinstance(value, float) else str(value)
