"""``crg methods check``: the generic checks on a file of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from crg.checks import Verdict, answers, iter_checks
from crg.cli import methods as command
from crg.plugins import load_plugin
from documents import ROOT, code_blocks
from processes import called
from sentences import check_refused

FAULTY = """
from dataclasses import dataclass

from crg import Diagnostics, Method, Prediction, Sample, register


@register
class Faulty(Method):
    name = "faulty"
    paper = "none"

    @dataclass(frozen=True)
    class Config:
        weight: float = 1.0

    def reset(self) -> None:
        self.n_seen = 0

    def step(self, sample: Sample) -> Prediction:
        self.n_seen += 1
        logits = self.task.text_features @ sample.views[0, :]
        assert self.n_seen < 3, "two are\\nenough"
        return self._predicted(logits, Diagnostics(0.0, 0))
"""
CLASS_LINE = 1 + FAULTY.splitlines().index("@register")
STEP_LINE = 1 + next(n for n, line in enumerate(FAULTY.splitlines()) if "assert" in line)


@pytest.fixture(autouse=True)
def place(here: Path, own_registry: None) -> Path:
    """A working directory, and a registry that forgets what the test registers."""
    return here


def check(*words: str, code: int = 0) -> Result:
    """The command in this process."""
    return called("methods", "check", *words, code=code)


def test_the_documented_method_passes(place: Path) -> None:
    """The method of CONTRIBUTING.md, written to a file, passes every check."""
    (place / "my_method.py").write_text(code_blocks(ROOT / "CONTRIBUTING.md", "python")[0])
    done = check("my_method.py")
    assert done.stdout.startswith("nearest_images: ") and done.stdout.endswith(" 0 failed.\n")


def test_a_failed_check_is_one_line_with_file_and_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line names the user's line that raised, or else where the class begins; exit code 1."""
    (place / "faulty.py").write_text(FAULTY)
    few = [answers.options_are_documented, answers.same_stream_gives_same_logits]
    monkeypatch.setattr(command, "iter_checks", lambda name: iter_checks(name, few))
    done = check("faulty.py", code=1)
    help_is_missing, raised, summary = done.stdout.splitlines()
    assert help_is_missing.startswith(
        f"faulty.py:{CLASS_LINE}: faulty fails options_are_documented: "
    )
    assert raised.startswith(f"faulty.py:{STEP_LINE}: faulty fails same_stream_gives_same_logits: ")
    assert raised.endswith("AssertionError: two are\\nenough")
    assert summary == "faulty: 0 checks passed, 2 failed."


def test_a_check_that_was_not_run_is_noted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped check is no failure: a note says why it was not run."""
    (place / "faulty.py").write_text(FAULTY)
    monkeypatch.setattr(command, "iter_checks", lambda _: [Verdict("some", skipped="No torch.")])
    done = check("faulty.py")
    assert done.stdout == "faulty: 0 checks passed, 0 failed.\n"
    assert "some was not run. No torch." in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "registers no method: decorate"),
        ("x = 1\n\nx / 0\n", "line 3, ZeroDivisionError"),
        ("x = 1\n\nx x\n", "line 3"),
        (FAULTY.replace('"faulty"', '"tda"'), "choose another name"),
    ],
)
def test_a_file_without_a_method_is_refused(place: Path, text: str, says: str) -> None:
    """A file that registers nothing or fails to load is refused, here and as a plug-in."""
    (place / "own.py").write_text(text)
    for words in (["methods", "check", "own.py"], ["methods", "zero_shot", "--plugin", "own.py"]):
        assert says in called(*words, code=2).stderr


def test_a_plug_in_may_be_named_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a plug-in once more gives the same methods, also those of a module beside it."""
    monkeypatch.syspath_prepend(place)
    (place / "beside_it.py").write_text(FAULTY)
    (place / "plug.py").write_text("import beside_it\n")
    assert [load_plugin("plug.py"), load_plugin("plug.py")] == [["faulty"], ["faulty"]]
    assert load_plugin("beside_it") == ["faulty"]
    check_refused("registers no method", load_plugin, "json")
