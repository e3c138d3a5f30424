"""Settings and fixtures for all tests."""

import getpass
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

# The arrays of the tests are small: threads of two libraries would only fight over them.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402  (NumPy must find the variables set)
from filelock import FileLock  # noqa: E402
from hypothesis import settings  # noqa: E402
from PIL import Image  # noqa: E402

from crg import create, parts  # noqa: E402
from crg.checks.base import make_stream, make_task, run  # noqa: E402
from crg.images.preprocessing import Preprocessing  # noqa: E402
from crg.images.views import Recipe, make_views  # noqa: E402
from crg.methods import registry  # noqa: E402

# At home hypothesis looks for new examples; where others wait for the answer it repeats itself.
# No example has a deadline: on a busy machine one of 30 ms took a second.
settings.register_profile("crg", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("crg")


# Who starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take longest begin first, so that processes beside each other end together.
_LONGEST = "checks oracle attacks ray predict_folder anchored rerun onnx surface bench review"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Workers begin in turn: one compiles modules and kernels, a minute at first; others load."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with FileLock(Path(tempfile.gettempdir(), f"crg-tests-{getpass.getuser()}.lock")):
        with suppress(Exception):  # a test will say what is wrong
            for task in map(make_task, ("float64", "float32")):
                run(create("crg", task), make_stream(task, 20, 8))
            small = Preprocessing(32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
            make_views(Image.new("RGB", (64, 48)), small, Recipe(16, "augmix"), "any")
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    order = {f"test_{name}": place for place, name in enumerate(_LONGEST.split())}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(autouse=True, scope="session")
def own_text_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests keep their text features away from the user's."""
    os.environ["CRG_CACHE"] = str(tmp_path_factory.mktemp("text-cache"))


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
