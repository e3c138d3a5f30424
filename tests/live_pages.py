"""The page of ``crg serve`` for tests: a server, and a browser that a person would use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.support.expected_conditions import alert_is_present
from selenium.webdriver.support.wait import WebDriverWait

from browsers import SIZES, emulate
from crg.shapes import ShapeImage, class_things
from served import Process

THINGS = class_things()[:4]
CLASSES = [thing.name for thing in THINGS]
HOSTILE = "<img src=x onerror=pwned=1>,\"'&</script><script>pwned=1</script>"
TOKEN = "a token of the tests"
BYTES = {"Content-Type": "application/octet-stream"}

# A server that is busy at first, as the page sees it.
BUSY = """
const real = window.fetch;
window.keys = [];
window.fetch = (path, options) => {
  if (!path.endsWith("/images")) return real(path, options);
  keys.push(options.headers["Idempotency-Key"]);
  if (keys.length > 1) return real(path, options);
  const body = JSON.stringify({detail: "Too many images wait: try again."});
  return Promise.resolve(new Response(body, {status: 429, headers: {"Retry-After": "1"}}));
};
"""

# Texts whose contrast is below AA.
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

# Fields without a label for assistive technology.
NAMELESS = """return [...document.querySelectorAll("input, select, textarea, button")]
  .filter(each => !(each.labels?.length || each.getAttribute("aria-label")
    || each.textContent.trim())).map(each => each.outerHTML)"""


def drawn(folder: Path) -> list[Path]:
    """Six noisy images of four classes."""
    paths = [folder / f"{index}.png" for index in range(6)]
    for index, path in enumerate(paths):
        ShapeImage(0, index, THINGS[index % 4], "noise", 3).draw().save(path)
    return paths


class Page:
    """A session in the browser, as a person sees and uses it, with six images to send."""

    def __init__(self, browser: Chrome, server: Process, images: list[Path]) -> None:
        self.browser, self.server, self.images = browser, server, images
        self.sessions = f"{server.address}/v1/sessions"

    def open(self, classes: list[str]) -> None:
        """Show a new session of these classes, wide and light."""
        session = httpx.post(self.sessions, json={"classes": classes}).json()["id"]
        emulate(self.browser, SIZES["wide"])
        self.browser.get("about:blank")
        self.browser.get(f"{self.server.address}/#{session}")
        self.api = f"{self.sessions}/{session}"
        until(self.is_live)

    def run(self, script: str, *arguments: Any) -> Any:
        """The result of a script in the page."""
        return self.browser.execute_script(script, *arguments)

    def go_home(self) -> None:
        """Open the page on which sessions start."""
        self.browser.get(f"{self.server.address}/#")
        until(lambda: self.text("#start h1") == "Start a session")

    def type(self, field: str, *keys: str) -> None:
        """Type into the field with this id."""
        self.browser.find_element("id", field).send_keys(*keys)

    def other(self, card: int) -> str:
        """A class that the card of this place does not show."""
        return next(name for name in CLASSES if name != self.cards(".label")[card])

    def texts(self, selector: str) -> list[str]:
        """Texts of visible elements, also of cards that are not drawn yet."""
        script = """return [...document.querySelectorAll(arguments[0])]
          .filter(each => each.checkVisibility())
          .map(each => (each.innerText || each.textContent).trim())"""
        return list(self.run(script, selector))

    def text(self, selector: str) -> str:
        """Text of the first visible element; empty if there is none."""
        return (self.texts(selector) or [""])[0]

    def click(self, selector: str) -> None:
        """Click an element, wherever it is on the page."""
        element = self.browser.find_element("css selector", selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def accept(self) -> None:
        """Say yes to the question that the page asks, once it does."""
        WebDriverWait(self.browser, 30).until(alert_is_present()).accept()

    def choose(self, *paths: Path) -> None:
        """Choose files as images."""
        self.type("files", "\n".join(map(str, paths)))

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
        self.choose_option("#options li", label)
        until(lambda: "learning" not in self.text(f"#grid li:nth-child({card + 1}) .mark"))

    def choose_option(self, options: str, text: str) -> None:
        """Click the option whose first line is this text."""
        found = self.browser.find_elements("css selector", options)
        [option] = [each for each in found if each.text.split("\n")[0] == text]
        option.click()

    def answers(self) -> list[dict[str, Any]]:
        """All answers of the session, as they are downloaded."""
        return [json.loads(line) for line in httpx.get(f"{self.api}/answers").text.splitlines()]

    def press(self, *keys: str) -> None:
        """Type, wherever the focus is."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def is_live(self) -> bool:
        """Whether the page says that it sees what happens."""
        return self.text("#connection") == "live"


def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds on a page, which may be redrawn."""
    ignored = [StaleElementReferenceException]
    waiting = WebDriverWait(holds, 20, 0.05, ignored)  # type: ignore[type-var]
    waiting.until(lambda _: holds(), "it never came true")
