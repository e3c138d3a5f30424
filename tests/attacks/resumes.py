"""Attacks on what ``crg predict`` keeps: answers, settings, state and journal, then --resume."""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attacks.base import Outcome, bent, bent_json, edited, fresh, refused, require
from colour_encoder import COLOURS, ColourEncoder, save_stream
from crg.classifier import Classifier
from crg.predict.answers import AnswerFile, Layout, resume_folder
from crg.predict.stream import ImageStream, Journal
from crg.types import InputError

NAMES = (  # what file systems allow and programs stumble over
    *("a\u0085b", "a\u2028b", "a\u2029b", "a\rb", "a\nb", "=1+1", "-x", "@y", "+z", "'=q", 'q"q'),
    *("\x1b[2J", "\x9b31m", "\u202egnp", "caf\u00e9", "cafe\u0301", "%s%n", "{0}", "$(id)", ";ls"),
    *("\udcff\udcfe", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "a,b"),
    *("x" * 200, "\u00fc" * 100, " ", "\t", "'", "\\", "a;b", "null", "\u200b", "#", "~", "a b"),
)


def stream(
    folder: Path, paths: Sequence[Path], layout: Layout = "jsonl", stop_after: int | None = None
) -> None:
    """What ``crg predict --resume`` does, without its model; ``stop_after`` some images it dies."""
    out = folder / f"answers.{layout}"
    kept = resume_folder(out)
    state = kept / "state"
    known: dict[str, Any] = {"state": state} if state.exists() else {"classes": list(COLOURS)}
    classifier = Classifier(ColourEncoder(), views=2, **known)
    with AnswerFile(out, layout, True, classifier.settings) as answers:
        journal = Journal(kept / "journal")
        images = ImageStream(classifier, answers, [state], journal, 4, True, started_at=0)
        for number, _ in enumerate(images.run(paths), start=1):
            if number == stop_after:
                images.states = ()  # killed: nothing is saved any more
                return


@functools.cache
def _material(layout: Layout) -> tuple[Path, list[Path]]:
    """Images, the answers to all of them, and those of a run that was killed."""
    place = Path(tempfile.mkdtemp(prefix="crg-attacks-"))
    os.environ["CRG_CACHE"] = str(place / "cache")
    paths = save_stream(place / "images", 11)
    for name, stop in (("whole", None), ("killed", 7)):
        stream(fresh(place / name), paths, layout, stop)
    return place, paths


def resumed(dice: random.Random, place: Path) -> Outcome:
    """One file of a killed run is damaged or edited: refused, or the answers are sound."""
    layout: Layout = dice.choice(("jsonl", "csv"))
    source, paths = _material(layout)
    folder = fresh(place / "run", source / "killed")
    answers, kept = folder / f"answers.{layout}", resume_folder(folder / f"answers.{layout}")
    target = dice.choice((answers, kept / "settings.json", kept / "state", kept / "journal"))
    before = target.read_bytes()
    target.write_bytes(_damaged(dice, target, before))
    damaged = answers.read_bytes()
    if refused(lambda: stream(folder, paths, layout)):
        after, damaged = answers.read_bytes(), damaged.rstrip(b"\0")  # which hold no answer
        require(damaged.startswith(after) or after.startswith(damaged), "answers were changed")
        return "refused"
    whole = (source / "whole" / answers.name).read_bytes()
    if target != answers or whole.startswith(damaged):
        require(answers.read_bytes() == whole, f"other answers after damage to {target.name}")
    return "handled"


def _damaged(dice: random.Random, target: Path, content: bytes) -> bytes:
    if target.suffix == ".json" and dice.random() < 0.7:
        return bent_json(dice, json.loads(content))
    if target.suffix == ".jsonl" and dice.random() < 0.7:
        lines = content.splitlines(keepends=True)
        place = dice.randrange(len(lines))
        lines[place] = bent_json(dice, json.loads(lines[place])) + b"\n"
        return b"".join(lines)
    if target.suffix == ".csv" and dice.random() < 0.5:
        rows = [line.split(b",") for line in content.split(b"\n")]
        row = dice.choice(rows)
        row[dice.randrange(len(row))] = str(edited(dice, [1])).encode("utf-8", "replace")
        return b"\n".join(b",".join(row) for row in rows)
    return bent(dice, content)


def odd_names(dice: random.Random, place: Path) -> Outcome:
    """Whatever images are called, a stopped and resumed run gives the answers of a whole one."""
    layout: Layout = dice.choice(("jsonl", "csv"))
    _, paths = _material(layout)
    named, whole, parts = (fresh(place / name) for name in ("images", "whole", "parts"))
    images = []
    for name, path in zip(dice.sample(NAMES, 6), paths, strict=False):
        images.append(named / f"{name}{dice.choice(('', name[:9]))}.png")
        shutil.copy(path, images[-1])
    stream(whole, images, layout)
    stream(parts, images, layout, stop_after=dice.randint(1, 5))
    stream(parts, images, layout)
    one, other = ((each / f"answers.{layout}").read_bytes() for each in (whole, parts))
    require(one == other, "other answers after --resume")
    require(layout == "csv" or one.decode().replace("\n", "").isprintable(), "raw escapes")
    return "handled"


def full_disk(dice: random.Random, place: Path) -> Outcome:
    """Any write of a run fails: it is refused, and then continues as if nothing had happened."""
    layout: Layout = dice.choice(("jsonl", "csv"))
    source, paths = _material(layout)
    folder = fresh(place / "full")
    was_refused = refused(lambda: _on_full_disk(folder, paths, layout, dice.randint(40, 20_000)))
    stream(folder, paths, layout)
    file = f"answers.{layout}"
    same = (folder / file).read_bytes() == (source / "whole" / file).read_bytes()
    require(same, "other answers after a full disk")
    return "refused" if was_refused else "handled"


def _on_full_disk(folder: Path, paths: Sequence[Path], layout: Layout, limit: int) -> None:
    """In a separate process, because a limit on the size of files cannot be lifted again."""
    out, back = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        said = b""
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            stream(folder, paths, layout)
        except InputError as error:
            said = str(error).encode()
        except BaseException as error:
            said = f"BROKEN {type(error).__name__}: {error}".encode()
        os.write(back, said)
        os._exit(0)
    os.close(back)
    with open(out, "rb") as pipe:
        sentence = pipe.read().decode()
    os.waitpid(child, 0)
    require(not sentence.startswith("BROKEN"), sentence)
    if sentence:
        raise InputError(sentence)
