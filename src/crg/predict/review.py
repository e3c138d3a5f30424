"""The review page: answers with thumbnails in one file, where a person corrects labels.

The page needs neither a network nor a server. Everything about an image is data that its script
puts on the screen as text, so that no class or file name ever becomes markup.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from crg.atomic import replacing
from crg.images.reading import read_image
from crg.predict.answers import CORRECTED, Line, kept_settings, place_of, read_answers
from crg.predict.lines import TOP
from crg.types import InputError

MARK = 'content="crg review"'  # by which our pages are known
MOST = 5000  # images on a page: about 15 MB
THUMBNAIL_BYTES = 3000
_SIZES = ((112, 70), (112, 45), (112, 25), (64, 40), (32, 40))  # side in pixels, JPEG quality
_FACTS = ("path", "label", "zero_shot_label", "error", "changed", CORRECTED, "none_of_these",
          "class_set")  # fmt: skip
_NUMBERS = ("probability", "zero_shot_probability", "outside")


def read_lines(path: Path) -> dict[str, Line]:
    """The answers of a file by the path of the image; of several about one image the last.

    The path of an image that was moved when it was sorted is where it is now.
    """
    placed = ({**line, "path": str(place_of(line))} for line in read_answers(path))
    lines = {line["path"]: line for line in placed}
    if not lines:
        raise InputError(f"{path} holds no answers yet: name a file that crg predict has filled.")
    return lines


def known_classes(answers: Path, lines: Mapping[str, Line]) -> list[str]:
    """The classes that the answers were chosen from; those that occur if no settings are kept."""
    kept = kept_settings(answers).get("classes")
    names = [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []
    labels = ("label", "zero_shot_label")
    occur = {line.get(name, "") for line in lines.values() for name in labels}
    return names + sorted(occur - {"", *names})


def write(
    target: Path,
    lines: Mapping[str, Line],
    classes: Sequence[str],
    title: str,
    before: Mapping[str, Line] | None = None,
    most: int = MOST,
    workers: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> int:
    """Write the page of some answers, replacing an older one; returns how many images are missing.

    Of more than ``most`` images the corrected, unreadable and least sure ones are shown.
    ``before`` are earlier answers: images whose label has changed since are marked. ``advance`` is
    called after each thumbnail.
    """
    rest = sorted(lines.values(), key=_confidence)
    first = sorted(rest, key=lambda line: not (line.get(CORRECTED) or line.get("error")))
    shown = sorted(first[:most], key=_confidence)
    with ThreadPoolExecutor(workers) as pool:
        images = []
        for image in pool.map(lambda line: _entry(line, before, target.parent), shown):
            images.append(image)
            advance()
    facts = json.dumps([(line["path"], line.get("label")) for line in lines.values()])
    content = {
        "title": title,
        "key": hashlib.sha256(facts.encode()).hexdigest()[:16],  # for the corrections to them
        "classes": list(classes),
        "images": images,
        "left_out": len(lines) - len(shown),
        "compared": before is not None,
    }
    with replacing(target) as partial:
        partial.write_text(_rendered(title, content), encoding="utf-8")
    return sum("missing" in image and "error" not in image for image in images)


def thumbnail(source: Any) -> bytes:
    """A small JPEG of an image, of at most about 3 kB."""
    small = read_image(source).copy()
    for side, quality in _SIZES:
        file = io.BytesIO()
        small.thumbnail((side, side))
        small.save(file, "JPEG", quality=quality, optimize=True)
        if file.tell() <= THUMBNAIL_BYTES:
            break
    return file.getvalue()


def _entry(line: Line, before: Mapping[str, Line] | None, folder: Path) -> dict[str, Any]:
    """One image as the script of the page in ``folder`` reads it; without a thumbnail, why."""
    entry = {name: line[name] for name in _FACTS if line.get(name)}
    entry |= {name: _number(line[name]) for name in _NUMBERS if name in line}
    if line.get(TOP):
        entry[TOP] = [best["label"] for best in line[TOP]]
    try:
        entry["thumbnail"] = base64.b64encode(thumbnail(line["path"])).decode()
    except InputError as error:
        entry["missing"] = str(error)
    else:
        with contextlib.suppress(ValueError):  # on another drive: the thumbnail is enlarged then
            relative = Path(os.path.relpath(line["path"], folder)).as_posix()
            entry["source"] = quote(relative, errors="surrogateescape")
    earlier = None if before is None else before.get(line["path"])
    if earlier is not None and (earlier.get("label") or "") != (line.get("label") or ""):
        entry["was"] = earlier.get("label") or ""
    return entry


def _confidence(line: Line) -> float:
    """The probability to sort an answer by; an image that could not be read comes last."""
    return 2.0 if line.get("error") else _number(line.get("probability"))


def _number(value: float | None) -> float:
    """A probability; zero for a number that is none."""
    return value if value is not None and 0.0 <= value <= 1.0 else 0.0


def _rendered(title: str, content: Mapping[str, Any]) -> str:
    folder = resources.files("crg.predict")
    style, script = (
        "".join((folder / name).read_text("utf-8") for name in names.split())
        for names in ("cards/page.css review.css", "cards/cards.js review.js")
    )
    return Template((folder / "review.html").read_text("utf-8")).substitute(
        generator=f'<meta name="generator" {MARK}>',
        policy=f"default-src 'none'; img-src data: file: 'self'; style-src {_source(style)}; "
        f"script-src {_source(script)}; base-uri 'none'; form-action 'none'",
        title=html.escape(title),
        style=style,
        script=script,
        content=json.dumps(content).replace("<", "\\u003c"),  # so that nothing ends the element
    )


def _source(text: str) -> str:
    """The source of an inline style or script in a content security policy: its digest."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
