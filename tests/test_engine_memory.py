"""The peak memory of a run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crg.engine import RunSpec, results_only, run_all
from crg.engine.worker import peak_bytes
from crg.streams import Scenario
from made_files import save_plugin, save_stream

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell"
)
LARGE = 200_000_000


@pytest.fixture
def greedy(tmp_path: Path) -> str:
    """A plug-in whose method takes 200 MB, as one that keeps too much would."""
    text = save_plugin(tmp_path).read_text()
    path = tmp_path / "greedy.py"
    path.write_text(
        text.replace(
            "time.sleep(self.config.seconds)",
            f"self.kept = getattr(self, 'kept', None) or b'1' * {LARGE}",
        )
        .replace('"constant"', '"greedy"')
        .replace("class Constant", "class Greedy")
    )
    return str(path)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_method_that_takes_more_is_seen_to(tmp_path: Path, greedy: str, workers: int) -> None:
    """The figure is that of the run alone, with plug-ins and labelled images, in any process."""
    path, few = str(save_stream(tmp_path / "a.npz")), str(save_stream(tmp_path / "few.npz", seed=1))
    specs = [
        RunSpec(path, method, few=few, scenario=Scenario(images=20), measure_memory=True)
        for method in ("greedy", "zero_shot")
    ]
    peaks = {
        spec.method: result.metrics["peak_bytes"]
        for spec, result in results_only(run_all(specs, workers, [greedy]))
    }
    assert 10_000_000 < peaks["zero_shot"] < 1_000_000_000
    assert LARGE * 0.9 < peaks["greedy"] - peaks["zero_shot"] < LARGE * 1.5


def test_memory_is_measured_where_it_is_asked_for(tmp_path: Path) -> None:
    """A run that did not ask has no such figure."""
    [(_, result)] = results_only(run_all([RunSpec(str(save_stream(tmp_path / "a.npz")), "tda")]))
    assert "peak_bytes" not in result.metrics


def test_only_the_first_images_are_run(tmp_path: Path) -> None:
    """A stream that is longer than what is measured is not run to its end."""
    plugin = tmp_path / "own_method.py"
    plugin.write_text(
        save_plugin(tmp_path)
        .read_text()
        .replace(
            "time.sleep(self.config.seconds)", f"open({str(tmp_path / 'seen')!r}, 'a').write('1')"
        )
    )
    path = str(save_stream(tmp_path / "a.npz", n=200))
    assert peak_bytes(RunSpec(path, "constant"), [str(plugin)])
    assert 64 <= len((tmp_path / "seen").read_text()) < 128


def test_a_process_that_fails_gives_no_figure(tmp_path: Path) -> None:
    """Where nothing could be measured nothing is claimed."""
    assert peak_bytes(RunSpec(str(tmp_path / "none.npz"), "tda")) is None


def test_the_measuring_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    """A worker that is killed while memory is measured leaves no process behind."""
    plugin, path = save_plugin(tmp_path), save_stream(tmp_path / "a.npz")
    seen = tmp_path / "pid"
    slow = f"__import__('pathlib').Path({str(seen)!r}).write_text(str(os.getpid())); time.sleep(60)"
    plugin.write_text(plugin.read_text().replace("time.sleep(self.config.seconds)", slow))
    code = (
        "from crg.engine import RunSpec; from crg.engine.worker import peak_bytes;"
        f"peak_bytes(RunSpec({str(path)!r}, 'constant'), [{str(plugin)!r}])"
    )
    asking = subprocess.Popen([sys.executable, "-c", code])
    _wait_until(lambda: seen.exists() and seen.read_text() != "")
    asking.kill()
    asking.wait()
    _wait_until(lambda: _is_gone(int(seen.read_text())))


def _is_gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True


def _wait_until(came_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 50
    while not came_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
