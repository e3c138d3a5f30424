"""What the service does beside the bare encoder, in turns on the same machine.

``python benchmarks/serve.py`` prints the table of docs/service.md. In each round the bare encoder
and each number of clients have their turn; ratios are taken within a round, and medians over them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.images.preprocessing import Pixels
from crg.images.reading import read_image
from crg.images.views import Recipe, iter_views
from crg.shapes import shape_images
from crg.threads import processors

_IMAGES = 256
_BATCH = 32  # as the service has them
_LOADS = ((1, 1), (8, 1), (64, 1), (8, 8))  # clients, and images per request
ALONE, READING = "encoder, decoded images", "reading + encoder"
Record = dict[str, float]


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
    for clients, per_request in _LOADS:
        with _served(data / f"{clients}-{per_request}", given.options) as (port, process):
            began = _processor_of(process)
            told = _loaded(port, clients, per_request, given.seconds, files[0].parent)
            told["processors"] = (_processor_of(process) - began) / (given.seconds + 1)
            told["megabytes"] = _peak_of(process)
        told["images"] = told["per_second"] * per_request
        turns[_name(clients, per_request)] = told
    after = _bare(encoder, contents, given.seconds)
    for name in before:
        turns[name] = {"images": (before[name] + after[name]) / 2}
    return turns


def _bare(encoder: Encoder, contents: Sequence[bytes], seconds: float) -> dict[str, float]:
    """Images per second without the service, in this process."""
    ids, recipe, wanted = [""] * len(contents), Recipe(), encoder.preprocessing

    def views() -> Iterator[Any]:
        return iter_views(contents, ids, wanted, recipe, processors())

    pixels = np.concatenate(list(views()))
    batches = [pixels[n : n + _BATCH] for n in range(0, len(pixels), _BATCH)]
    return {
        ALONE: _pace(encoder, lambda: iter(batches), seconds / 2),
        READING: _pace(encoder, lambda: _in_batches(views()), seconds / 2),
    }


def _in_batches(views: Iterator[Pixels]) -> Iterator[Pixels]:
    while batch := [each for _, each in zip(range(_BATCH), views, strict=False)]:
        yield np.concatenate(batch)


def _pace(encoder: Encoder, batches: Callable[[], Iterator[Pixels]], seconds: float) -> float:
    begun, done = time.perf_counter(), 0
    while time.perf_counter() < begun + seconds:
        for batch in batches():
            done += len(encoder.encode_images(batch))
    return done / (time.perf_counter() - begun)


@contextlib.contextmanager
def _served(data: Path, options: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A service of its own; its port and its process."""
    command = [sys.executable, "-m", "crg", "serve", "--port", "0", "--data", str(data)]
    limits = ["--max-rate", "1000000"]
    with subprocess.Popen(
        [*command, *limits, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline().rstrip("/\n").rpartition(":")[2]), server.pid
        finally:
            server.send_signal(signal.SIGTERM)


def _loaded(port: int, clients: int, per_request: int, seconds: float, folder: Path) -> Record:
    script = str(Path(__file__).with_name("load.py"))
    numbers = map(str, (port, clients, per_request, seconds))
    done = subprocess.run(
        [sys.executable, script, *numbers, str(folder)], stdout=subprocess.PIPE, check=True
    )
    told: Record = json.loads(done.stdout)
    return told


def _processor_of(process: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_of(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def _name(clients: int, per_request: int) -> str:
    told = f"{clients} client{'s' * (clients > 1)}"
    return told if per_request == 1 else f"{told}, {per_request} images per request"


def table(rounds: Sequence[dict[str, Record]]) -> str:
    """Medians over the rounds, as Markdown."""
    head = ("", "images/s", "of reading + encoder", "requests/s", "p50 ms", "p99 ms",
            "memory MB", "processors: service", "clients")  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for name in (ALONE, READING, *(_name(*each) for each in _LOADS)):
        ratio = statistics.median(one[name]["images"] / one[READING]["images"] for one in rounds)
        cells = [f"{_median(rounds, name, 'images'):.0f}", f"{ratio:.2f}"]
        if "p50" in rounds[0][name]:
            cells.append(f"{_median(rounds, name, 'per_second'):.0f}")
            cells += [f"{_median(rounds, name, key) * 1000:.1f}" for key in ("p50", "p99")]
            cells.append(f"{_median(rounds, name, 'megabytes'):.0f}")
            keys = ("processors", "client_processors")
            cells += [f"{_median(rounds, name, key):.2f}" for key in keys]
        rows.append((name, *cells, *[""] * (len(head) - 1 - len(cells))))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _median(rounds: Sequence[dict[str, Record]], name: str, key: str) -> float:
    return statistics.median(one[name][key] for one in rounds)


if __name__ == "__main__":
    main()
