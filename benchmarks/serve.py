"""The service beside the bare encoder, in turns on the same machine.

``python benchmarks/serve.py`` prints the table of docs/service.md. In each round the bare encoder
and each number of clients have their turn; ratios are taken within a round, and medians over them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.images.preprocessing import Pixels
from crg.images.reading import read_image
from crg.images.views import Recipe, iter_views
from crg.shapes import shape_images
from crg.threads import processors
from crg.types import InputError

_IMAGES = 256
_BATCH = 32  # as the service has them
_VIEWS = (1, 16)  # per image
ALONE, READING = "encoder, decoded images", "reading + encoder"
Record = dict[str, float]


@dataclass(frozen=True)
class Load:
    """The clients of one turn."""

    clients: int
    images: int = 1  # per request
    views: int = 1  # per image

    def __str__(self) -> str:
        found = f"{self.clients} client{'s' * (self.clients > 1)}"
        found += f", {self.images} images per request" * (self.images > 1)
        return found + f", {self.views} views" * (self.views > 1)


_LOADS = (Load(1), Load(8), Load(64), Load(8, images=8), Load(8, views=16))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--pixels", type=int, default=224, help="a side of each image")
    parser.add_argument("options", nargs="*", help="of crg serve, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        files = _write_images(Path(place) / "images", given.pixels)
        rounds = [_round(files, Path(place) / str(n), given) for n in range(given.rounds)]
    print(table(rounds))


def _write_images(folder: Path, side: int) -> list[Path]:
    folder.mkdir()
    images = shape_images("night", 3, _IMAGES, 0).sources
    files = [folder / f"{n:04d}.jpg" for n in range(_IMAGES)]
    for file, image in zip(files, images, strict=True):
        read_image(image).resize((side, side)).save(file, quality=90)
    return files


def _round(files: Sequence[Path], data: Path, given: argparse.Namespace) -> dict[str, Record]:
    """One turn of everything; the bare encoder has one before and one after the service."""
    encoder, contents = load_encoder("mini"), [file.read_bytes() for file in files]
    before = _bare(encoder, contents, given.seconds)
    turns = {}
    for load in _LOADS:
        with _served(data / str(load), given.options) as (port, process):
            begun = sum(map(_processor_of, _with_children(process)))
            found = _loaded(port, load, given.seconds, files[0].parent)
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            answered = float(text.partition("\ncrg_images_total ")[2].split()[0])
            used = sum(map(_processor_of, _with_children(process))) - begun
            found["milliseconds"] = 1000 * used / answered
            found["megabytes"] = sum(map(_peak_of, _with_children(process)))
        found["images"] = found["per_second"] * load.images
        turns[str(load)] = found
    after = _bare(encoder, contents, given.seconds)
    for name in before:
        both = (before[name], after[name])
        turns[name] = {key: sum(one[key] for one in both) / 2 for key in both[0]}
    return turns


def _bare(encoder: Encoder, contents: Sequence[bytes], seconds: float) -> dict[str, Record]:
    """Images per second without the service, in this process."""
    return {
        name: turn
        for views in _VIEWS
        for name, turn in _bare_with(views, encoder, contents, seconds / len(_VIEWS) / 2)
    }


def _bare_with(
    views: int, encoder: Encoder, contents: Sequence[bytes], seconds: float
) -> Iterator[tuple[str, Record]]:
    ids, recipe = [""] * len(contents), Recipe(views)

    def batches() -> Iterator[Pixels]:
        made = iter_views(contents, ids, encoder.preprocessing, recipe, processors())
        while batch := list(itertools.islice(made, max(1, _BATCH // views))):
            yield np.concatenate([each for each in batch if not isinstance(each, InputError)])

    decoded = list(batches())
    yield _name(ALONE, views), _pace(encoder, views, lambda: iter(decoded), seconds)
    yield _name(READING, views), _pace(encoder, views, batches, seconds)


def _name(bare: str, views: int) -> str:
    return bare if views == 1 else f"{bare}, {views} views"


def _pace(
    encoder: Encoder, views: int, batches: Callable[[], Iterator[Pixels]], seconds: float
) -> Record:
    begun, used, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < begun + seconds:
        for batch in batches():
            done += len(encoder.encode_images(batch)) // views
    taken, used = time.perf_counter() - begun, time.process_time() - used
    return {"images": done / taken, "milliseconds": 1000 * used / done}


@contextlib.contextmanager
def _served(data: Path, options: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A service of its own; its port and its process."""
    command = [sys.executable, "-m", "crg", "serve", "--port", "0", "--data", str(data)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline().rstrip("/\n").rpartition(":")[2]), server.pid
        finally:
            server.send_signal(signal.SIGTERM)


def _loaded(port: int, load: Load, seconds: float, folder: Path) -> Record:
    script = str(Path(__file__).with_name("load.py"))
    numbers = map(str, (port, load.clients, load.images, load.views, seconds))
    done = subprocess.run(
        [sys.executable, script, *numbers, str(folder)], stdout=subprocess.PIPE, check=True
    )
    found: Record = json.loads(done.stdout)
    return found


def _with_children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    below = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [process, *(each for child in below for each in _with_children(child))]


def _processor_of(process: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_of(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def table(rounds: Sequence[dict[str, Record]]) -> str:
    """Medians over the rounds, as Markdown."""
    head = ("", "images/s", "of the bare", "ms of a core per image", "p50 ms", "p99 ms",
            "memory MB", "cores of the clients")  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for views in _VIEWS:
        bare = _name(READING, views)
        loads = [str(load) for load in _LOADS if load.views == views]
        for name in (_name(ALONE, views), bare, *loads):
            ratio = statistics.median(one[name]["images"] / one[bare]["images"] for one in rounds)
            cells = [f"{_median(rounds, name, 'images'):.0f}", f"{ratio:.2f}"]
            cells.append(f"{_median(rounds, name, 'milliseconds'):.1f}")
            if name in loads:
                cells += [f"{_median(rounds, name, key) * 1000:.0f}" for key in ("p50", "p99")]
                cells.append(f"{_median(rounds, name, 'megabytes'):.0f}")
                cells.append(f"{_median(rounds, name, 'client_processors'):.2f}")
            rows.append((name, *cells, *[""] * (len(head) - 1 - len(cells))))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _median(rounds: Sequence[dict[str, Record]], name: str, key: str) -> float:
    return statistics.median(one[name][key] for one in rounds)


if __name__ == "__main__":
    main()
