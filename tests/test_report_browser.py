"""The report in a real browser: wide and narrow, light and dark, on screen and on paper."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from crg.report.study_page import study_page
from crg.report.study_section import figures_of
from made_studies import SHAPES, all_studies, noise_study

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
WIDE, NARROW, PAPER = (1280, 900), (390, 844), (718, 1000)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars")  # fmt: skip

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)

OUTSIDE = """
return [...document.querySelectorAll('svg')].flatMap(svg => {
  const page = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < page.left - 1 || box.right > page.right + 1
      || box.top < page.top - 1 || box.bottom > page.bottom + 1;
  }).map(text => text.textContent);
});
"""
OVERLAPPING = """
return [...document.querySelectorAll('svg')].flatMap(svg => {
  const ends = [...svg.querySelectorAll('g.end')];
  const boxes = ends.map(end => end.getBoundingClientRect());
  return ends.flatMap((end, n) => ends.slice(n + 1).filter((other, m) => {
    const a = boxes[n], b = boxes[n + 1 + m];
    return a.top < b.bottom - 2 && b.top < a.bottom - 2;
  }).map(other => end.textContent + ' / ' + other.textContent));
});
"""
LETTERS = """
return [...document.querySelectorAll('figure.chart svg')].map(svg =>
  13 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
"""
CUT_OFF = """
return [...document.querySelectorAll('table')].filter(table => {
  const box = table.getBoundingClientRect(), around = table.parentElement;
  return box.width && (box.right > innerWidth + 1 || around.scrollWidth > around.clientWidth + 1);
}).length;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium on the page of made studies."""
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(study_page(all_studies()), encoding="utf-8")
    options = Options()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(str(DRIVER)))
    driver.get(page.as_uri())
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Chrome) -> Chrome:
    """The page anew, at the wide size, on a light screen, with every part open."""
    emulate(browser)
    browser.refresh()
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    return browser


def emulate(browser: Chrome, size: tuple[int, int] = WIDE, media: str = "screen",
            scheme: str = "light") -> None:  # fmt: skip
    """A screen or a sheet of paper of a size, in light or dark."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def told(browser: Chrome, script: str) -> Any:
    """What a script finds on the page."""
    return browser.execute_script(script)


def first_column(browser: Chrome, section: str) -> list[str]:
    """The names of the rows of the first table below a section's overview, from the top."""
    rows = f"[...document.querySelector('#{section} details.source table').tBodies[0].rows]"
    return list(told(browser, f"return {rows}.map(row => row.cells[0].dataset.v)"))


def brightness(browser: Chrome) -> list[int]:
    """How bright the ground and the letters are, as sums of red, green and blue."""
    style = "getComputedStyle(document.body)"
    colours = told(browser, f"return [{style}.backgroundColor, {style}.color]")
    return [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]


@pytest.mark.parametrize("size", [WIDE, NARROW, (360, 740)], ids=["wide", "narrow", "narrowest"])
def test_the_page_fits(page: Chrome, size: tuple[int, int]) -> None:
    """The page never scrolls sideways, and every text of a chart lies inside it."""
    emulate(page, size)
    assert told(page, "return document.scrollingElement.scrollWidth") <= size[0]
    assert told(page, "return document.querySelectorAll('svg').length") > 20
    assert told(page, OUTSIDE) == []
    assert told(page, OVERLAPPING) == []


@pytest.mark.parametrize("size", [WIDE, NARROW, (360, 740)], ids=["wide", "narrow", "narrowest"])
def test_letters_of_charts_can_be_read(page: Chrome, size: tuple[int, int]) -> None:
    """No chart is shown so small that its letters fall below ten pixels; it scrolls instead."""
    emulate(page, size)
    sizes = told(page, LETTERS)
    assert len(sizes) > 20 and min(sizes) >= 10
    assert told(page, "return document.scrollingElement.scrollWidth") <= size[0]


def test_tables_have_the_width_of_the_screen_and_text_has_not(page: Chrome) -> None:
    """At 1280 pixels tables get at least 1150 of them, and lines of text at most 760."""
    assert told(page, "return document.querySelector('#table .wide').clientWidth") >= 1150
    texts = "[...document.querySelectorAll('section > p, figcaption')]"
    assert max(told(page, f"return {texts}.map(text => text.offsetWidth)")) <= 760


def test_the_checks_of_texts_would_find_some(page: Chrome) -> None:
    """A text that is moved out of its chart, and one that is moved onto another, are found."""
    told(
        page,
        """const [a, b] = document.querySelector('svg:has(g.end + line)').querySelectorAll('g.end');
      a.innerHTML = b.innerHTML; document.querySelector('svg text').setAttribute('x', -50)""",
    )
    assert len(told(page, OUTSIDE)) == 1
    assert told(page, OVERLAPPING)


def test_nothing_goes_wrong_in_the_console(page: Chrome) -> None:
    """Opening the page leaves no error behind."""
    entries: list[dict[str, str]] = page.get_log("browser")  # type: ignore[no-untyped-call]
    assert [entry for entry in entries if entry["level"] == "SEVERE"] == []


def test_a_click_sorts_by_number_and_another_turns_it(page: Chrome) -> None:
    """The first click puts the highest on top, the second the lowest; gaps stay last."""
    as_given = first_column(page, "table")
    head = page.find_elements(By.CSS_SELECTOR, "#table details.source table.sortable thead th")[1]
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    falling = first_column(page, "table")
    assert head.get_attribute("aria-sort") == "descending"
    assert falling[:2] == ["crg, tuned", "crg"] and falling != as_given
    assert set(falling[-2:]) == {"coop", "difftpt"}
    button.send_keys(Keys.ENTER)
    rising = first_column(page, "table")
    assert head.get_attribute("aria-sort") == "ascending"
    assert rising[:2] == ["dpe", "zero_shot"] and set(rising[-2:]) == {"coop", "difftpt"}


def test_names_sort_too(page: Chrome) -> None:
    """The first column sorts by the alphabet, and only one head says that it is sorted."""
    heads = page.find_elements(By.CSS_SELECTOR, "#table details.source table.sortable thead th")
    for head in heads[1::-1]:
        head.find_element(By.TAG_NAME, "button").click()
    names = first_column(page, "table")
    assert names == sorted(names)
    assert [head.get_attribute("aria-sort") for head in heads[:2]] == ["ascending", None]


def test_the_data_link_holds_what_is_drawn(page: Chrome) -> None:
    """The CSV behind a figure is the figure's numbers, and there is one behind each."""
    figures = page.find_elements(By.CSS_SELECTOR, "figure.chart")
    links = page.find_elements(By.CSS_SELECTOR, "figure.chart a.data")
    assert len(figures) == len(links) > 20
    link = page.find_element(By.CSS_SELECTOR, "#noise a.data[download$='night-3-noise.csv']")
    address = str(link.get_attribute("href"))
    rows = list(csv.reader(io.StringIO(unquote(address.partition(",")[2]))))
    drawn = figures_of(noise_study(), SHAPES.name)[0]
    assert tuple(rows[0]) == drawn.header
    assert [row[0] for row in rows[1:]] == [row[0] for row in drawn.data]
    assert [float(row[2]) for row in rows[1:]] == pytest.approx([row[2] for row in drawn.data])


def test_dark_is_dark(page: Chrome) -> None:
    """A reader who prefers dark gets light letters on a dark ground."""
    ground, letters = brightness(page)
    assert ground > letters
    emulate(page, scheme="dark")
    ground, letters = brightness(page)
    assert ground < letters


def test_paper_cuts_nothing_off(page: Chrome) -> None:
    """Printed, every table of an open part fits on the sheet."""
    emulate(page, PAPER, media="print")
    assert told(page, CUT_OFF) == 0
    assert told(page, "return document.scrollingElement.scrollWidth") <= PAPER[0]
    assert told(page, "return document.querySelector('a.data').offsetParent === null")


def test_paper_has_what_the_reader_opened(page: Chrome) -> None:
    """What is closed stays closed, or a report would be a hundred pages; prompts are all there."""
    told(page, "for (const d of document.querySelectorAll('details')) d.open = false")
    told(page, "document.querySelector('details.source').open = true")
    emulate(page, PAPER, media="print")
    parts = "[...document.querySelectorAll('details.source')]"
    heights = told(page, f"return {parts}.map(part => part.offsetHeight)")
    assert heights[0] > 300 and max(heights[1:]) < 60
    assert told(page, "return document.querySelector('.prompts li').offsetHeight") > 0


def test_all_parts_open_at_once(page: Chrome) -> None:
    """A button opens every part, as for printing, and closes them again."""
    told(page, "for (const d of document.querySelectorAll('details')) d.open = false")
    button = page.find_element(By.ID, "open-all")
    closed = "return document.querySelectorAll('details.source:not([open])').length"
    assert told(page, closed) > 10
    button.click()
    assert told(page, closed) == 0 and button.text == "Close all parts"
    button.click()
    assert told(page, closed) > 10 and button.text == "Open all parts"


def test_charts_fit_on_a_phone(page: Chrome) -> None:
    """No chart is wider than its panel at 390 pixels, so nothing of it is out of sight."""
    emulate(page, NARROW)
    boxes = "[...document.querySelectorAll('.images')]"
    assert told(page, f"return {boxes}.filter(b => b.scrollWidth > b.clientWidth + 1).length") == 0


def test_the_overview_fits_at_1280_pixels(page: Chrome) -> None:
    """With the ten rows of the largest tables none of its columns is out of sight."""
    fits = "return document.querySelector('#table .overview').parentElement"
    width = told(page, f"{fits}.scrollWidth"), told(page, f"{fits}.clientWidth")
    assert width[0] <= width[1]


def test_a_box_that_scrolls_says_so(page: Chrome) -> None:
    """The hint stands above what is wider than the screen, and above nothing else."""
    wrong = """return [...document.querySelectorAll('.wide, .images')].filter(box =>
      box.classList.contains('scrolls') !== (box.scrollWidth > box.clientWidth + 1)).length"""
    hints = "return document.querySelectorAll('.scrolls').length"
    for size, some in ((NARROW, True), (WIDE, False)):
        emulate(page, size)
        WebDriverWait(page, 5).until(lambda shown: told(shown, wrong) == 0)
        assert (told(page, hints) > 10) is some


def test_means_stay_below_what_they_are_of(page: Chrome) -> None:
    """Sorting moves sources and leaves the means at the bottom."""
    page.find_elements(By.CSS_SELECTOR, "#table .overview thead button")[1].click()
    last = "document.querySelector('#table .overview').rows"
    assert told(page, f"return [...{last}].at(-1).cells[0].textContent") == "mean of sources"


def test_tables_scroll_in_their_own_box(page: Chrome) -> None:
    """On a phone a wide table scrolls by itself and keeps the names in sight."""
    emulate(page, NARROW)
    box = "const box = document.querySelector('#table details.source .wide');"
    assert told(page, f"{box} return box.scrollWidth > box.clientWidth")
    script = f"""{box} const name = box.querySelector('tbody th');
      const before = name.getBoundingClientRect().left;
      box.scrollLeft = 200; return name.getBoundingClientRect().left - before"""
    assert abs(told(page, script)) < 2


def test_the_page_is_whole_without_scripts(tmp_path: Path) -> None:
    """All that the script adds is sorting: tables, figures and data are in the file itself."""
    page = study_page(all_studies()).partition("<script>")[0]
    assert page.count("<table") > 20 and page.count("<svg") > 20 and "<button" not in page
