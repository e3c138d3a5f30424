"""``crg demo``: rendered images through several methods, a table, a page and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result

from crg.report.figures import PICTURE
from documents import ROOT
from processes import called

SMALL = ("--images", "64", "--views", "2", "--orders", "2")
pytestmark = pytest.mark.usefixtures("here")


def demo(*words: str, code: int = 0) -> Result:
    """The command in this process, on few images."""
    return called("demo", *SMALL, *words, code=code)


def test_the_demo_prints_a_table_and_writes_a_page() -> None:
    """Every method has a row in the table and on the page, and nothing else is left behind."""
    table = demo().stdout
    page = Path("report.html").read_text(encoding="utf-8")
    for method in ("zero_shot", "tda", "dpe", "crg", "anchored"):
        assert method in table and method in page
    assert "fog" in page and "data:image/png" in page
    for part in ("Win / tie / loss", "Simulated text", "demo.jsonl", "Feature files", "<nav>"):
        assert part not in page  # nothing that does not apply to one rendered dataset
    assert {path.name for path in Path().iterdir()} == {"report.html"}


def test_any_shift_and_methods_make_a_page_that_repeats_itself() -> None:
    """Variants under other names, and clean as another dataset; accuracies are the same."""
    words = ("--methods", "bare=crg:gaussian=false", "--orders", "1", "--shift", "clean")
    first, second = (demo(*words).stdout for _ in range(2))
    assert first == second and "shapes:clean" in first and "bare" in first
    assert "bare" in Path("report.html").read_text(encoding="utf-8")


def test_the_page_opens_with_the_gain_and_what_changed() -> None:
    """Sentence, large figure, images in true proportion, intervals; numbers as in the table."""
    words = ("--images", "400", "--views", "1", "--methods", "anchored,crg", "--orders", "1")
    table = demo(*words, "--picture", "demo.svg").stdout
    page = Path("report.html").read_text(encoding="utf-8")
    places = [page.index(part) for part in ("<h1>", "the model is right", 'class="large"',
                                            'class="shot', "gain over zero-shot")]  # fmt: skip
    assert places == sorted(places)
    shown = [float(each) for each in re.findall(r"right on ([\d.]+)%", page)]
    rows = ("zero_shot", "anchored")
    means = [float(re.findall(rf"{label}\D+([\d.]+)", table)[0]) for label in rows]
    assert shown == pytest.approx(means, abs=0.051)  # both are rounded
    corrected, broken = (int(each) for each in re.findall(r'<b class="\w+">(\d+)</b>', page))
    assert corrected - broken == round(4 * (means[1] - means[0])) > 0
    better, worse = (page.count(f'class="shot {kind}"') for kind in ("better", "worse"))
    assert better + worse == 16 < corrected + broken
    assert better == pytest.approx(16 * corrected / (corrected + broken), abs=0.51)
    picture = Path("demo.svg").read_text(encoding="utf-8")
    assert f"{corrected} answers corrected, {broken} broken" in picture


def test_the_picture_of_the_readme_is_one_that_the_demo_draws() -> None:
    """A small SVG with images and both curves; another person's file is left alone."""
    picture = (ROOT / "docs/demo.svg").read_text(encoding="utf-8")
    assert PICTURE in picture and len(picture) < 300_000
    tags = [each.tag.rpartition("}")[2] for each in ElementTree.fromstring(picture).iter()]
    assert tags.count("image") == 8 and "zero_shot" in picture and "anchored" in picture
    assert "docs/demo.svg" in (ROOT / "README.md").read_text(encoding="utf-8").partition("## ")[0]
    Path("mine.svg").write_text("<svg/>")
    assert "--picture" in demo("--picture", "mine.svg", code=2).stderr
    assert "--images" in demo("--methods", "zero_shot", "--picture", "none.svg", code=2).stderr
