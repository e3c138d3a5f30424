"""``crg demo``: rendered images through every method, a table and a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from crg.cli import main
from crg.features.files import read_features

SMALL = ("--images", "64", "--views", "2", "--orders", "2", "--workers", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def demo(*words: str) -> Result:
    """The command in this process, on few images."""
    return CliRunner().invoke(main, ["demo", *SMALL, *words])


def test_the_demo_prints_a_table_and_writes_a_page(folder: Path) -> None:
    """Every method has a row in the table and on the page, and nothing else is left behind."""
    outcome = demo()
    assert outcome.exit_code == 0, outcome.output
    page = Path("report.html").read_text(encoding="utf-8")
    for method in ("zero_shot", "tda", "dpe", "crg", "anchored"):
        assert method in outcome.stdout and method in page
    assert "night" in page and "data:image/png" in page
    assert {path.name for path in folder.iterdir()} == {"report.html", ".report.html.lock"}


def test_the_demo_repeats_itself(folder: Path) -> None:
    """The same command gives the same accuracies."""
    words = ("--json", "--methods", "crg", "--shift", "fog", "--severity", "2")
    first, second = (json.loads(demo(*words).stdout) for _ in range(2))
    [a], [b] = first["files"].values(), second["files"].values()
    assert a["crg"]["accuracy"] == b["crg"]["accuracy"]
    assert a["crg"]["accuracy"]["per_order"] != []


def test_images_and_results_can_be_kept(folder: Path) -> None:
    """The store is read like a feature file, crg report reads the results, nothing is remade."""
    assert demo("--keep", "kept", "--methods", "crg").exit_code == 0
    features = read_features("kept/night-3-64x2")
    assert (len(features), features.n_views) == (64, 2)
    kept = [Path("kept/night-3-64x2/image_features.npy"), Path("kept/demo.jsonl")]
    made = [path.stat().st_mtime_ns for path in kept]
    assert demo("--keep", "kept", "--methods", "crg").exit_code == 0
    assert [path.stat().st_mtime_ns for path in kept] == made
    report = CliRunner().invoke(main, ["report", "kept/demo.jsonl", "--out", "again.html"])
    assert report.exit_code == 0, report.output


def test_another_persons_page_is_left_alone(folder: Path) -> None:
    """A file that is no page of ours is refused before any work, and keeps its content."""
    Path("report.html").write_text("mine")
    outcome = demo()
    assert outcome.exit_code == 2 and "--report" in outcome.stderr
    assert Path("report.html").read_text() == "mine"


def test_an_older_page_is_replaced(folder: Path) -> None:
    """Our own page may be written again."""
    assert demo("--methods", "crg").exit_code == 0
    assert demo("--methods", "crg").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shift", "knight"], "night"),
        (["--severity", "6"], "severity"),
        (["--report", "none/page.html"], "none"),
        (["--methods", "crgg"], "crg"),
    ],
)
def test_mistakes_get_one_sentence(folder: Path, words: list[str], said: str) -> None:
    """Exit code 2, one sentence that names the trouble, and no page."""
    outcome = demo(*words)
    assert outcome.exit_code == 2 and said in outcome.stderr
    assert "Traceback" not in outcome.output and not Path("report.html").exists()


@pytest.mark.parametrize("methods", ["zero_shot", "tda", "bare=crg:gaussian=false"])
def test_any_methods_make_a_page(folder: Path, methods: str) -> None:
    """The page does without CRG, and with variants under other names."""
    outcome = demo("--methods", methods, "--orders", "1")
    assert outcome.exit_code == 0, outcome.output
    assert methods.partition("=")[0] in Path("report.html").read_text(encoding="utf-8")


def test_clean_means_no_shift(folder: Path) -> None:
    """Images without a shift are another dataset."""
    outcome = demo("--shift", "clean", "--methods", "zero_shot", "--orders", "1", "--json")
    assert list(json.loads(outcome.stdout)["files"]) == ["shapes:clean"]
