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


def test_any_shift_and_methods_make_a_page_that_repeats_itself(folder: Path) -> None:
    """Variants under other names, and clean as another dataset; accuracies are the same."""
    words = ("--json", "--methods", "bare=crg:gaussian=false", "--orders", "1", "--shift", "clean")
    first, second = (json.loads(demo(*words).stdout)["files"] for _ in range(2))
    assert list(first) == ["shapes:clean"]
    assert first["shapes:clean"]["bare"]["accuracy"] == second["shapes:clean"]["bare"]["accuracy"]
    assert "bare" in Path("report.html").read_text(encoding="utf-8")


def test_images_and_results_can_be_kept(folder: Path) -> None:
    """The store is a feature file, crg report reads the results, only the page is written again."""
    assert demo("--keep", "kept", "--methods", "crg").exit_code == 0
    features = read_features("kept/night-3-64x2")
    assert (len(features), features.n_views) == (64, 2)
    kept = [Path("kept/night-3-64x2/image_features.npy"), Path("kept/demo.jsonl")]
    made = [path.stat().st_mtime_ns for path in kept]
    assert demo("--keep", "kept", "--methods", "crg").exit_code == 0
    assert [path.stat().st_mtime_ns for path in kept] == made
    report = CliRunner().invoke(main, ["report", "kept/demo.jsonl", "--out", "again.html"])
    assert report.exit_code == 0, report.output


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
