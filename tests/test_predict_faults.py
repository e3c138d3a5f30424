"""Stops of all kinds: afterwards --resume gives the bytes of a run that was never stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crg.predict.stream import Journal
from crg.shapes import shape_images

N_IMAGES = 32
NAMES = "red circle,blue square,green star,white netted star"


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of rendered shapes, and the answers of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("stops")
    (folder / "in").mkdir()
    for i, source in enumerate(shape_images("fog", 2, N_IMAGES, 3).sources):
        source.draw().save(folder / "in" / f"{i:03}.png")  # type: ignore[union-attr]
    assert predict(folder, "whole.jsonl", "--passes", "1").wait() == 0
    return folder


def predict(folder: Path, out: str, *more: str) -> subprocess.Popen[bytes]:
    """The command, at work."""
    words = ["predict", "in", "--classes", NAMES, "--model", "mini", "--views", "24"]
    environment = {**os.environ, "CRG_CACHE": str(folder / "cache"), "CRG_COMPILED": "0"}
    command = [sys.executable, "-m", "crg", *words, "--out", out, *more]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, env=environment, stderr=said)


def stopped_after(process: subprocess.Popen[bytes], out: Path, lines: int, number: int) -> None:
    """Send a signal once there are so many lines."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if out.exists() and out.read_bytes().count(b"\n") >= lines:
            process.send_signal(number)
            break
        time.sleep(0.002)
    process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_stop_and_a_resume_give_the_same_bytes(
    pictured: Path, tmp_path: Path, number: int
) -> None:
    """Killed or terminated, twice, though answered images have been removed."""
    shutil.copytree(pictured / "in", tmp_path / "in")
    out = tmp_path / "parts.jsonl"
    for lines in (7, 17):
        process = predict(tmp_path, out.name, *(["--resume"] if lines > 7 else ["--passes", "1"]))
        stopped_after(process, out, lines, number)
        assert process.returncode in (0, -signal.SIGKILL, 143, 130)
        if process.returncode > 0:
            assert "--resume continues" in (tmp_path / "said").read_text()
        for line in out.read_text().splitlines():
            (tmp_path / json.loads(line)["path"]).unlink(missing_ok=True)
    if any((tmp_path / "in").iterdir()):
        assert predict(tmp_path, out.name, "--resume").wait() == 0
    assert out.read_bytes() == (pictured / "whole.jsonl").read_bytes()


def test_a_journal_that_was_cut_off_gives_its_whole_records(tmp_path: Path) -> None:
    """Wherever it ends, and whatever bit is wrong, what comes before is read."""
    journal = Journal(tmp_path / "journal")
    rows = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)
    for step, views in enumerate(rows):
        journal.add(step, views)
    whole = journal.path.read_bytes()
    size = len(whole) // 3
    for end in range(len(whole)):
        journal.path.write_bytes(whole[:end])
        read = list(journal)
        assert len(read) == end // size
        assert all(np.array_equal(views, rows[step]) for step, views, _ in read)
    bent = bytearray(whole)
    bent[size + 20] ^= 1
    journal.path.write_bytes(bent)
    assert [step for step, *_ in journal] == [0]


def test_a_kill_in_either_pass_loses_no_image(pictured: Path, tmp_path: Path) -> None:
    """Killed while it learns and while it moves images, it ends as if nothing had happened."""
    words = ("--passes", "2", "--sort-into", "sorted", "--by", "move")
    for name in ("whole", "parts"):
        shutil.copytree(pictured / "in", tmp_path / name / "in")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert predict(whole, "out.jsonl", *words).wait() == 0
    watched = {parts / "out.jsonl.resume" / "first.jsonl": 7, parts / "out.jsonl": 9}
    for file, lines in watched.items():
        more = ["--resume"] if (parts / "out.jsonl").exists() else []
        stopped_after(predict(parts, "out.jsonl", *words, *more), file, lines, signal.SIGKILL)
    assert predict(parts, "out.jsonl", *words, "--resume").wait() == 0
    assert (parts / "out.jsonl").read_bytes() == (whole / "out.jsonl").read_bytes()
    found = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.png")}
        for folder in (whole, parts)
    ]
    assert found[0] == found[1] and len(found[0]) == N_IMAGES
