"""Code in the documents: finding it, splitting it, and a place where it can run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]
_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDS_A_COMMAND = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"}

# Documents may use these files as if the reader had made them.
_PRELUDE = """
from crg.features.files import write_features
from crg.streams.synthetic import gaussian_stream

write_features("features.npz", gaussian_stream(n=60, n_classes=4, width=16, n_views=2))
"""


def code_blocks(path: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages, in order."""
    return [body for language, body in _FENCE.findall(path.read_text()) if language in languages]


def commands(path: Path) -> Iterator[list[str]]:
    """Each command of the shell blocks, as a list of words."""
    for block in code_blocks(path, "sh", "bash", "shell", "console"):
        joined = block.replace("\\\n", " ")
        prompted = re.findall(r"^\$ (.*)$", joined, re.MULTILINE)  # the rest is output
        for line in prompted or joined.splitlines():
            yield from _commands_of(line)


def run_python_blocks(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the document's Python blocks as one script, in a folder with a feature file."""
    script = folder / f"{path.stem.lower()}_blocks.py"
    script.write_text("\n".join(code_blocks(path, "python")))
    subprocess.run([sys.executable, "-c", _PRELUDE], cwd=folder, check=True)
    return subprocess.run(
        [sys.executable, script.name], cwd=folder, capture_output=True, text=True, check=False
    )


def _commands_of(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token not in _ENDS_A_COMMAND:
            words.append(token)
            continue
        while words and re.match(r"^\w+=", words[0]):
            words.pop(0)  # a variable that is set for the command
        if words:
            yield words
        words = []
