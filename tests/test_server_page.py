"""The page of ``crg serve`` in a real browser: it works, fits, is readable, trusts no name."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Keys

import live_pages
from browsers import SIZES, complaints, emulate, needs_browser
from live_pages import BYTES, CLASSES, Page, Stage, answers_of, press, staged, until
from served import Process

pytestmark = needs_browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server and a browser for all tests."""
    with staged(tmp_path_factory.mktemp("page")) as started:
        yield started


@pytest.fixture
def page(stage: Stage) -> Page:
    """The page on a new session, wide and light."""
    return stage.opened(CLASSES)


def test_class_names_start_a_session(page: Page, stage: Stage) -> None:
    """Names, one per line, and a method; the address of the page is the link to the session."""
    page.browser.get(stage.server.address)
    until(lambda: page.text("#start h1") == "Start a session")
    page.browser.find_element("id", "classes").send_keys(f"{CLASSES[0]}\n\n  {CLASSES[1]} \n")
    page.click("#method option[value=tda]")
    page.click("#new button")
    until(page.is_live)
    session = page.browser.current_url.partition("#")[2]
    info = httpx.get(f"{stage.server.address}/v1/sessions/{session}").json()
    assert info["method"] == "tda" and info["classes"] == CLASSES[:2]
    page.send(stage.images[0])
    page.click(".brand")
    until(lambda: "1 image · 2 classes · tda" in page.text("#sessions li"))
    page.click("#sessions a")
    until(lambda: page.cards(".file") == ["0.png"])


def test_what_the_server_refuses_is_said(page: Page, stage: Stage) -> None:
    """One class is too few, in the server's sentence, and the message can be dismissed."""
    page.browser.get(stage.server.address)
    until(lambda: page.text("#start h1") == "Start a session")
    page.browser.find_element("id", "classes").send_keys("cat")
    page.click("#new button")
    until(lambda: "classes" in page.text("#problem p"))
    assert page.browser.find_element("id", "problem").get_attribute("role") == "alert"
    page.click("#problem button")
    assert page.text("#problem") == ""


def test_images_arrive_with_their_answers(page: Page, stage: Stage) -> None:
    """Newest first: name, label, probability and its bar, zero-shot label, changed or not."""
    page.send(*stage.images)
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


def test_curves_are_also_sentences(page: Page, stage: Stage) -> None:
    """Each chart says to those who cannot see it what it shows, and follows what comes."""
    page.send(*stage.images)
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


def test_a_refused_image_does_not_hold_up_others(page: Page, stage: Stage, tmp_path: Path) -> None:
    """The others are answered in their order; the refused one is named with the sentence."""
    bad = tmp_path / "bad <b>.png"
    bad.write_bytes(b"no image")
    page.choose(stage.images[0], bad, stage.images[1])
    until(lambda: page.cards(".file") == ["1.png", "0.png"])
    assert page.text("#refused summary") == "1 image refused"
    assert page.text("#problem p").startswith("bad <b>.png: ")


def test_a_busy_server_is_waited_for(page: Page, stage: Stage) -> None:
    """A 429 is shown with its sentence and tried again after Retry-After, under the same key."""
    page.browser.execute_script(live_pages.BUSY)
    page.choose(*stage.images[:2])
    until(lambda: "0 of 2 images sent. Waiting: Too many images wait" in page.text("#queue-text"))
    until(lambda: len(page.cards(".file")) == 2)
    until(lambda: page.text("#queue") == "")
    first, second = page.browser.execute_script("return keys")
    assert first == second


def test_what_waits_can_be_cancelled(page: Page, stage: Stage) -> None:
    """Cancel empties the queue, and other images can be sent after it."""
    page.browser.execute_script(live_pages.BUSY)
    page.choose(*stage.images[:3])
    until(lambda: "Waiting: Too many images wait" in page.text("#queue-text"))
    page.click("#cancel-queue")
    assert page.text("#queue") == ""
    page.send(stage.images[3])
    assert [line["name"] for line in answers_of(page)] == ["3.png"]


def test_a_hidden_page_catches_up(page: Page, stage: Stage) -> None:
    """A page in the background holds no connection, and shows what it missed when it is back."""
    script = """const [value] = arguments;
      Object.defineProperty(document, "hidden", {value, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"))"""
    page.browser.execute_script(script, True)
    httpx.post(f"{page.api}/images", content=stage.images[0].read_bytes(), headers=BYTES)
    assert page.cards(".file") == []
    page.browser.execute_script(script, False)
    until(lambda: page.cards(".file") == ["image 1"])


def test_a_correction_is_learnt_and_used(page: Page, stage: Stage) -> None:
    """The card shows it, and later images are answered with it: otherwise than without it."""
    page.send(*stage.images)
    state = httpx.get(f"{page.api}/state").content
    sessions = f"{stage.server.address}/v1/sessions"
    without = httpx.post(sessions, content=state, headers=BYTES).json()["id"]
    other = next(name for name in CLASSES if name != page.cards(".label")[0])
    page.correct(0, other)
    assert page.cards(".label")[0] == other and "corrected" in page.cards(".mark")[0]
    until(lambda: "1 correction" in page.text("#facts"))
    page.send(stage.images[-1])
    content = stage.images[-1].read_bytes()
    sent = httpx.post(f"{sessions}/{without}/images", content=content, headers=BYTES).json()
    [uncorrected], corrected = sent["answers"], answers_of(page)
    assert [line.get("corrected") for line in corrected[-2:]] == [other, None]
    assert corrected[-1]["label"] == page.cards(".label")[0] == other != uncorrected["label"]


def test_the_keyboard_alone_is_enough(page: Page, stage: Stage) -> None:
    """Arrows go from image to image; Enter, a few letters and Enter correct."""
    page.send(*stage.images[:3])
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


def test_filters_leave_what_they_say(page: Page, stage: Stage) -> None:
    """By class, corrected, changed; a sentence where nothing is left."""
    page.send(*stage.images[:4])
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


def test_classes_come_and_go(page: Page, stage: Stage) -> None:
    """An added class can be chosen at once, a removed one no more; refusals are said."""
    page.send(stage.images[0])
    page.browser.find_element("id", "class-name").send_keys("green plain drop", Keys.ENTER)
    until(lambda: page.text("#classes-title") == "5 classes")
    page.correct(0, "green plain drop")
    assert page.cards(".label") == ["green plain drop"]
    page.browser.find_element("id", "class-name").send_keys("green plain drop", Keys.ENTER)
    until(lambda: "green plain drop" in page.text("#problem p"))
    page.click("#class-list li:nth-child(5) button")
    page.accept()
    until(lambda: page.text("#classes-title") == "4 classes")
    assert httpx.get(page.api).json()["classes"] == CLASSES


def test_new_images_wait_while_the_page_is_paused(page: Page, stage: Stage) -> None:
    """Nothing moves under the pointer; Resume shows what has come."""
    page.send(stage.images[0])
    page.click("#pause")
    page.choose(stage.images[1])
    until(lambda: page.text("#pause") == "Resume (1 new)")
    assert page.cards(".file") == ["0.png"]
    page.click("#pause")
    assert page.cards(".file") == ["1.png", "0.png"]


def test_two_watch_one_session(page: Page, stage: Stage) -> None:
    """Who opens the link sees what came before, and both see what comes, until it is deleted."""
    page.send(stage.images[0])
    link, first = page.browser.current_url, page.browser.current_window_handle
    page.browser.switch_to.new_window("window")
    second = page.browser.current_window_handle
    try:
        emulate(page.browser, SIZES["wide"])
        page.browser.get(link)
        until(lambda: page.cards(".file") == ["0.png"])
        page.browser.switch_to.window(first)
        page.send(stage.images[1])
        other = next(name for name in CLASSES if name != page.cards(".label")[1])
        page.correct(1, other)
        page.browser.switch_to.window(second)
        until(
            lambda: page.cards(".file") == ["1.png", "0.png"] and page.cards(".label")[1] == other
        )
        until(lambda: "2 images" in page.text("#facts"))
        page.click("#delete")
        page.accept()
        until(lambda: page.text("#problem p") == "This session was deleted.")
    finally:
        page.browser.close()
        page.browser.switch_to.window(first)
    until(lambda: page.text("#problem p") == "This session was deleted.")
    assert page.text("#start h1") == "Start a session"


def test_the_page_goes_on_after_a_restart(page: Page, stage: Stage) -> None:
    """Killed and started again: images sent meanwhile are answered once, and events come again."""
    page.send(*stage.images[:2])
    stage.server.stop(signal.SIGKILL)
    until(lambda: "trying again" in page.text("#connection"))
    page.choose(stage.images[2])
    until(lambda: "Waiting: The server cannot be reached" in page.text("#queue-text"))
    stage.server.start("--port", str(stage.server.port))
    until(lambda: page.cards(".file") == ["2.png", "1.png", "0.png"])
    until(page.is_live)
    assert httpx.get(page.api).json()["images"] == 3
    content = stage.images[3].read_bytes()
    httpx.post(f"{page.api}/images?name=elsewhere.png", content=content, headers=BYTES)
    until(lambda: page.cards(".file")[0] == "elsewhere.png")


def test_answers_and_state_are_downloads(page: Page, stage: Stage, tmp_path: Path) -> None:
    """The links give JSON Lines, CSV and a state, and the state starts another session."""
    page.send(*stage.images[:2])
    links = page.browser.find_elements("css selector", ".menu a")
    files = [httpx.get(str(link.get_attribute("href"))) for link in links]
    assert [len(file.text.splitlines()) for file in files[:2]] == [2, 3]
    (tmp_path / "saved.crg").write_bytes(files[2].content)
    page.browser.get(f"{stage.server.address}/#")
    until(lambda: page.text("#start h1") == "Start a session")
    page.browser.find_element("id", "state").send_keys(str(tmp_path / "saved.crg"))
    until(page.is_live)
    page.send(stage.images[2])
    session = page.browser.current_url.partition("#")[2]
    answer = httpx.get(f"{stage.server.address}/v1/sessions/{session}/answers").json()
    assert answer["step"] == 3


def test_names_never_become_markup(stage: Stage, tmp_path: Path) -> None:
    """Class and file names that look like HTML are shown as they are, everywhere."""
    page = stage.opened([live_pages.HOSTILE, "__proto__"])
    odd = tmp_path / "<b onclick=pwned=1>.png"
    odd.write_bytes(stage.images[0].read_bytes())
    page.send(odd)
    page.correct(0, live_pages.HOSTILE)
    assert page.cards(".label") == [live_pages.HOSTILE] and page.cards(".file") == [odd.name]
    until(lambda: live_pages.HOSTILE in " ".join(page.texts("#class-list li")))
    assert page.browser.execute_script("return typeof pwned") == "undefined"
    made = "return document.querySelectorAll('b[onclick], script:not([src]), img[onerror]').length"
    assert page.browser.execute_script(made) == 0


def test_a_token_is_asked_for(page: Page, stage: Stage, tmp_path: Path) -> None:
    """A wrong token is refused in a sentence; with the right one everything works."""
    with Process(tmp_path / "data", token=live_pages.TOKEN) as guarded:
        page.browser.get(f"{guarded.address}/")
        until(lambda: page.text("#login h1") == "This server needs a token")
        page.browser.find_element("id", "token").send_keys("a wrong one", Keys.ENTER)
        until(lambda: page.text("#problem p").startswith("The token is wrong"))
        page.browser.find_element("id", "token").clear()
        page.browser.find_element("id", "token").send_keys(live_pages.TOKEN, Keys.ENTER)
        until(lambda: page.text("#start h1") == "Start a session")
        page.browser.find_element("id", "classes").send_keys("\n".join(CLASSES))
        page.click("#new button")
        until(page.is_live)
        page.send(stage.images[0])
        assert page.browser.execute_script("return document.cookie") == ""


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
            assert page.browser.execute_script(live_pages.CONTRAST) == []
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
