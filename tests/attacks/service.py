"""Attacks on the service: damaged folders, and requests with something wrong in them."""

from __future__ import annotations

import functools
import logging
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from attacks.base import Outcome, bent, bent_json, fresh, odd_value, refused, require
from colour_encoder import COLOURS
from sentences import check_sentence
from served import client, headers_of, png, send, start

_CONFIG: dict[str, Any] = {"keep_images": True, "snapshot_every": 5, "max_memory": 10_000_000}
_PATHS = ("", "/answers", "/images/2", "/images/3/thumbnail", "/state")
_REFUSED = (404, 500, 503)  # a thumbnail or an image that is lost is not kept


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the service logs: it may fail, but has to say how."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@functools.cache
def _folder() -> tuple[Path, dict[str, bytes]]:
    """The folder of a service that was stopped, and what each address answered before."""
    folder = Path(tempfile.mkdtemp(prefix="crg-attacks-")) / "data"
    with client(folder, **_CONFIG) as served:
        sessions = [start(served, method=method) for method in ("anchored", "tda", "crg")]
        for session in sessions:
            for noise, colour in enumerate([*COLOURS] * 3):
                send(served, session, png(colour, noise=noise), f"{noise}")
            served.post(f"{session}/corrections", json={"image": 2, "label": "blue"})
            served.post(f"{session}/classes", json={"name": "red blue"})
        answers = {each + path: served.get(each + path) for each in sessions for path in _PATHS}
        require(all(each.status_code == 200 for each in answers.values()), "no answers")
    connection = sqlite3.connect(folder / "sessions.sqlite")
    connection.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
    connection.close()
    return folder, {path: each.content for path, each in answers.items()}


def damaged_log(dice: random.Random, place: Path) -> Outcome:
    """Bytes of the log, or of a snapshot, change: refused, or every answer is as it was."""
    made, expected = _folder()
    folder = fresh(place / "data", made)
    files = [folder / "sessions.sqlite"] * 4 + list((folder / "states").rglob("*.crg"))
    path = dice.choice(files)
    path.write_bytes(bent(dice, path.read_bytes()))
    seen: set[int] = set()

    def read() -> None:
        with _quiet(), client(folder, **_CONFIG) as served:
            for address, content in expected.items():
                answer = served.get(address)
                seen.add(answer.status_code)
                if answer.status_code != 200:
                    _check_refused(answer, *_REFUSED)
                else:
                    require(answer.content == content, f"another answer of {address}")

    refused_at_start = refused(read)
    return "handled" if seen == {200} and not refused_at_start else "refused"


def _check_refused(answer: Any, *statuses: int) -> None:
    require(answer.status_code in statuses, f"{answer.status_code}: {answer.text}")
    check_sentence(answer.json()["detail"])
    require("/" + "tmp" not in answer.text, f"a path of the server: {answer.text}")


def odd_requests(dice: random.Random, place: Path) -> Outcome:
    """Bodies with something wrong in value or text: answered, or refused in a sentence."""
    with _quiet(), client(fresh(place / "data"), **_CONFIG) as served:
        session = start(served)
        codes = {_send_odd(dice, served, session) for _ in range(12)}
        require(send(served, session, png())["label"] in (*COLOURS, "a b"), "another class")
    return "handled" if codes <= {200, 201} else "refused"


def _send_odd(dice: random.Random, served: TestClient, session: str) -> int:
    bodies: dict[str, Any] = {
        "/v1/sessions": {"classes": ["a", "b"], "method": "tda", "options": {}, "views": 1},
        f"{session}/images": {"features": [dice.uniform(-1, 1) for _ in range(4)], "name": "n"},
        f"{session}/corrections": {"image": 1, "label": "red"},
        f"{session}/classes": {"name": "a b"},
    }
    address = dice.choice([*bodies, "image"])
    if address == "image":
        answer = served.post(f"{session}/images", content=bent(dice, png()), headers=headers_of())
    else:
        if "options" in (body := bodies[address]) and dice.random() < 0.5:
            body["options"] = {dice.choice(("positive_size", "view_share")): odd_value(dice)}
        content = bent_json(dice, body)
        answer = served.post(address, content=content, headers={"Content-Type": "application/json"})
    if not answer.is_success:
        _check_refused(answer, 400, 413, 422)
    if answer.status_code == 201:
        require(served.delete(answer.headers["location"]).status_code == 204, "it stays")
    return answer.status_code
