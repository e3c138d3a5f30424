"""Code in the documents: finding it, splitting it, and running it."""

from __future__ import annotations

import os
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDS_A_COMMAND = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"}


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


def run_python_blocks(path: Path, place: Path) -> None:
    """Run the Python blocks of a document as one script; a child process calls this."""
    os.chdir(place)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(said, stream)
    script = place / f"{path.stem.lower()}_blocks.py"
    script.write_text("\n".join(code_blocks(path, "python")))
    sys.path[0] = str(place)
    sys.modules["__main__"] = main = types.ModuleType("__main__")  # where classes are looked up
    main.__file__ = str(script)
    exec(compile(script.read_text(), script.name, "exec"), main.__dict__)


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
