"""Attacks on processes at work: killed at any moment, and two of them at one output.

The processes are forked, so that a case takes fractions of a second; what they do is what the
command line does.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.base import Outcome, check_said, command, fresh, require
from crg.bench.rerun import measured_values
from crg.cli import main
from crg.predict.answers import lines_file
from crg.results import ledger
from crg.results.schema import Result
from crg.shapes import shape_images
from crg.types import InputError
from made_files import save_stream

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_ENDED = (0, 2, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)
_CLASSES = "red circle,blue square,green star,white netted star"
_IMAGES = 16


class Child:
    """A separate process that does some work, with all its output in one file."""

    def __init__(self, work: Callable[[], None], said: Path) -> None:
        said.unlink(missing_ok=True)
        self._said = said
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the child has its own handlers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of the test runner do not matter here
            self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, said)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def end(self, number: int | None = None) -> int:
        """Its exit code, after a signal if one is given; what it said is looked at."""
        if number is not None:
            os.kill(self.pid, number)
        _, status = os.waitpid(self.pid, 0)
        said = self._said.read_text() if self._said.exists() else ""
        check_said(said)
        code = os.waitstatus_to_exitcode(status)
        require(code in _ENDED, f"exit code {code}: {said}")
        return code

    @property
    def is_over(self) -> bool:
        """Whether it has ended; it can still be asked for its exit code."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None


def _be_child(work: Callable[[], None], said: Path) -> None:
    """Do the work as the interpreter does a script, and end."""
    code: Any = 70
    try:
        handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for number in (1, 2):
            os.dup2(handle, number)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
        warnings.simplefilter("ignore", ResourceWarning)  # a signal may fall between open and with
        signal.alarm(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        work()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except InputError as error:  # as the command line answers it
        print(f"Error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    os._exit(int(code))


def _at_a_moment(
    dice: random.Random, child: Child, progress: Callable[[], int], last: int, first: int = 0
) -> None:
    """Wait until some of the work is done, and a little longer."""
    wanted = dice.randint(first, last)
    while not child.is_over and progress() < wanted:
        time.sleep(0.001)
    time.sleep(dice.choice((0, 0.001, dice.uniform(0, 0.03))))


# Predict


def _predict(folder: Path, out: str, *more: str) -> None:
    os.chdir(folder)
    words = ("predict", "in", "--classes", _CLASSES, "--model", "mini", "--views", "2")
    main([*words, "--out", out, *more], prog_name="crg")


@functools.cache
def _shapes() -> Path:
    """A folder of rendered shapes."""
    folder = Path(tempfile.mkdtemp(prefix="crg-attacks-"))
    os.environ["CRG_CACHE"] = str(folder / "cache")
    (folder / "in").mkdir()
    for i, source in enumerate(shape_images("fog", 2, _IMAGES, 3).sources):
        source.draw().save(folder / "in" / f"{i:03}.png")  # type: ignore[union-attr]
    return folder


@functools.cache
def _whole(out: str, *more: str) -> tuple[bytes, dict[Path, bytes]]:
    """The answers of a run that nothing stopped, and its images."""
    folder = _fresh(Path(tempfile.mkdtemp(prefix="crg-attacks-")))
    done = Child(lambda: _predict(folder, out, *more), folder / "said")
    require(done.end() == 0, (folder / "said").read_text())
    return (folder / out).read_bytes(), _images(folder)


def _images(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.png")}


def _fresh(place: Path) -> Path:
    folder = fresh(place / "run")
    shutil.copytree(_shapes() / "in", folder / "in")
    return folder


def _n_lines(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


def _wait_for(lock: Path, child: Child) -> None:
    while not lock.exists() and not child.is_over:
        time.sleep(0.001)


def killed_predict(dice: random.Random, place: Path) -> Outcome:
    """Stopped in either pass, with answered images moved or gone: as if nothing had stopped it."""
    folder, name, passes = _fresh(place), dice.choice(("a.jsonl", "a.csv")), dice.randint(1, 2)
    goes = dice.choice(("nowhere", "sorted", "away"))
    more: tuple[str, ...] = ("--passes", str(passes))
    more += ("--sort-into", "sorted", "--by", "move") if goes == "sorted" else ()
    lines, first = lines_file(folder / name), folder / f"{name}.resume" / "first.jsonl"
    for _ in range(dice.randint(1, 2)):
        child = Child(lambda: _predict(folder, name, *more, "--resume"), folder / "said")
        _wait_for(folder / f".{name}.lock", child)  # before, click itself answers Ctrl-C
        _at_a_moment(dice, child, lambda: _n_lines(lines) + _n_lines(first), passes * _IMAGES)
        child.end(dice.choice(_SIGNALS))
        answered = lines.read_bytes().split(b"\n")[:-1] if lines.exists() else []
        for line in answered if goes == "away" else ():
            (folder / json.loads(line)["path"]).unlink(missing_ok=True)
    last = Child(lambda: _predict(folder, name, *more, "--resume"), folder / "said")
    require(last.end() == 0, (folder / "said").read_text())
    answers, images = _whole(name, *more)
    require((folder / name).read_bytes() == answers, "other answers after a stop")
    require(goes == "away" or _images(folder) == images, "images are lost, doubled or changed")
    return "handled"


def two_predicts(dice: random.Random, place: Path) -> Outcome:
    """Two processes want one output: one of them is refused, and the other's bytes are whole."""
    folder, shared = _fresh(place), dice.choice(("out", "state"))
    first = Child(lambda: _predict(folder, "a.jsonl", "--save-state", "state"), folder / "said")
    lock = folder / (".a.jsonl.lock" if shared == "out" else ".state.lock")
    _wait_for(lock, first)
    out, state = ("a.jsonl", "b") if shared == "out" else ("b.jsonl", "state")
    second = Child(lambda: _predict(folder, out, "--save-state", state), folder / "said 2")
    codes = sorted((first.end(), second.end()))
    require(codes == [0, 2], f"exit codes {codes}")
    answers = [folder / name for name in ("a.jsonl", "b.jsonl") if (folder / name).exists()]
    whole, _ = _whole("a.jsonl")
    require([each.read_bytes() for each in answers] == [whole], "answers are not whole")
    return "refused"


# Compare


def _compare(folder: Path, out: str) -> None:
    """Anew, because its workers are spawned and would load whatever was started here."""
    os.chdir(folder)
    words = ["compare", str(_stream()), "--methods", "tda", "--orders", "3", "--workers", "1"]
    words += ["--results", out]
    os.execv(sys.executable, [sys.executable, "-m", "crg", *words])


@functools.cache
def _stream() -> Path:
    return save_stream(Path(tempfile.mkdtemp(prefix="crg-attacks-")) / "stream.npz")


@functools.cache
def _compared() -> dict[str, Any]:
    folder = _stream().parent
    require(Child(lambda: _compare(folder, "whole.jsonl"), folder / "said").end() == 0, "no run")
    return _measured(folder / "whole.jsonl")


def _measured(path: Path) -> dict[str, Any]:
    """The measurements of each run, without times and memory; each run is there once."""
    runs = [each for each in ledger.read(path).entries.values() if isinstance(each, Result)]
    require(len({each.key for each in runs}) == len(runs), "a run is there twice")
    return {each.key: measured_values(each) for each in runs}


def killed_compare(dice: random.Random, place: Path) -> Outcome:
    """Stopped once, then continued: all runs, each once, equal but for times and memory."""
    expected, out = _compared(), place / "results.jsonl"
    out.unlink(missing_ok=True)
    child = Child(lambda: _compare(place, out.name), place / "said")
    _at_a_moment(dice, child, lambda: _n_lines(out), 6, first=1)
    child.end(dice.choice(_SIGNALS))
    last = Child(lambda: _compare(place, out.name), place / "said")
    require(last.end() == 0, "it stays ended")
    require(_measured(out) == expected, "other results after a stop")
    return "handled"


def two_compares(dice: random.Random, place: Path) -> Outcome:
    """Two commands write one results file: refused, or every run is there once."""
    expected, out = _compared(), place / "results.jsonl"
    out.unlink(missing_ok=True)
    first, second = (
        Child(lambda: _compare(place, out.name), place / f"said {n}") for n in range(2)
    )
    codes = sorted((first.end(), second.end()))
    require(codes in ([0, 0], [0, 2]), f"exit codes {codes}")
    require(_measured(out) == expected, "other results beside a second command")
    lines = ledger.read(out).entries  # both may have begun with an outline
    run = next(number for number, each in lines.items() if isinstance(each, Result))
    done = command("bench", "--rerun", f"{out}:{run}")
    require(done.exit_code in (0, 1), "a line that cannot be repeated")
    return "refused" if 2 in codes else "handled"
