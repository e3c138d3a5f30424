"""The page of ``crg serve`` in a real browser: it works, fits, is readable, trusts no name."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Keys

import live_pages
from browsers import SIZES, chromium, complaints, emulate, needs_browser
from live_pages import BYTES, CLASSES, Page, drawn, until
from served import Process

pytestmark = needs_browser


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A server and a browser for all tests."""
    folder = tmp_path_factory.mktemp("page")
    with Process(folder / "data") as server, chromium() as browser:
        yield Page(browser, server, drawn(folder))


@pytest.fixture
def page(visitor: Page) -> Iterator[Page]:
    """The page on a new session; no script fails and no policy is violated."""
    complaints(visitor.browser)
    visitor.open(CLASSES)
    yield visitor
    said = [each["message"] for each in complaints(visitor.browser)]
    assert not [each for each in said if "Failed to load resource" not in each]


def test_class_names_start_a_session(page: Page) -> None:
    """One class is refused in a sentence to dismiss; more and a method start a linked session."""
    page.go_home()
    page.type("classes", "cat")
    page.click("#new button")
    until(lambda: "classes" in page.text("#problem p"))
    assert page.browser.find_element("id", "problem").get_attribute("role") == "alert"
    page.click("#problem button")
    assert page.text("#problem") == ""
    page.browser.find_element("id", "classes").clear()
    page.type("classes", f"{CLASSES[0]}\n\n  {CLASSES[1]} \n")
    page.click("#method option[value=tda]")
    page.type("session-name", "<b>kitchen")
    page.click("#new button")
    until(page.is_live)
    assert page.text("#title") == "<b>kitchen"
    session = page.browser.current_url.partition("#")[2]
    info = httpx.get(f"{page.sessions}/{session}").json()
    assert info["method"] == "tda" and info["classes"] == CLASSES[:2]
    page.send(page.images[0])
    page.click(".brand")
    until(lambda: "1 image · 2 classes · tda" in page.text("#sessions li"))
    page.click("#sessions a")
    until(lambda: page.cards(".file") == ["0.png"])


def test_the_page_says_what_the_model_knows_and_shows_it(page: Page) -> None:
    """One click starts a session with twelve images of it; only methods that run are offered."""
    page.go_home()
    assert page.text("#server") == "mini knows rendered shapes only."
    methods = httpx.get(f"{page.server.address}/v1").json()["methods"]
    assert page.text("#method").split("\n") == methods and "gda" not in methods
    page.click("#examples")
    until(lambda: page.cards(".file") == [f"shape {number}.png" for number in range(12, 0, -1)])
    assert page.text("#title") == "Rendered shapes" and page.text("#examples") == ""


def test_a_session_has_a_name(page: Page) -> None:
    """Whoever watches sees when it changes, and the list has it."""
    page.click("#rename")
    alert = page.browser.switch_to.alert
    alert.send_keys("cellar")
    alert.accept()
    until(lambda: page.text("#title") == "cellar" and page.browser.title == "CRG: cellar")
    httpx.patch(page.api, json={"name": "attic"})
    until(lambda: page.text("#title") == "attic")
    page.click(".brand")
    until(lambda: page.text("#sessions a") == "attic")


def test_the_api_is_documented_in_the_browser(page: Page) -> None:
    """Swagger UI lists every operation and tries them, under the policy of the other pages."""
    paths = httpx.get(f"{page.server.address}/openapi.json").json()["paths"].values()
    page.browser.get(f"{page.server.address}/docs")
    until(lambda: len(page.texts(".opblock")) == sum(map(len, paths)))
    page.click("#operations-server-about_v1_get .opblock-summary-control")
    until(lambda: page.texts(".try-out__btn"))
    page.click(".try-out__btn")
    page.click(".execute")
    until(lambda: '"mini"' in page.text(".live-responses-table .microlight"))


def test_images_arrive_with_their_answers(page: Page) -> None:
    """Newest first: name, label, probability, zero-shot label, changed; and curves in words."""
    page.send(*page.images)
    answers = page.answers()[::-1]
    assert page.cards(".file") == [f"{index}.png" for index in range(5, -1, -1)]
    assert page.cards(".label") == [answer["label"] for answer in answers]
    parts = zip(page.cards(".percent"), page.cards(".mark"), answers, strict=True)
    for card, mark, answer in parts:
        assert float(card.rstrip("%")) == pytest.approx(100 * answer["probability"], abs=0.5)
        assert f"zero-shot: {answer['zero_shot_label']}" in mark
        assert ("changed" in mark) == answer["changed"]
    loaded = """return [...document.querySelectorAll('.card img')]
      .filter(image => image.naturalWidth > 0).length"""
    until(lambda: page.run(loaded) == 6)
    said = "return document.querySelector(`#${arguments[0]} svg`)?.getAttribute('aria-label') ?? ''"
    until(lambda: "at image 6, between" in page.run(said, "confidence"))
    assert page.run(said, "changed").startswith("Changed by adaptation: running mean ")
    assert all(name in page.run(said, "per-class") for name in page.cards(".label"))
    assert "6 images" in page.text("#facts")


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_images_are_dropped_and_pasted(page: Page, kind: str) -> None:
    """Files in a drop or paste event are sent."""
    script = """const [kind, done] = arguments, data = new DataTransfer();
    const canvas = Object.assign(document.createElement("canvas"), {width: 20, height: 20});
    canvas.toBlob(blob => {
      data.items.add(new File([blob], "one.png"));
      data.items.add(new File([blob], "two.png"));
      const options = {dataTransfer: data, clipboardData: data, bubbles: true, cancelable: true};
      const event = new (kind === "drop" ? DragEvent : ClipboardEvent)(kind, options);
      document.body.dispatchEvent(event);
      done(kind === "paste" || event.defaultPrevented);
    });"""
    assert page.browser.execute_async_script(script, kind)
    until(lambda: page.cards(".file") == ["two.png", "one.png"])


def test_the_camera_sends_frames(page: Page) -> None:
    """A frame on a click, then one every so many seconds until the camera is closed."""
    page.run("""
      const canvas = Object.assign(document.createElement("canvas"), {width: 64, height: 48});
      setInterval(() => canvas.getContext("2d").fillRect(0, 0, 64, 48), 20);
      navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(30);""")
    page.click("#camera")
    until(lambda: page.run("return document.querySelector('video').videoWidth"))
    page.click("#frame")
    until(lambda: len(page.cards(".file")) == 1)
    assert page.cards(".file")[0].startswith("camera ")
    seconds = page.browser.find_element("id", "seconds")
    seconds.clear()
    seconds.send_keys("0.2")
    page.click("#repeat")
    until(lambda: len(page.cards(".file")) >= 3)
    page.click("#camera")
    assert page.text("#camera-panel") == "" and page.text("#camera") == "Camera"


def test_a_refused_image_does_not_hold_up_others(page: Page, tmp_path: Path) -> None:
    """The others are answered in their order; the refused one is named with the sentence."""
    bad = tmp_path / "bad <b>.png"
    bad.write_bytes(b"no image")
    page.choose(page.images[0], bad, page.images[1])
    until(lambda: page.cards(".file") == ["1.png", "0.png"])
    assert page.text("#refused summary") == "1 image refused"
    assert page.text("#problem p").startswith("bad <b>.png: ")


def test_a_busy_server_is_waited_for(page: Page) -> None:
    """A 429 is shown and tried again after Retry-After with the same key; Cancel ends that."""
    page.run(live_pages.BUSY)
    page.choose(*page.images[:2])
    until(lambda: "0 of 2 images sent. Waiting: Too many images wait" in page.text("#queue-text"))
    until(lambda: len(page.cards(".file")) == 2)
    until(lambda: page.text("#queue") == "")
    first, second = page.run("return keys")
    assert first == second
    page.run(live_pages.BUSY)
    page.choose(*page.images[:3])
    until(lambda: "Waiting: Too many images wait" in page.text("#queue-text"))
    page.click("#cancel-queue")
    assert page.text("#queue") == ""
    page.send(page.images[3])
    assert [line["name"] for line in page.answers()] == ["0.png", "1.png", "3.png"]


def test_new_images_wait_while_the_page_is_paused_or_hidden(page: Page) -> None:
    """Nothing moves under the pointer, a hidden page holds no connection; both catch up."""
    page.send(page.images[0])
    page.click("#pause")
    page.choose(page.images[1])
    until(lambda: page.text("#pause") == "Resume (1 new)")
    assert page.cards(".file") == ["0.png"]
    page.click("#pause")
    until(lambda: page.cards(".file") == ["1.png", "0.png"])
    script = """const [value] = arguments;
      Object.defineProperty(document, "hidden", {value, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"))"""
    page.run(script, True)
    httpx.post(f"{page.api}/images", content=page.images[0].read_bytes(), headers=BYTES)
    assert len(page.cards(".file")) == 2
    page.run(script, False)
    until(lambda: page.cards(".file") == ["image 3", "1.png", "0.png"])


def test_a_correction_is_learnt_and_used(page: Page) -> None:
    """The card shows it, and the same image is answered with it when it comes again."""
    page.send(*page.images)
    other = page.other(0)
    page.correct(0, other)
    assert page.cards(".label")[0] == other and "corrected" in page.cards(".mark")[0]
    until(lambda: "1 correction" in page.text("#facts"))
    page.send(page.images[-1])
    before, after = page.answers()[-2:]
    assert (before.get("corrected"), after.get("corrected")) == (other, None)
    assert after["label"] == page.cards(".label")[0] == other != before["label"]


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    """Arrows go from image to image; Enter, a few letters and Enter correct."""
    page.send(*page.images[:3])
    page.run("document.querySelector('.card[tabindex=\"0\"]').focus()")
    page.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "1.png" in page.browser.switch_to.active_element.text
    page.press(Keys.ENTER, Keys.ESCAPE)
    assert "1.png" in page.browser.switch_to.active_element.text
    other = page.other(1)
    page.press(Keys.ENTER, other[:-1], Keys.ENTER)
    until(lambda: "corrected" in page.cards(".mark")[1])
    assert page.cards(".label")[1] == other
    assert "1.png" in page.browser.switch_to.active_element.text
    assert len(page.browser.find_elements("css selector", ".card[tabindex='0']")) == 1


def test_filters_leave_what_they_say(page: Page) -> None:
    """By class, corrected, changed; a sentence where nothing is left."""
    page.send(*page.images[:4])
    label = page.cards(".label")[0]
    other = next(name for name in CLASSES if name != label)
    page.correct(1, other)
    until(lambda: page.browser.find_elements("css selector", "#only-class option:nth-child(5)"))
    page.click("#only-corrected")
    assert page.cards(".label") == [other]
    page.click("#only-corrected")
    page.choose_option("#only-class option", label)
    assert set(page.cards(".label")) == {label}
    page.run("""for (const id of ["only-changed", "only-corrected"])
      document.getElementById(id).click()""")
    assert page.cards(".label") == [] and page.text("#empty") == "No image passes these filters."


def test_classes_come_and_go(page: Page) -> None:
    """An added class can be chosen at once, a removed one no more; refusals are said."""
    page.send(page.images[0])
    page.type("class-name", "green plain drop", Keys.ENTER)
    until(lambda: page.text("#classes-title") == "5 classes")
    page.correct(0, "green plain drop")
    assert page.cards(".label") == ["green plain drop"]
    page.type("class-name", "green plain drop", Keys.ENTER)
    until(lambda: "green plain drop" in page.text("#problem p"))
    page.click("#class-list li:nth-child(5) button")
    page.accept()
    until(lambda: page.text("#classes-title") == "4 classes")
    assert httpx.get(page.api).json()["classes"] == CLASSES


def test_two_watch_one_session(page: Page) -> None:
    """Who opens the link sees what came before, and both see what comes, until it is deleted."""
    page.send(page.images[0])
    link, first = page.browser.current_url, page.browser.current_window_handle
    page.browser.switch_to.new_window("window")
    second = page.browser.current_window_handle
    try:
        emulate(page.browser, SIZES["wide"])
        page.browser.get(link)
        until(lambda: page.cards(".file") == ["0.png"])
        page.browser.switch_to.window(first)
        page.send(page.images[1])
        other = page.other(1)
        page.correct(1, other)
        page.browser.switch_to.window(second)
        until(lambda: page.cards(".file") == ["1.png", "0.png"])
        until(lambda: page.cards(".label")[1] == other)
        until(lambda: "2 images" in page.text("#facts"))
        page.click("#delete")
        page.accept()
        until(lambda: page.text("#problem p") == "This session was deleted.")
    finally:
        page.browser.close()
        page.browser.switch_to.window(first)
    until(lambda: page.text("#problem p") == "This session was deleted.")
    assert page.text("#start h1") == "Start a session"


def test_the_page_goes_on_after_a_restart(page: Page) -> None:
    """Killed and started again: images sent meanwhile are answered once, and events come again."""
    page.send(*page.images[:2])
    page.server.stop(signal.SIGKILL)
    until(lambda: "trying again" in page.text("#connection"))
    page.choose(page.images[2])
    until(lambda: "Waiting: The server cannot be reached" in page.text("#queue-text"))
    page.server.start("--port", str(page.server.port))
    until(lambda: page.cards(".file") == ["2.png", "1.png", "0.png"])
    until(page.is_live)
    assert httpx.get(page.api).json()["images"] == 3
    content = page.images[3].read_bytes()
    httpx.post(f"{page.api}/images?name=elsewhere.png", content=content, headers=BYTES)
    until(lambda: page.cards(".file")[0] == "elsewhere.png")


def test_answers_and_state_are_downloads(page: Page, tmp_path: Path) -> None:
    """The links give JSON Lines, CSV and a state, and the state starts another session."""
    page.send(*page.images[:2])
    links = page.browser.find_elements("css selector", ".menu a")
    files = [httpx.get(str(link.get_attribute("href"))) for link in links]
    assert [len(file.text.splitlines()) for file in files[:2]] == [2, 3]
    (tmp_path / "saved.crg").write_bytes(files[2].content)
    page.go_home()
    page.type("state", str(tmp_path / "saved.crg"))
    until(page.is_live)
    page.send(page.images[2])
    session = page.browser.current_url.partition("#")[2]
    answer = httpx.get(f"{page.sessions}/{session}/answers").json()
    assert answer["step"] == 3


def test_names_never_become_markup(page: Page, tmp_path: Path) -> None:
    """Class and file names that look like HTML are shown as they are, everywhere."""
    page.open([live_pages.HOSTILE, "__proto__"])
    odd = tmp_path / "<b onclick=pwned=1>.png"
    odd.write_bytes(page.images[0].read_bytes())
    page.send(odd)
    page.correct(0, live_pages.HOSTILE)
    assert page.cards(".label") == [live_pages.HOSTILE] and page.cards(".file") == [odd.name]
    until(lambda: live_pages.HOSTILE in " ".join(page.texts("#class-list li")))
    assert page.run("return typeof pwned") == "undefined"
    made = "return document.querySelectorAll('b[onclick], script:not([src]), img[onerror]').length"
    assert page.run(made) == 0


def test_a_token_is_asked_for(page: Page, tmp_path: Path) -> None:
    """A wrong token is refused in a sentence; with the right one everything works."""
    with Process(tmp_path / "data", token=live_pages.TOKEN) as guarded:
        page.browser.get(f"{guarded.address}/")
        until(lambda: page.text("#login h1") == "This server needs a token")
        page.type("token", "a wrong one", Keys.ENTER)
        until(lambda: page.text("#problem p").startswith("The token is wrong"))
        page.browser.find_element("id", "token").clear()
        page.type("token", live_pages.TOKEN, Keys.ENTER)
        until(lambda: page.text("#start h1") == "Start a session")
        page.type("classes", "\n".join(CLASSES))
        page.click("#new button")
        until(page.is_live)
        page.send(page.images[0])
        assert page.run("return document.cookie") == ""


def test_the_page_fits_and_is_readable(page: Page) -> None:
    """Nothing scrolls sideways on a desk or a telephone; texts have contrast, fields have names.

    A phone shows images on its first screen: curves and classes are folded, and open with a touch.
    """
    page.send(*page.images)
    page.correct(0, CLASSES[0])
    page.run("document.querySelector('#refused').hidden = false")
    for size in SIZES.values():
        for scheme in ("light", "dark"):
            emulate(page.browser, size, scheme)
            width = page.run("return document.scrollingElement.scrollWidth")
            assert width <= size[0]
            assert page.run(live_pages.CONTRAST) == [] == page.run(live_pages.NAMELESS)
    page.click("#grid li:nth-child(2) .card")
    box = page.run("return document.getElementById('picker').getBoundingClientRect()")
    assert 0 <= box["left"] < box["right"] <= 390 and 0 <= box["top"] < box["bottom"] <= 844
    page.press(Keys.ESCAPE)
    emulate(page.browser, SIZES["wide"])
    parts = ("#curves figure", "#class-list li")
    until(lambda: all(page.texts(part) for part in parts))
    emulate(page.browser, SIZES["narrow"])
    page.browser.refresh()
    until(lambda: page.cards(".label"))
    top = "return document.querySelector('.card').getBoundingClientRect().top"
    assert page.run(top) < SIZES["narrow"][1] - 100
    assert not any(page.texts(part) for part in parts)
    page.click("#curves summary")
    until(lambda: page.texts(parts[0]))
