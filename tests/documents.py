"""Code in the documents: finding it, splitting it, and a place where it can run.

``python documents.py FOLDER`` runs the Python blocks of all documents and prints as JSON what
went wrong. The libraries are imported once; each document then runs in a fork of that process.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import traceback
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


def faults_of_python_blocks(folder: Path) -> dict[str, str]:
    """By document what went wrong when its Python blocks ran as one script; empty where nothing."""
    command = [sys.executable, str(Path(__file__)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    faults: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return faults


def _run_all(folder: Path) -> dict[str, str]:
    """Run each document in a folder of its own, with a feature file that the reader would have."""
    from crg.features.files import write_features
    from synthetic import gaussian_stream

    stream = gaussian_stream(n=60, n_classes=4, width=16, n_views=2)
    faults = {}
    for number, path in enumerate(DOCUMENTS):
        place = folder / str(number)
        place.mkdir()
        write_features(place / "features.npz", stream)
        child = os.fork()
        if child == 0:
            _run(path, place)
        _, status = os.waitpid(child, 0)
        said = (place / "said.txt").read_text()
        faults[str(path)] = "" if status == 0 else said or f"ended with status {status}"
    return faults


def _run(path: Path, place: Path) -> None:
    """Life of a fork: one document, as a script of its own."""
    os.chdir(place)
    script = place / f"{path.stem.lower()}_blocks.py"
    script.write_text("\n".join(code_blocks(path, "python")))
    sys.path[0] = str(place)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.modules["__main__"] = main = types.ModuleType("__main__")  # where classes are looked up
    main.__file__ = str(script)
    status = 0
    try:
        exec(compile(script.read_text(), script.name, "exec"), main.__dict__)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


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


if __name__ == "__main__":
    print(json.dumps(_run_all(Path(sys.argv[1]))))
