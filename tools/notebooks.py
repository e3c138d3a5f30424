"""Run notebooks in this process, without Jupyter, and write what they show into them.

python tools/notebooks.py docs/notebooks/*.ipynb
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PIL import Image

_SHELL = re.compile(r"^!(.*)$", re.MULTILINE)  # a line that Jupyter gives to the shell


def run(path: Path, replaced: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run from top to bottom in a fresh namespace.

    A notebook works in the folder that it changes to; the folder of the caller stays. Texts that
    are ``replaced``, each by another, make it a smaller one.
    """
    text = path.read_text(encoding="utf-8")
    for old, new in replaced.items():
        text = text.replace(old, new)
    notebook: dict[str, Any] = json.loads(text)
    namespace: dict[str, Any] = {"__name__": "__main__", "_shell": _shell}
    with contextlib.chdir("."):
        for number, cell in enumerate(_code_cells(notebook), start=1):
            cell["execution_count"] = number
            cell["outputs"] = _outputs("".join(cell["source"]), f"{path.name}[{number}]", namespace)
    return notebook


def printed(notebook: dict[str, Any]) -> list[str]:
    """What each code cell prints, without numbers, which may differ from machine to machine."""
    texts = [
        "".join(line for each in cell["outputs"] for line in each.get("text", ()))
        for cell in _code_cells(notebook)
    ]
    return [re.sub(r"[-+.\d\s▲▼━─]+", " ", text) for text in texts]


def as_markdown(text: str) -> str:
    """A stored notebook as Markdown with its outputs."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"~~~~~ python\n{source}\n~~~~~")
        parts += map(_shown, cell["outputs"])
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![Figure](data:image/png;base64,{data['image/png'].strip()})"
    if "text/html" in data:
        return f"<div style='overflow-x: auto'>{''.join(data['text/html'])}</div>"
    return f"~~~~~ text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n~~~~~"


def _code_cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def _outputs(source: str, name: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as Jupyter does: what it prints, and the value of a last expression."""
    tree = ast.parse(_SHELL.sub(lambda line: f"_shell({line[1]!r})", source), name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    text, value = io.StringIO(), None
    with contextlib.redirect_stdout(text):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    found: list[dict[str, Any]] = []
    if text.getvalue():
        lines = text.getvalue().splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        found.append({"data": _data(value), "metadata": {}, "output_type": "display_data"})
    return found


def _data(value: Any) -> dict[str, Any]:
    """A value in the richest form that a notebook shows."""
    if hasattr(value, "savefig"):  # a figure of matplotlib's
        drawn, small = io.BytesIO(), io.BytesIO()
        value.savefig(drawn, dpi=100)
        Image.open(drawn).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
        return {"image/png": base64.b64encode(small.getvalue()).decode()}
    if (html := getattr(value, "_repr_html_", None)) is not None:
        return {"text/html": html().splitlines(keepends=True)}
    return {"text/plain": [repr(value)]}


def _shell(command: str) -> None:
    """Run a command of this Python's environment and print what it says."""
    words = shlex.split(command)
    if words[0] == "crg":
        words[:1] = [sys.executable, "-m", "crg"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"
    for argument in sys.argv[1:]:
        ran = run(Path(argument))
        Path(argument).write_text(json.dumps(ran, indent=1, ensure_ascii=False) + "\n", "utf-8")
