"""The review page in a real browser: seen, filtered, corrected, exported and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import ActionChains, Chrome, Keys

from browsers import SIZES, chromium, complaints, emulate, needs_browser
from crg.predict import review
from crg.predict.corrections import read_corrections
from crg.predict.files import read_names
from processes import wait_until

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=pwned=1>,\"'&</script><script>pwned=1</script>"
CLASSES = ["cat", "red fox", "fox", HOSTILE, "=2+5"]
GIVEN = {"gone.png": "fox"}  # corrected before, so it is exported again
MANY = [f"class {number:04}" for number in range(1000)]


def answer(path: Path, label: str, probability: float, **more: Any) -> dict[str, Any]:
    """A line as crg predict writes it."""
    return {"path": str(path), "label": label, "probability": probability, "step": 1,
            "zero_shot_label": "cat", "zero_shot_probability": 0.4,
            "changed": label not in ("cat", ""), **more}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of seven images of all kinds, beside earlier answers."""
    place = tmp_path_factory.mktemp("review")
    names = ["a.png", "b.png", "=c,ä.png", 'd".png', "<b onclick=pwned=1>.png", "e.png", "gone.png"]
    paths = [place / name for name in names]
    for number, path in enumerate(paths[:-1]):
        Image.new("RGB", (300, 200), (40 * number, 90, 200)).save(path)
    lines = [
        answer(paths[0], "cat", 0.9),
        answer(paths[1], "cat", 0.6),
        answer(paths[2], "fox", 0.8),
        answer(paths[3], HOSTILE, 0.7),
        answer(paths[4], "", 0.3, top=[{"label": "fox", "probability": 0.3}]),
        {"path": str(paths[5]), "error": "e.png is <i>damaged</i>."},
        answer(paths[6], "fox", 1.0, corrected=True),
    ]
    known = {line["path"]: line for line in lines}
    before = {**known, str(paths[2]): answer(paths[2], "cat", 0.5)}
    missing = review.write(place / "page.html", known, CLASSES, f"Review of {HOSTILE}", before)
    assert missing == 1
    return place


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Chrome]:
    """Chromium, whose downloads go into the folder."""
    with chromium(downloads=folder) as started:
        yield started


@pytest.fixture
def browser(driver: Chrome, folder: Path) -> Iterator[Chrome]:
    """Chromium on the page, with nothing corrected yet."""
    emulate(driver, SIZES["wide"])
    driver.get((folder / "page.html").as_uri())
    while corrections(driver) != GIVEN:  # the browser forgets in its own time
        driver.refresh()
    yield driver
    driver.execute_script("localStorage.clear()")


def card(browser: Chrome, name: str) -> Any:
    """The card of the image of this name."""
    script = (
        "return [...document.querySelectorAll('.card')].find(c => c.title.endsWith(arguments[0]))"
    )
    return browser.execute_script(script, name)


def shown(browser: Chrome) -> list[str]:
    """The names of the images that pass the filters."""
    cards = browser.execute_script("return visible().map(card => card.image.path)")
    return [Path(path).name for path in cards]


def press(browser: Chrome, *keys: str) -> None:
    """Type, wherever the focus is."""
    ActionChains(browser).send_keys(*keys).perform()


def set_to(browser: Chrome, field: str, value: Any) -> None:
    """Move a filter as a person does."""
    script = """const field = document.getElementById(arguments[0]);
    if (field.type === "checkbox") field.checked = arguments[1]; else field.value = arguments[1];
    field.dispatchEvent(new Event("input", {bubbles: true}));"""
    browser.execute_script(script, field, value)


def corrections(browser: Chrome) -> dict[str, str]:
    """The corrections on the page, by the name of the image."""
    pairs = browser.execute_script("return [...corrections]")
    return {Path(path).name: label for path, label in pairs}


def status(browser: Chrome) -> str:
    """The last announcement to people who cannot see the page."""
    return str(browser.execute_script("return document.getElementById('status').textContent"))


def test_a_click_corrects_or_confirms_and_undo_takes_it_back(browser: Chrome) -> None:
    """The card shows the new label and its mark; Undo brings the old one back; Enter confirms."""
    card(browser, "a.png").click()
    options = browser.find_elements("css selector", "#options li")
    [option] = [each for each in options if each.text == "fox"]
    option.click()
    assert corrections(browser) == {**GIVEN, "a.png": "fox"}
    assert "fox\ncorrected" in card(browser, "a.png").text
    assert status(browser) == "a.png: fox instead of cat."
    browser.find_element("id", "undo").click()
    assert corrections(browser) == GIVEN and "cat\n90.0%" in card(browser, "a.png").text
    card(browser, "b.png").click()
    press(browser, Keys.ENTER)
    assert corrections(browser) == {**GIVEN, "b.png": "cat"}
    assert "confirmed" in card(browser, "b.png").text


def test_the_keyboard_alone_is_enough(browser: Chrome) -> None:
    """Arrows, Enter, a few letters, Enter; Escape changes nothing, Delete and Ctrl+Z undo."""
    browser.execute_script("document.getElementById('undo').disabled = true; current.focus()")
    press(browser, Keys.HOME, Keys.ARROW_DOWN)
    wait_until(lambda: browser.switch_to.active_element == card(browser, "b.png"))
    press(browser, Keys.ENTER, "fox")
    field = browser.switch_to.active_element
    active = field.get_attribute("aria-activedescendant")
    assert browser.find_element("id", str(active)).text == "fox"  # before "red fox"
    press(browser, Keys.ARROW_DOWN, Keys.ENTER)
    assert corrections(browser) == {**GIVEN, "b.png": "red fox"}
    wait_until(lambda: browser.switch_to.active_element == card(browser, "a.png"))  # the next
    press(browser, Keys.ARROW_LEFT, Keys.ENTER, "cat", Keys.ESCAPE)
    assert corrections(browser) == {**GIVEN, "b.png": "red fox"}
    press(browser, Keys.DELETE)
    assert corrections(browser) == GIVEN
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    assert corrections(browser) == {**GIVEN, "b.png": "red fox"}


def test_several_are_corrected_at_once(browser: Chrome) -> None:
    """Space, Shift with arrows, Ctrl+A and Ctrl+click select; Enter labels all, Undo undoes all."""
    browser.execute_script("card = visible().find(c => c.title.endsWith('b.png')); card.focus()")
    press(browser, Keys.SPACE, Keys.ARROW_RIGHT, Keys.SPACE, Keys.ENTER)
    assert browser.find_element("id", "picker-title").text == "2 images"
    press(browser, "red", Keys.ENTER)
    both = {"a.png": "red fox", "b.png": "red fox"}
    assert corrections(browser) == {**GIVEN, **both} and status(browser) == "2 images: red fox."
    wait_until(lambda: browser.switch_to.active_element == card(browser, "=c,ä.png"))  # after them
    browser.find_element("id", "undo").click()
    assert corrections(browser) == GIVEN
    held = ActionChains(browser).key_down(Keys.CONTROL)
    held.click(card(browser, "a.png")).click(card(browser, "b.png")).key_up(Keys.CONTROL).perform()
    browser.find_element("id", "label-selected").click()
    press(browser, "red", Keys.ENTER)
    assert corrections(browser) == {**GIVEN, **both}
    card(browser, "b.png").send_keys(Keys.CONTROL, "a")
    assert browser.find_element("id", "label-selected").text == "Label 7 selected…"
    set_to(browser, "only-corrected", True)  # what is not shown is not selected either
    assert browser.find_element("id", "label-selected").text == "Label 3 selected…"
    press(browser, Keys.ESCAPE)  # selects none
    browser.find_element("id", "select").click()  # as on a telephone
    card(browser, "a.png").click()
    assert browser.find_element("id", "label-selected").text == "Label 1 selected…"
    card(browser, "a.png").send_keys(Keys.SHIFT, Keys.END)
    press(browser, Keys.DELETE)
    assert corrections(browser) == {"b.png": "red fox"}


def test_an_image_is_enlarged(browser: Chrome, folder: Path) -> None:
    """Z shows the file itself, arrows the next one, and Enter labels it."""
    card(browser, "b.png").send_keys("z")
    shown = """const image = document.getElementById("zoom-image");
      return [image.src, image.complete ? image.naturalWidth : 0]"""
    wait_until(lambda: browser.execute_script(shown) == [(folder / "b.png").as_uri(), 300])
    press(browser, Keys.ARROW_RIGHT)
    wait_until(lambda: browser.execute_script(shown) == [(folder / "a.png").as_uri(), 300])
    assert browser.find_element("id", "zoom-answer").text == "cat · 90.0%"
    press(browser, Keys.ENTER, "red", Keys.ENTER)
    assert corrections(browser) == {**GIVEN, "a.png": "red fox"}
    browser.execute_script("byPath.get(arguments[0]).source = 'moved.png'", str(folder / "b.png"))
    card(browser, 'd".png').send_keys("z")
    wait_until(lambda: browser.execute_script(shown)[1] == 300)
    browser.find_element("id", "zoom-close").click()
    card(browser, "b.png").send_keys(Keys.ENTER)
    browser.find_element("id", "enlarge").click()
    wait_until(lambda: browser.execute_script(shown)[1] == 112)  # the thumbnail
    press(browser, Keys.ESCAPE)
    wait_until(lambda: browser.switch_to.active_element == card(browser, "b.png"))
    complaints(browser)  # that the file is missing


def test_a_class_can_be_added(browser: Chrome, folder: Path) -> None:
    """A new name is a class from then on, also after a reload; crg predict reads the list."""
    card(browser, "a.png").click()
    press(browser, "Wolf", Keys.ENTER)
    assert corrections(browser) == {**GIVEN, "a.png": "Wolf"}
    assert status(browser) == "a.png: Wolf instead of cat. A new class: download the classes too."
    browser.refresh()
    wait_until(lambda: "a.png" in corrections(browser))
    card(browser, "b.png").click()
    press(browser, "wol", Keys.ENTER)
    assert corrections(browser) == {**GIVEN, "a.png": "Wolf", "b.png": "Wolf"}
    browser.find_element("id", "names").click()
    wait_until((folder / "classes.txt").exists)
    assert read_names(str(folder / "classes.txt")) == (*CLASSES, "Wolf")


def test_an_unsure_card_says_what_it_leans_to(browser: Chrome) -> None:
    """The class is on the card, and first in the picker."""
    unsure = card(browser, "<b onclick=pwned=1>.png")
    assert "unsure\n30.0%, leans to fox" in unsure.text
    unsure.click()
    assert browser.find_element("css selector", "#options li").text == "fox\nit leans to this"


@pytest.mark.parametrize(
    ("field", "value", "left"),
    [
        ("most", 65, {"b.png", "<b onclick=pwned=1>.png", "e.png"}),
        ("only-changed", True, {"=c,ä.png", 'd".png', "gone.png"}),
        ("only-unsure", True, {"<b onclick=pwned=1>.png"}),
        ("only-since", True, {"=c,ä.png"}),
        ("only-corrected", True, {"a.png", "gone.png"}),
        ("class", "1", {"a.png", "b.png"}),
    ],
)
def test_filters_leave_what_they_say(
    browser: Chrome, field: str, value: Any, left: set[str]
) -> None:
    """By class, probability, changed by adaptation, unsure, changed since before, corrected."""
    browser.execute_script("correct([visible().find(c => c.title.endsWith('a.png')).image], 'fox')")
    set_to(browser, field, value)
    assert set(shown(browser)) == left
    assert status(browser) == f"{len(left)} image{'s' if len(left) > 1 else ''} shown."
    for more in ("only-unsure", "only-since"):  # which no image passes
        set_to(browser, more, True)
    assert shown(browser) == [] and browser.find_element("id", "empty").is_displayed()


def test_a_reload_loses_nothing(browser: Chrome, folder: Path) -> None:
    """Corrections are there again after a reload, and not on the page of other answers."""
    card(browser, "gone.png").click()
    press(browser, "red", Keys.ENTER)
    browser.refresh()
    wait_until(lambda: corrections(browser) == {"gone.png": "red fox"})
    assert "red fox" in card(browser, "gone.png").text
    assert status(browser) == "1 correction kept from before."
    line = answer(folder / "gone.png", "cat", 0.5)
    review.write(folder / "other.html", {line["path"]: line}, CLASSES, "Other")
    browser.get((folder / "other.html").as_uri())
    assert corrections(browser) == {}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_corrections_leave_and_come_back_as_a_file(
    browser: Chrome, folder: Path, form: str
) -> None:
    """crg predict reads what the page downloads, odd names included, and can be imported."""
    said = {"a.png": "fox", "=c,ä.png": HOSTILE, 'd".png': "=2+5", "e.png": "cat"}
    for name, label in said.items():
        script = "correct([byPath.get(arguments[0])], arguments[1])"
        browser.execute_script(script, str(folder / name), label)
    browser.find_element("id", form).click()
    file = folder / f"corrections.{form}"
    wait_until(file.exists)
    said |= GIVEN
    assert read_corrections(file) == {str(folder / name): label for name, label in said.items()}
    browser.execute_script("localStorage.clear()")
    while corrections(browser) != GIVEN:  # the browser forgets in its own time
        browser.refresh()
    browser.find_element("id", "file").send_keys(str(file))
    wait_until(lambda: corrections(browser) == said)
    assert status(browser) == "5 corrections imported."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path,label\nnowhere.png,cat\n", "0 corrections imported. 1 left out"),
        ("my notes", "holds no corrections: choose a file that this page has written."),
        ('{"path": ', "holds no corrections: choose a file that this page has written."),
    ],
)
def test_a_file_of_something_else_changes_nothing(
    browser: Chrome, tmp_path: Path, text: str, said: str
) -> None:
    """Other files are refused in a sentence, and lines about other images are counted."""
    (tmp_path / "file.csv").write_text(text)
    browser.find_element("id", "file").send_keys(str(tmp_path / "file.csv"))
    wait_until(lambda: said in status(browser))
    assert corrections(browser) == GIVEN


def test_names_never_become_markup(browser: Chrome) -> None:
    """Class and file names that look like HTML or end a script are shown as they are."""
    card(browser, 'd".png').click()
    listed = [li.text for li in browser.find_elements("css selector", "#options li")]
    assert listed[0].startswith(HOSTILE) and len(listed) == len(CLASSES)
    press(browser, Keys.ENTER)
    assert HOSTILE in browser.find_element("tag name", "h1").text
    assert HOSTILE in card(browser, 'd".png').text
    assert browser.execute_script("return typeof pwned") == "undefined"
    made = "return document.querySelectorAll('script, b[onclick], i, img:not(.card img)').length"
    assert browser.execute_script(made) == 4  # content, script and the images of two dialogs
    assert complaints(browser) == []
    assert "gone.png does not exist" in card(browser, "gone.png").text  # in place of its thumbnail
    assert "e.png is <i>damaged</i>." in card(browser, "/e.png").text
    assert browser.execute_script("return document.querySelectorAll('.card img').length") == 6


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_page_and_its_picker_fit(browser: Chrome, size: tuple[int, int]) -> None:
    """Nothing scrolls sideways on a desk or on a telephone, with the picker open or not."""
    emulate(browser, size)
    browser.execute_script("document.querySelector('details').open = true")
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= size[0]
    card(browser, 'd".png').click()
    script = "return document.getElementById('picker').getBoundingClientRect()"
    box = browser.execute_script(script)
    assert 0 <= box["left"] < box["right"] <= size[0]
    assert 0 <= box["top"] < box["bottom"] <= size[1]
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= size[0]


def test_dark_is_dark(browser: Chrome) -> None:
    """A reader who prefers dark gets light letters on a dark ground."""
    script = """const {color, backgroundColor} = getComputedStyle(document.body);
    return [color, backgroundColor].map(each => Number(each.match(/\\d+/)[0]))"""
    for scheme, is_dark in (("light", False), ("dark", True)):
        emulate(browser, SIZES["wide"], scheme)
        letters, ground = browser.execute_script(script)
        assert (letters > ground) == is_dark


def test_two_thousand_images_of_a_thousand_classes(driver: Chrome, tmp_path: Path) -> None:
    """The page stays small, off-screen cards are not drawn, and typing finds a class among all."""
    random = np.random.default_rng(0)
    lines = {}
    for number in range(2000):
        path = tmp_path / f"{number:04}.bmp"
        Image.fromarray(random.integers(0, 255, (24, 24, 3), np.uint8)).save(path)
        lines[str(path)] = answer(path, MANY[number // 100], random.random())
    review.write(tmp_path / "page.html", lines, MANY, "Many", workers=2)
    most = 4 / 3 * review.THUMBNAIL_BYTES + 500  # in base64, and what is said of the image
    assert (tmp_path / "page.html").stat().st_size < 2000 * most
    emulate(driver, SIZES["narrow"])
    driver.get((tmp_path / "page.html").as_uri())
    assert driver.execute_script("return visible().length") == 2000
    drawn = """return visible().filter(card => card.querySelector("img")
      .checkVisibility({contentVisibilityAuto: true})).length"""
    assert 0 < driver.execute_script(drawn) < 200
    driver.execute_script("current.focus()")
    press(driver, Keys.END, Keys.ENTER)
    assert len(driver.find_elements("css selector", "#options li")) == 60
    press(driver, "0777", Keys.ENTER)  # after the last one there is none to go to
    last = driver.switch_to.active_element
    assert "class 0777\ncorrected" in last.text
    kept = json.loads(driver.execute_script("return localStorage.getItem(KEY)"))
    assert [label for _, label in kept] == ["class 0777"]
    assert driver.execute_script("return document.scrollingElement.scrollWidth") <= 390
