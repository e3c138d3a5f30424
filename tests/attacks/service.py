"""Attacks on the folder of a service."""

from __future__ import annotations

import functools
import logging
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from attacks.base import Outcome, bent, fresh, refused, require
from colour_encoder import COLOURS
from sentences import check_sentence
from served import client, png, send, start

_CONFIG: dict[str, Any] = {"keep_images": True, "snapshot_every": 5, "max_memory": 10_000_000}
_PATHS = ("", "/answers", "/images/2", "/images/3/thumbnail", "/state")
_REFUSED = (404, 500, 503)  # a thumbnail or an image that is lost is not kept


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
        logging.disable(logging.CRITICAL)  # it may fail, but has to say how
        with client(folder, **_CONFIG) as served:
            for address, content in expected.items():
                answer = served.get(address)
                seen.add(answer.status_code)
                if answer.status_code == 200:
                    require(answer.content == content, f"another answer of {address}")
                else:
                    require(answer.status_code in _REFUSED, answer.text)
                    check_sentence(answer.json()["detail"])
                    require("/" + "tmp" not in answer.text, f"a path of the server: {answer.text}")

    try:
        refused_at_start = refused(read)
    finally:
        logging.disable(logging.NOTSET)
    return "handled" if seen == {200} and not refused_at_start else "refused"
