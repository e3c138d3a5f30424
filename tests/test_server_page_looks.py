"""The page of ``crg serve`` in a real browser: it fits, is readable, trusts no name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Keys

from browsers import SIZES, complaints, emulate, needs_browser
from live_pages import CLASSES, Page, Stage, press, staged, until
from served import Process

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=pwned=1>,\"'&</script><script>pwned=1</script>"
TOKEN = "a token of the tests"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server and a browser for all tests."""
    with staged(tmp_path_factory.mktemp("page")) as started:
        yield started


@pytest.fixture
def page(stage: Stage) -> Page:
    """The page on a new session, wide and light."""
    return stage.opened(CLASSES)


def test_names_never_become_markup(stage: Stage, tmp_path: Path) -> None:
    """Class and file names that look like HTML are shown as they are, everywhere."""
    page = stage.opened([HOSTILE, "__proto__"])
    odd = tmp_path / "<b onclick=pwned=1>.png"
    odd.write_bytes(stage.images[0].read_bytes())
    page.send(odd)
    page.correct(0, HOSTILE)
    assert page.cards(".label") == [HOSTILE] and page.cards(".file") == [odd.name]
    until(lambda: HOSTILE in " ".join(page.texts("#class-list li")))
    assert page.browser.execute_script("return typeof pwned") == "undefined"
    made = "return document.querySelectorAll('b[onclick], script:not([src]), img[onerror]').length"
    assert page.browser.execute_script(made) == 0


def test_a_token_is_asked_for(page: Page, stage: Stage, tmp_path: Path) -> None:
    """A wrong token is refused in a sentence; with the right one everything works."""
    with Process(tmp_path / "data", token=TOKEN) as guarded:
        page.browser.get(f"{guarded.address}/")
        until(lambda: page.text("#login h1") == "This server needs a token")
        page.browser.find_element("id", "token").send_keys("a wrong one", Keys.ENTER)
        until(lambda: page.text("#problem p").startswith("The token is wrong"))
        page.browser.find_element("id", "token").clear()
        page.browser.find_element("id", "token").send_keys(TOKEN, Keys.ENTER)
        until(lambda: page.text("#start h1") == "Start a session")
        page.browser.find_element("id", "classes").send_keys("\n".join(CLASSES))
        page.click("#new button")
        until(page.is_live)
        page.send(stage.images[0])
        assert page.browser.execute_script("return document.cookie") == ""


CONTRAST = """
const light = text => {
  const [r, g, b] = text.match(/[\\d.]+/g).map(Number).slice(0, 3)
    .map(part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = element => {
  for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
};
const hasText = element => element.checkVisibility()
  && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
return [...document.querySelectorAll("body *")].filter(hasText).map(element => {
  const style = getComputedStyle(element);
  const [a, b] = [element.closest("svg") ? style.fill : style.color, ground(element)].map(light);
  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 80)];
}).filter(([ratio]) => ratio < 4.5);
"""


def test_the_page_fits_and_is_readable(page: Page, stage: Stage) -> None:
    """Nothing scrolls sideways on a desk or a telephone, and all texts have contrast (AA)."""
    page.send(*stage.images)
    page.correct(0, CLASSES[0])
    page.browser.execute_script("document.querySelector('#refused').hidden = false")
    for size in SIZES.values():
        for scheme in ("light", "dark"):
            emulate(page.browser, size, scheme)
            width = page.browser.execute_script("return document.scrollingElement.scrollWidth")
            assert width <= size[0]
            assert page.browser.execute_script(CONTRAST) == []
    page.click("#grid li:nth-child(2) .card")
    box = page.browser.execute_script(
        "return document.getElementById('picker').getBoundingClientRect()"
    )
    assert 0 <= box["left"] < box["right"] <= 390 and 0 <= box["top"] < box["bottom"] <= 844
    press(page, Keys.ESCAPE)


def test_a_phone_shows_images_on_its_first_screen(page: Page, stage: Stage) -> None:
    """Curves and classes are folded there, and open with a touch; on a desk they are open."""
    page.send(*stage.images)
    parts = ("#curves figure", "#class-list li")
    until(lambda: all(page.texts(part) for part in parts))
    emulate(page.browser, SIZES["narrow"])
    page.browser.refresh()
    until(lambda: page.cards(".label"))
    top = "return document.querySelector('.card').getBoundingClientRect().top"
    assert page.browser.execute_script(top) < SIZES["narrow"][1] - 100
    assert not any(page.texts(part) for part in parts)
    page.click("#curves summary")
    until(lambda: page.texts(parts[0]))


def test_every_field_has_a_name(page: Page) -> None:
    """Assistive technology finds a label for each input, select and button."""
    script = """return [...document.querySelectorAll("input, select, textarea, button")]
      .filter(each => !(each.labels?.length || each.getAttribute("aria-label")
        || each.textContent.trim())).map(each => each.outerHTML)"""
    assert page.browser.execute_script(script) == []


def test_the_policy_forbids_nothing_that_the_page_does(page: Page, stage: Stage) -> None:
    """Neither a violation of the content security policy nor an error of a script."""
    complaints(page.browser)
    page.send(*stage.images)
    page.correct(0, CLASSES[0])
    page.browser.refresh()
    until(lambda: len(page.cards(".label")) == 6)
    assert complaints(page.browser) == []
