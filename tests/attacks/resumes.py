"""Attacks on what ``crg predict`` keeps: answers, settings, state and journal, then --resume."""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attacks.base import Outcome, bent, bent_json, fresh, refused, require
from colour_encoder import COLOURS, ColourEncoder, save_stream
from crg.classifier import Classifier
from crg.predict.answers import AnswerFile, lines_file, resume_folder
from crg.predict.stream import ImageStream

NAMES = (  # what file systems allow and programs stumble over
    *("a\u0085b", "a\u2028b", "a\u2029b", "a\rb", "a\nb", "=1+1", "-x", "@y", "+z", "'=q", 'q"q'),
    *("\x1b[2J", "\x9b31m", "\u202egnp", "caf\u00e9", "cafe\u0301", "%s%n", "{0}", "$(id)", ";ls"),
    *("\udcff\udcfe", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "a,b"),
    *("x" * 200, "\u00fc" * 100, " ", "\t", "'", "\\", "a;b", "null", "\u200b", "#", "~", "a b"),
)


def stream(
    folder: Path, paths: Sequence[Path], suffix: str = ".jsonl", stop_after: int | None = None
) -> None:
    """What ``crg predict --resume`` does, without its model; ``stop_after`` some images it dies."""
    out = folder / f"answers{suffix}"
    kept = resume_folder(out)
    state = kept / "state"
    known: dict[str, Any] = {"state": state} if state.exists() else {"classes": list(COLOURS)}
    classifier = Classifier(ColourEncoder(), views=2, **known)
    with AnswerFile(out, True, classifier.settings) as answers:
        images = ImageStream(classifier, answers, kept, save_every=4, started_at=0)
        for number, _ in enumerate(images.run(paths), start=1):
            if number == stop_after:
                images._last = -1  # killed: nothing is saved any more
                return


@functools.cache
def _material(suffix: str) -> tuple[Path, list[Path]]:
    """Images, the answers to all of them, and those of a run that was killed."""
    place = Path(tempfile.mkdtemp(prefix="crg-attacks-"))
    os.environ["CRG_CACHE"] = str(place / "cache")
    paths = save_stream(place / "images", 11)
    for name, stop in (("whole", None), ("killed", 7)):
        stream(fresh(place / name), paths, suffix, stop)
    return place, paths


def resumed(dice: random.Random, place: Path) -> Outcome:
    """One file of a killed run is damaged or edited: refused, or the answers are sound."""
    suffix = dice.choice((".jsonl", ".csv"))
    source, paths = _material(suffix)
    folder = fresh(place / "run", source / "killed")
    out = folder / f"answers{suffix}"
    answers, kept = lines_file(out), resume_folder(out)
    target = dice.choice((answers, kept / "settings.json", kept / "state", kept / "journal"))
    before = target.read_bytes()
    target.write_bytes(_damaged(dice, target, before))
    damaged = answers.read_bytes()
    if refused(lambda: stream(folder, paths, suffix)):
        after, damaged = answers.read_bytes(), damaged.rstrip(b"\0")  # which hold no answer
        require(damaged.startswith(after) or after.startswith(damaged), "answers were changed")
        return "refused"
    whole = lines_file(source / "whole" / out.name).read_bytes()
    if target != answers or whole.startswith(damaged):
        require(answers.read_bytes() == whole, f"other answers after damage to {target.name}")
        table = (source / "whole" / out.name).read_bytes()
        require(out.read_bytes() == table, f"another table after damage to {target.name}")
    return "handled"


def _damaged(dice: random.Random, target: Path, content: bytes) -> bytes:
    if target.suffix == ".json" and dice.random() < 0.7:
        return bent_json(dice, json.loads(content))
    if target.suffix == ".jsonl" and dice.random() < 0.7:
        lines = content.splitlines(keepends=True)
        place = dice.randrange(len(lines))
        lines[place] = bent_json(dice, json.loads(lines[place])) + b"\n"
        return b"".join(lines)
    return bent(dice, content)


def odd_names(dice: random.Random, place: Path) -> Outcome:
    """Whatever images are called, a stopped and resumed run gives the answers of a whole one."""
    suffix = dice.choice((".jsonl", ".csv"))
    _, paths = _material(suffix)
    named, whole, parts = (fresh(place / name) for name in ("images", "whole", "parts"))
    images = []
    for name, path in zip(dice.sample(NAMES, 6), paths, strict=False):
        images.append(named / f"{name}{dice.choice(('', name[:9]))}.png")
        shutil.copy(path, images[-1])
    stream(whole, images, suffix)
    stream(parts, images, suffix, stop_after=dice.randint(1, 5))
    stream(parts, images, suffix)
    one, other = ((each / f"answers{suffix}").read_bytes() for each in (whole, parts))
    require(one == other, "other answers after --resume")
    require(suffix == ".csv" or one.decode().replace("\n", "").isprintable(), "raw escapes")
    return "handled"


def full_disk(dice: random.Random, place: Path) -> Outcome:
    """Any write of a run fails: it is refused, and then continues as if nothing had happened."""
    suffix = dice.choice((".jsonl", ".csv"))
    source, paths = _material(suffix)
    folder = fresh(place / "full")
    was_refused = refused(lambda: _on_full_disk(folder, paths, suffix, dice.randint(40, 20_000)))
    stream(folder, paths, suffix)
    file = f"answers{suffix}"
    same = (folder / file).read_bytes() == (source / "whole" / file).read_bytes()
    require(same, "other answers after a full disk")
    return "refused" if was_refused else "handled"


def _on_full_disk(folder: Path, paths: Sequence[Path], suffix: str, limit: int) -> None:
    """A stream whose files cannot become larger than a limit."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most[1]))
    try:
        stream(folder, paths, suffix)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
