"""The report in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

from browsers import SIZES, chromium, complaints, emulate, needs_browser
from made_reports import every_page, story_page

pytestmark = needs_browser

OUTSIDE = """
return [...document.querySelectorAll('.panel > svg')].flatMap(svg => {
  const page = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < page.left - 2 || box.right > page.right + 2
      || box.top < page.top - 2 || box.bottom > page.bottom + 2;
  }).map(text => text.textContent);
});
"""
TOO_WIDE = """
return [...document.querySelectorAll('svg, caption > span')].filter(each =>
  each.getBoundingClientRect().right > innerWidth).length;
"""
LETTERS = """
return Math.min(...[...document.querySelectorAll('.panel > svg')].map(svg =>
  9 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width));
"""
LARGE = """
return [...document.querySelectorAll('.large svg')].map(
  svg => [svg.getBoundingClientRect().width, svg.viewBox.baseVal.width]).filter(each => each[0]);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium on the page of made experiments, with every part open."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(every_page(), "utf-8")
    with chromium() as driver:
        driver.get((folder / "report.html").as_uri())
        driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        yield driver


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_page_fits(browser: Chrome, size: tuple[int, int]) -> None:
    """It never scrolls sideways, charts shrink with their letters readable, tables scroll alone."""
    emulate(browser, size)
    run = browser.execute_script
    assert run("return document.scrollingElement.scrollWidth") <= size[0]
    assert run("return document.querySelectorAll('.panel > svg').length") >= 8
    assert run(TOO_WIDE) == 0 and run(OUTSIDE) == []
    assert run(LETTERS) >= 9
    boxes = "[...document.querySelectorAll('.scroll')]"
    scrolls = run(f"return {boxes}.some(box => box.scrollWidth > box.clientWidth + 1)")
    assert scrolls or size == SIZES["wide"]


def test_dark_is_dark(browser: Chrome) -> None:
    """A reader who prefers dark gets light letters on a dark ground, in the charts too."""
    style = "getComputedStyle(document.body)"
    text = "getComputedStyle(document.querySelector('.panel svg text'))"
    script = f"return [{style}.backgroundColor, {style}.color, {text}.fill]"
    for scheme, is_dark in (("light", False), ("dark", True)):
        emulate(browser, SIZES["wide"], scheme)
        colours = browser.execute_script(script)
        ground, *letters = (sum(map(int, re.findall(r"\d+", each)[:3])) for each in colours)
        assert all((ground < letter) == is_dark for letter in letters)
    assert complaints(browser) == []  # the policy forbids nothing that the page itself does


def test_a_story_fills_the_screen(browser: Chrome, tmp_path: Path) -> None:
    """One large figure as wide as the page, whose letters can be read on a phone too."""
    (tmp_path / "story.html").write_text(story_page(tmp_path), "utf-8")
    browser.get((tmp_path / "story.html").as_uri())
    for size in SIZES.values():
        emulate(browser, size)
        [(width, units)] = browser.execute_script(LARGE)
        assert width > 0.9 * size[0] and width >= units
        assert browser.execute_script("return document.scrollingElement.scrollWidth") <= size[0]
    assert complaints(browser) == []


def test_a_figure_is_downloaded_as_one_svg_file(tmp_path: Path) -> None:
    """All panels with their names and the legend, as a file that stands alone."""
    (tmp_path / "report.html").write_text(every_page(), "utf-8")
    with chromium(tmp_path) as browser:
        browser.get((tmp_path / "report.html").as_uri())
        browser.execute_script("document.querySelector('[data-name=noise-noise]').click()")
        WebDriverWait(browser, 20).until(lambda _: (tmp_path / "noise-noise.svg").exists())
        assert complaints(browser) == []
    root = ElementTree.parse(tmp_path / "noise-noise.svg").getroot()
    texts = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"shapes:night:3", "accuracy, %"} <= set(texts) and "crg" in " ".join(texts)
    assert float(root.attrib["width"]) > 200 and float(root.attrib["height"]) > 200
