"""How long one step takes, against the plain form, other methods and the least there is.

    python benchmarks/step.py            measure and print the tables
    python benchmarks/step.py --write    and write them into docs/
    python benchmarks/step.py --quick    a smoke test with few steps
    python benchmarks/step.py --only 1000,512,64    one size K,D,V: milliseconds of CRG, of
                                         the least, and their ratio, for 1 and all threads

Each number of threads gets a process of its own, because libraries read it when they start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
_THREADS = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
# A size is K, D, V.
Sizes = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    sizes: Sizes
    classes: Sizes  # of the first panel
    widths: Sizes  # of the second
    plan: dict[str, int]  # for timing.Plan; empty for its defaults
    marks: tuple[int, ...]  # of the long run
    lasting: tuple[int, int, int]  # its size
    n_images: int  # after which it repeats itself


_FOUR = ((10, 512), (100, 512), (1000, 512), (1000, 1024))
FULL = Settings(
    sizes=tuple((k, d, v) for v in (1, 64) for k, d in _FOUR),
    classes=tuple((k, 512, 1) for k in (10, 32, 100, 316, 1000)),
    widths=tuple((100, d, 1) for d in (128, 256, 512, 1024)),
    plan={},
    marks=(1_000, 10_000, 100_000),
    lasting=(100, 512, 1),
    n_images=20_000,
)
QUICK = Settings(
    sizes=((10, 512, 1), (100, 512, 1), (1000, 512, 1), (100, 512, 64)),
    classes=((10, 512, 1), (100, 512, 1)),
    widths=((100, 128, 1), (100, 512, 1)),
    plan={"n_warm": 50, "steps": 50, "slow_steps": 10, "oracle_steps": 3,
          "oracle_steps_at_1000": 1},
    marks=(500, 5_000, 10_000),
    lasting=(100, 128, 1),
    n_images=5_000,
)  # fmt: skip


def work(part: str, threads: int, settings: Settings) -> Any:
    """One part of the measurement, in this process."""
    import torch

    import contenders
    from chart import CURVES
    from lasting import long_run
    from timing import Plan, measure
    from warm import Size

    torch.set_num_threads(threads)  # after the plain form, which asks for one when imported
    plan = Plan(**settings.plan)
    if part == "cases":
        return [measure(Size(*size), contenders.ALL, plan) for size in settings.sizes]
    if part == "long_run":
        size = Size(*settings.lasting)
        return {
            method: long_run(size, settings.n_images, settings.marks, method)
            for method in ("crg", "anchored")
        }
    panels = {"classes": settings.classes, "width": settings.widths}
    return {
        name: [measure(Size(*size), CURVES, plan) for size in sizes]
        for name, sizes in panels.items()
    }


def measure_only(size: tuple[int, int, int], plan: dict[str, int]) -> dict[str, float]:
    """Milliseconds of CRG and of the least at one size, in this process, and their ratio."""
    import contenders as c
    from timing import Plan, measure
    from warm import Size

    found = measure(Size(*size), (c.CRG, c.LEAST), Plan(**plan))["contenders"]
    ours, least = (float(found[name]["median"]) for name in (c.CRG, c.LEAST))
    return {"crg": ours, "least": least, "ratio": ours / least}


def parse_size(text: str) -> tuple[int, int, int]:
    """K,D,V as given on the command line."""
    try:
        k, d, v = (int(each) for each in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give K,D,V.") from None
    return k, d, v


def measure_all(settings: Settings, quick: bool) -> dict[str, Any]:
    """All parts, each in a process with its number of threads."""
    counts = sorted({1, os.cpu_count() or 1})
    record: dict[str, Any] = {"date": date.today().isoformat(), "machine": machine()}
    record["settings"] = asdict(settings)
    record["cases"] = {str(n): _in_process("cases", n, quick) for n in counts}
    for part in ("curves", "long_run"):
        record[part] = _in_process(part, 1, quick)
    return record


def _in_process(part: str, threads: int, quick: bool, *more: str) -> Any:
    began = time.perf_counter()
    # Torch's idle threads must sleep: spinning, they would slow down whoever is next.
    fixed = {"CRG_COMPILED": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = os.environ | dict.fromkeys(_THREADS, str(threads)) | fixed
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "part.json")
        command = [sys.executable, __file__, "--part", part, "--threads", str(threads)]
        command += ["--out", str(out), *(["--quick"] if quick else []), *more]
        subprocess.run(command, env=environment, check=True)
        result = json.loads(out.read_text())
    seconds = time.perf_counter() - began
    print(f"measured {part} with {threads} thread(s) in {seconds:.0f} s", file=sys.stderr)
    return result


def machine() -> dict[str, str]:
    """What the numbers depend on."""
    facts = {"processor": _processor(), "cores": str(os.cpu_count()), "system": platform.system()}
    facts["Python"] = platform.python_version()
    return facts | {name: version(name) for name in ("numpy", "torch", "numba")}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write(record: dict[str, Any], text: str) -> None:
    """The raw numbers, the tables and the chart, into docs/."""
    from chart import draw
    from report import between_markers

    document = DOCS / "performance.md"
    document.write_text(between_markers(document.read_text(), text))
    (DOCS / "performance.json").write_text(json.dumps(record, indent=1) + "\n")
    draw(record, DOCS / "performance.svg")


def main() -> None:
    """Read the arguments; measure, or be the process that measures one part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps, for a smoke test")
    parser.add_argument("--write", action="store_true", help="write docs/performance.*")
    parser.add_argument("--only", type=parse_size, metavar="K,D,V", help="one size, nothing else")
    for name in ("--part", "--threads", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    settings = QUICK if asked.quick else FULL
    if asked.part:
        result = (
            measure_only(asked.only, settings.plan)
            if asked.only
            else work(asked.part, int(asked.threads), settings)
        )
        Path(asked.out).write_text(json.dumps(result))
        return
    if asked.only:
        size = ",".join(map(str, asked.only))
        for threads in sorted({1, os.cpu_count() or 1}):
            found = _in_process("only", threads, asked.quick, "--only", size)
            print(f"{threads} thread(s): " + ", ".join(f"{k} {v:.3g}" for k, v in found.items()))
        return
    from report import tables

    record = measure_all(settings, asked.quick)
    text = tables(record)
    print(text)
    if asked.write:
        write(record, text)


if __name__ == "__main__":
    main()
