"""Settings and fixtures for all tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# The arrays of the tests are small: threads of two libraries would only fight over them.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402  (NumPy must find the variables set)
from filelock import FileLock  # noqa: E402
from hypothesis import settings  # noqa: E402

from crg import create, parts  # noqa: E402
from crg.checks.base import make_stream, make_task, run  # noqa: E402
from crg.methods import registry  # noqa: E402

# At home hypothesis looks for new examples; where others wait for the answer it repeats itself.
# No example has a deadline: on a busy machine one of 30 ms took a second.
settings.register_profile("crg", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("crg")


# Who starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take longest begin first, so that processes beside each other end together.
_LONGEST = (
    *("test_checks", "test_oracle", "test_attacks", "test_ray", "test_predict_folder"),
    *("test_anchored", "test_rerun", "test_onnx", "test_surface", "test_bench", "test_review"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    order = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(autouse=True, scope="session")
def own_text_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests keep their text features away from the user's."""
    os.environ["CRG_CACHE"] = str(tmp_path_factory.mktemp("text-cache"))


@pytest.fixture(autouse=True, scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One worker compiles CRG's kernels, which takes half a minute; the others load its files."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with FileLock(tmp_path_factory.getbasetemp().with_name("kernels.lock")):
            for task in map(make_task, ("float64", "float32")):
                run(create("crg", task), make_stream(task, 20, 8))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test, as working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test registers are removed after it."""
    monkeypatch.setattr(registry, "_methods", registry.registered())


@pytest.fixture(params=["compiled", "plain"])
def both_forms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test with the compiled kernels and again with plain array code."""
    if request.param == "plain":
        monkeypatch.setattr(parts, "_kernels", lambda: None)
    else:
        assert parts._kernels() is not None, "numba is missing: install crg-tta[fast]"
    yield request.param
