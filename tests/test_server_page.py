"""The page of ``crg serve`` in a real browser, on a real server."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, Keys

from browsers import SIZES, chromium, complaints, emulate, needs_browser
from crg.shapes import ShapeImage, class_things
from served import Process

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=pwned=1>,\"'&</script><script>pwned=1</script>"
THINGS = class_things()[:4]
CLASSES = [thing.name for thing in THINGS]
BYTES = {"Content-Type": "application/octet-stream"}
TOKEN = "a token of the tests"


class Server:
    """``crg serve``, which can be killed and started again on its port."""

    def __init__(self, data: Path) -> None:
        self._data, self._process = data, Process(data)
        self.address = f"{self._process.address}/"

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again."""
        self._process = Process(self._data, "--port", str(self._process.port))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Six noisy images of four classes."""
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{index}.png" for index in range(6)]
    for index, path in enumerate(paths):
        ShapeImage(0, index, THINGS[index % 4], "noise", 3).draw().save(path)
    return paths


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests."""
    started = Server(tmp_path_factory.mktemp("server") / "data")
    yield started
    started.kill()


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    """Chromium for all tests."""
    with chromium() as started:
        yield started


@pytest.fixture
def page(driver: Chrome, server: Server) -> Page:
    """The page on a new session, wide and light."""
    emulate(driver, SIZES["wide"])
    return opened(driver, server, CLASSES)


class Page:
    """What a person sees of a session, and does to it."""

    def __init__(self, browser: Chrome, address: str) -> None:
        self.browser, self.api = browser, address

    def texts(self, selector: str) -> list[str]:
        """What visible elements say."""
        script = """return [...document.querySelectorAll(arguments[0])]
          .filter(each => each.checkVisibility()).map(each => each.innerText.trim())"""
        found: list[str] = self.browser.execute_script(script, selector)
        return found

    def text(self, selector: str) -> str:
        """What the first visible element says; empty if there is none."""
        return (self.texts(selector) or [""])[0]

    def click(self, selector: str) -> None:
        """Click an element, wherever it is on the page."""
        element = self.browser.find_element("css selector", selector)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def choose(self, *paths: Path) -> None:
        """Choose files as images."""
        self.browser.find_element("id", "files").send_keys("\n".join(map(str, paths)))

    def send(self, *paths: Path) -> None:
        """Choose images, and wait for their cards."""
        count = len(self.texts(".card")) + len(paths)
        self.choose(*paths)
        until(lambda: len(self.texts(".card")) == count)

    def cards(self, part: str) -> list[str]:
        """A part of all cards that are shown, newest first."""
        return self.texts(f".card {part}")

    def correct(self, card: int, label: str) -> None:
        """Correct the card of this place with the mouse."""
        self.click(f"#grid li:nth-child({card + 1}) .card")
        [option] = [
            each for each in self.browser.find_elements("css selector", "#options li")
            if each.text.split("\n")[0] == label
        ]  # fmt: skip
        option.click()
        until(lambda: "learning" not in self.text(f"#grid li:nth-child({card + 1}) .mark"))

    def is_live(self) -> bool:
        """Whether the page says that it sees what happens."""
        return self.text("#connection") == "live"


def opened(driver: Chrome, server: Server, classes: list[str]) -> Page:
    """The page on a new session of these classes."""
    answer = httpx.post(f"{server.address}v1/sessions", json={"classes": classes})
    session = answer.json()["id"]
    driver.get("about:blank")
    driver.get(f"{server.address}#{session}")
    page = Page(driver, f"{server.address}v1/sessions/{session}")
    until(page.is_live)
    return page


def answers_of(page: Page) -> list[dict[str, Any]]:
    """All answers of the session, as they are downloaded."""
    return [json.loads(line) for line in httpx.get(f"{page.api}/answers").text.splitlines()]


def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if holds():
                return
        except StaleElementReferenceException:
            pass  # the page has just drawn it anew
        time.sleep(0.02)
    assert holds()


def press(page: Page, *keys: str) -> None:
    """Type, wherever the focus is."""
    ActionChains(page.browser).send_keys(*keys).perform()


def test_class_names_start_a_session(driver: Chrome, server: Server, images: list[Path]) -> None:
    """Names, one per line, and a method; the address of the page is the link to the session."""
    emulate(driver, SIZES["wide"])
    driver.get(server.address)
    page = Page(driver, "")
    until(lambda: page.text("#start h1") == "Start a session")
    driver.find_element("id", "classes").send_keys(f"{CLASSES[0]}\n\n  {CLASSES[1]} \n")
    page.click("#method option[value=tda]")
    page.click("#new button")
    until(page.is_live)
    session = driver.current_url.partition("#")[2]
    info = httpx.get(f"{server.address}v1/sessions/{session}").json()
    assert info["method"] == "tda" and info["classes"] == CLASSES[:2]
    page.send(images[0])
    page.click(".brand")
    until(lambda: "1 image · 2 classes · tda" in page.text("#sessions li"))
    page.click("#sessions a")
    until(lambda: page.cards(".file") == ["0.png"])


def test_what_the_server_refuses_is_said(driver: Chrome, server: Server) -> None:
    """One class is too few, in the server's sentence, and the message can be dismissed."""
    driver.get("about:blank")
    driver.get(server.address)
    page = Page(driver, "")
    until(lambda: page.text("#start h1") == "Start a session")
    driver.find_element("id", "classes").send_keys("cat")
    page.click("#new button")
    until(lambda: "classes" in page.text("#problem p"))
    assert driver.find_element("id", "problem").get_attribute("role") == "alert"
    page.click("#problem button")
    assert page.text("#problem") == ""


def test_images_arrive_with_their_answers(page: Page, images: list[Path]) -> None:
    """Newest first: name, label, probability and its bar, zero-shot label, changed or not."""
    page.send(*images)
    answers = answers_of(page)[::-1]
    assert page.cards(".file") == [f"{index}.png" for index in range(5, -1, -1)]
    assert page.cards(".label") == [answer["label"] for answer in answers]
    for card, mark, answer in zip(
        page.cards(".percent"), page.cards(".mark"), answers, strict=True
    ):
        assert float(card.rstrip("%")) == pytest.approx(100 * answer["probability"], abs=0.5)
        assert f"zero-shot: {answer['zero_shot_label']}" in mark
        assert ("changed" in mark) == answer["changed"]
    loaded = """return [...document.querySelectorAll('.card img')]
      .filter(image => image.naturalWidth > 0).length"""
    until(lambda: page.browser.execute_script(loaded) == 6)


def test_curves_are_also_sentences(page: Page, images: list[Path]) -> None:
    """Each chart says to those who cannot see it what it shows, and follows what comes."""
    page.send(*images)
    script = "return document.querySelector(arguments[0])?.getAttribute('aria-label') ?? ''"

    def sentence(chart: str) -> str:
        return str(page.browser.execute_script(script, f"#{chart} svg"))

    until(lambda: "at image 6, between" in sentence("confidence"))
    assert sentence("changed").startswith("Changed by adaptation: running mean ")
    assert all(name in sentence("per-class") for name in page.cards(".label"))
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
    page.browser.execute_script("""
      const canvas = Object.assign(document.createElement("canvas"), {width: 64, height: 48});
      setInterval(() => canvas.getContext("2d").fillRect(0, 0, 64, 48), 20);
      navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(30);""")
    page.click("#camera")
    until(lambda: page.browser.execute_script("return document.querySelector('video').videoWidth"))
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


def test_a_refused_image_does_not_hold_up_others(
    page: Page, images: list[Path], tmp_path: Path
) -> None:
    """The others are answered in their order; the refused one is named with the sentence."""
    bad = tmp_path / "bad <b>.png"
    bad.write_bytes(b"no image")
    page.choose(images[0], bad, images[1])
    until(lambda: page.cards(".file") == ["1.png", "0.png"])
    assert page.text("#refused summary") == "1 image refused"
    assert page.text("#problem p").startswith("bad <b>.png: ")


def test_a_busy_server_is_waited_for(page: Page, images: list[Path]) -> None:
    """A 429 is shown with its sentence and tried again after Retry-After, under the same key."""
    page.browser.execute_script("""
      const real = window.fetch; window.keys = [];
      window.fetch = (path, options) => {
        if (!path.endsWith("/images")) return real(path, options);
        keys.push(options.headers["Idempotency-Key"]);
        if (keys.length > 1) return real(path, options);
        const body = JSON.stringify({detail: "Too many images wait: try again."});
        return Promise.resolve(new Response(body, {status: 429, headers: {"Retry-After": "1"}}));
      };""")
    page.choose(*images[:2])
    until(lambda: "0 of 2 images sent. Waiting: Too many images wait" in page.text("#queue-text"))
    until(lambda: len(page.cards(".file")) == 2)
    until(lambda: page.text("#queue") == "")
    first, second = page.browser.execute_script("return keys")
    assert first == second


def test_a_correction_is_learnt_and_used(page: Page, server: Server, images: list[Path]) -> None:
    """The card shows it, and later images are answered with it: otherwise than without it."""
    page.send(*images)
    state = httpx.get(f"{page.api}/state").content
    without = httpx.post(f"{server.address}v1/sessions", content=state, headers=BYTES).json()["id"]
    other = next(name for name in CLASSES if name != page.cards(".label")[0])
    page.correct(0, other)
    assert page.cards(".label")[0] == other and "corrected" in page.cards(".mark")[0]
    until(lambda: "1 correction" in page.text("#facts"))
    page.send(images[-1])
    address = f"{server.address}v1/sessions/{without}/images"
    sent = httpx.post(address, content=images[-1].read_bytes(), headers=BYTES).json()
    [uncorrected], corrected = sent["answers"], answers_of(page)
    assert [line["corrected"] for line in corrected[-2:]] == [other, None]
    assert corrected[-1]["label"] == page.cards(".label")[0] == other != uncorrected["label"]


def test_the_keyboard_alone_is_enough(page: Page, images: list[Path]) -> None:
    """Arrows go from image to image; Enter, a few letters and Enter correct."""
    page.send(*images[:3])
    page.browser.execute_script("document.querySelector('.card[tabindex=\"0\"]').focus()")
    press(page, Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "1.png" in page.browser.switch_to.active_element.text
    press(page, Keys.ENTER, Keys.ESCAPE)
    assert "1.png" in page.browser.switch_to.active_element.text
    other = next(name for name in CLASSES if name != page.cards(".label")[1])
    press(page, Keys.ENTER, other[:-1], Keys.ENTER)
    until(lambda: "corrected" in page.cards(".mark")[1])
    assert page.cards(".label")[1] == other
    assert "1.png" in page.browser.switch_to.active_element.text
    assert len(page.browser.find_elements("css selector", ".card[tabindex='0']")) == 1


def test_filters_leave_what_they_say(page: Page, images: list[Path]) -> None:
    """By class, corrected, changed; a sentence where nothing is left."""
    page.send(*images[:4])
    label = page.cards(".label")[0]
    other = next(name for name in CLASSES if name != label)
    page.correct(1, other)
    until(lambda: page.browser.find_elements("css selector", "#only-class option:nth-child(5)"))
    page.click("#only-corrected")
    assert page.cards(".label") == [other]
    page.click("#only-corrected")
    [option] = [
        each for each in page.browser.find_elements("css selector", "#only-class option")
        if each.text == label
    ]  # fmt: skip
    option.click()
    assert set(page.cards(".label")) == {label}
    page.browser.execute_script("""for (const id of ["only-changed", "only-corrected"])
      document.getElementById(id).click()""")
    assert page.cards(".label") == [] and page.text("#empty") == "No image passes these filters."


def test_classes_come_and_go(page: Page, images: list[Path]) -> None:
    """An added class can be chosen at once, a removed one no more; refusals are said."""
    page.send(images[0])
    page.browser.find_element("id", "class-name").send_keys("green plain drop", Keys.ENTER)
    until(lambda: page.text("#classes-title") == "5 classes")
    page.correct(0, "green plain drop")
    assert page.cards(".label") == ["green plain drop"]
    page.browser.find_element("id", "class-name").send_keys("green plain drop", Keys.ENTER)
    until(lambda: "green plain drop" in page.text("#problem p"))
    page.click("#class-list li:nth-child(5) button")
    page.browser.switch_to.alert.accept()
    until(lambda: page.text("#classes-title") == "4 classes")
    assert httpx.get(page.api).json()["classes"] == CLASSES


def test_new_images_wait_while_the_page_is_paused(page: Page, images: list[Path]) -> None:
    """Nothing moves under the pointer; Resume shows what has come."""
    page.send(images[0])
    page.click("#pause")
    page.choose(images[1])
    until(lambda: page.text("#pause") == "Resume (1 new)")
    assert page.cards(".file") == ["0.png"]
    page.click("#pause")
    assert page.cards(".file") == ["1.png", "0.png"]


def test_two_watch_one_session(page: Page, images: list[Path]) -> None:
    """Who opens the link sees what came before, and both see what comes, until it is deleted."""
    page.send(images[0])
    link, first = page.browser.current_url, page.browser.current_window_handle
    page.browser.switch_to.new_window("window")
    second = page.browser.current_window_handle
    try:
        emulate(page.browser, SIZES["wide"])
        page.browser.get(link)
        until(lambda: page.cards(".file") == ["0.png"])
        page.browser.switch_to.window(first)
        page.send(images[1])
        other = next(name for name in CLASSES if name != page.cards(".label")[1])
        page.correct(1, other)
        page.browser.switch_to.window(second)
        until(
            lambda: page.cards(".file") == ["1.png", "0.png"] and page.cards(".label")[1] == other
        )
        until(lambda: "2 images" in page.text("#facts"))
        page.click("#delete")
        page.browser.switch_to.alert.accept()
        until(lambda: page.text("#problem p") == "This session was deleted.")
    finally:
        page.browser.close()
        page.browser.switch_to.window(first)
    until(lambda: page.text("#problem p") == "This session was deleted.")
    assert page.text("#start h1") == "Start a session"


def test_the_page_goes_on_after_a_restart(page: Page, server: Server, images: list[Path]) -> None:
    """Killed and started again: images sent meanwhile are answered once, and events come again."""
    page.send(*images[:2])
    server.kill()
    until(lambda: "trying again" in page.text("#connection"))
    page.choose(images[2])
    until(lambda: "Waiting: The server cannot be reached" in page.text("#queue-text"))
    server.restart()
    until(lambda: page.cards(".file") == ["2.png", "1.png", "0.png"])
    until(page.is_live)
    assert httpx.get(page.api).json()["images"] == 3
    content = images[3].read_bytes()
    httpx.post(f"{page.api}/images?name=elsewhere.png", content=content, headers=BYTES)
    until(lambda: page.cards(".file")[0] == "elsewhere.png")


def test_answers_and_state_are_downloads(
    page: Page, server: Server, images: list[Path], tmp_path: Path
) -> None:
    """The links give JSON Lines, CSV and a state, and the state starts another session."""
    page.send(*images[:2])
    links = page.browser.find_elements("css selector", ".menu a")
    files = [httpx.get(str(link.get_attribute("href"))) for link in links]
    assert [len(file.text.splitlines()) for file in files[:2]] == [2, 3]
    (tmp_path / "saved.crg").write_bytes(files[2].content)
    page.browser.get(server.address + "#")
    until(lambda: page.text("#start h1") == "Start a session")
    page.browser.find_element("id", "state").send_keys(str(tmp_path / "saved.crg"))
    until(page.is_live)
    page.send(images[2])
    session = page.browser.current_url.partition("#")[2]
    answer = httpx.get(f"{server.address}v1/sessions/{session}/answers").json()
    assert answer["step"] == 3


def test_names_never_become_markup(
    driver: Chrome, server: Server, images: list[Path], tmp_path: Path
) -> None:
    """Class and file names that look like HTML are shown as they are, everywhere."""
    page = opened(driver, server, [HOSTILE, "__proto__"])
    odd = tmp_path / "<b onclick=pwned=1>.png"
    odd.write_bytes(images[0].read_bytes())
    page.send(odd)
    page.correct(0, HOSTILE)
    assert page.cards(".label") == [HOSTILE] and page.cards(".file") == [odd.name]
    until(lambda: HOSTILE in " ".join(page.texts("#class-list li")))
    assert driver.execute_script("return typeof pwned") == "undefined"
    made = "return document.querySelectorAll('b[onclick], script:not([src]), img[onerror]').length"
    assert driver.execute_script(made) == 0


def test_a_token_is_asked_for(driver: Chrome, tmp_path: Path, images: list[Path]) -> None:
    """A wrong token is refused in a sentence; with the right one everything works."""
    with Process(tmp_path / "data", CRG_TOKEN=TOKEN) as guarded:
        driver.get(f"{guarded.address}/")
        page = Page(driver, "")
        until(lambda: page.text("#login h1") == "This server needs a token")
        driver.find_element("id", "token").send_keys("a wrong one", Keys.ENTER)
        until(lambda: page.text("#problem p").startswith("The token is wrong"))
        driver.find_element("id", "token").clear()
        driver.find_element("id", "token").send_keys(TOKEN, Keys.ENTER)
        until(lambda: page.text("#start h1") == "Start a session")
        driver.find_element("id", "classes").send_keys("\n".join(CLASSES))
        page.click("#new button")
        until(page.is_live)
        page.send(images[0])
        assert driver.execute_script("return document.cookie") == ""


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


def test_the_page_fits_and_is_readable(page: Page, images: list[Path]) -> None:
    """Nothing scrolls sideways on a desk or a telephone, and all texts have contrast (AA)."""
    page.send(*images)
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


def test_every_field_has_a_name(page: Page) -> None:
    """Assistive technology finds a label for each input, select and button."""
    script = """return [...document.querySelectorAll("input, select, textarea, button")]
      .filter(each => !(each.labels?.length || each.getAttribute("aria-label")
        || each.textContent.trim())).map(each => each.outerHTML)"""
    assert page.browser.execute_script(script) == []


def test_the_policy_forbids_nothing_that_the_page_does(page: Page, images: list[Path]) -> None:
    """Neither a violation of the content security policy nor an error of a script."""
    complaints(page.browser)
    page.send(*images)
    page.correct(0, CLASSES[0])
    page.browser.refresh()
    until(lambda: len(page.cards(".label")) == 6)
    assert complaints(page.browser) == []
