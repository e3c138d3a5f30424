"""The peak memory of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crg.engine.processes import run_all
from crg.engine.worker import peak_bytes, results_only
from crg.streams import Scenario
from made_experiments import spec
from made_files import save_plugin, save_stream
from processes import is_gone, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
LARGE = 200_000_000


@pytest.fixture
def greedy(tmp_path: Path) -> str:
    """A plug-in whose method takes 200 MB, as one that keeps too much would."""
    body = f"self.kept = getattr(self, 'kept', None) or b'1' * {LARGE}"
    path = save_plugin(tmp_path, body, "greedy")
    path.write_text(
        path.read_text().replace('"constant"', '"greedy"').replace("Constant", "Greedy")
    )
    return str(path)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_method_that_takes_more_is_seen_to(tmp_path: Path, greedy: str, workers: int) -> None:
    """The figure is that of the run alone, with plug-ins and labelled images, in any process."""
    path, few = str(save_stream(tmp_path / "a.npz")), str(save_stream(tmp_path / "few.npz", seed=1))
    asked: dict[str, Any] = {"scenario": Scenario(images=20), "memory": True, "plugins": (greedy,)}
    specs = [spec(path, method, few=few, **asked) for method in ("greedy", "zero_shot")]
    runs = results_only(run_all([*specs, spec(path, "tda")], workers))
    peaks: dict[str, Any] = {each.method: result.metrics.get("peak_bytes") for each, result in runs}
    assert peaks["tda"] is None  # it did not ask
    assert 10_000_000 < peaks["zero_shot"] < 1_000_000_000
    assert LARGE * 0.9 < peaks["greedy"] - peaks["zero_shot"] < LARGE * 1.5


def test_only_the_first_images_are_run(tmp_path: Path) -> None:
    """A stream that is longer than what is measured is not run to its end."""
    plugin = save_plugin(tmp_path, f"open({str(tmp_path / 'seen')!r}, 'a').write('1')")
    path = str(save_stream(tmp_path / "a.npz", n=200))
    assert peak_bytes(spec(path, "constant", plugins=(str(plugin),)))
    assert len((tmp_path / "seen").read_text()) == 64
    assert peak_bytes(spec(tmp_path / "none.npz", "tda")) is None  # a process that fails


def test_the_measuring_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    """A worker that is killed while memory is measured leaves no process behind."""
    seen, path = tmp_path / "pid", save_stream(tmp_path / "a.npz")
    slow = f"__import__('pathlib').Path({str(seen)!r}).write_text(str(os.getpid())); time.sleep(60)"
    plugin = save_plugin(tmp_path, slow)
    code = (
        "from crg.results.schema import Data, RunSpec; from crg.engine.worker import peak_bytes;"
        f"peak_bytes(RunSpec(Data({str(path)!r}), 'constant', {{}}, 0, plugins=({str(plugin)!r},)))"
    )
    asking = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: seen.exists() and seen.read_text() != "")
    asking.kill()
    asking.wait()
    wait_until(lambda: is_gone(int(seen.read_text())))
