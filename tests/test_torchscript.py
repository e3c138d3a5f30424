"""TorchScript archives: the same tensors as torch reads, and nothing of them is ever run."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crg.encoders import load_encoder
from crg.encoders.weights import is_torchscript, read_torchscript
from sentences import refused_in_one_sentence
from small_models import make_model, register_models, save_model

torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A traced transformer, a traced ResNet in half precision and a scripted layer."""
    register_models()
    folder = tmp_path_factory.mktemp("archives")
    tokens = torch.zeros(1, 77, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is on its way out
        trace: Any = torch.jit.trace
        vit, resnet = make_model("small-vit"), make_model("small-resnet")
        made = {
            "vit": trace(vit, (torch.zeros(1, 3, 32, 32), tokens), check_trace=False),
            "resnet": trace(resnet, (torch.zeros(1, 3, 64, 64), tokens), check_trace=False).half(),
            "scripted": torch.jit.script(torch.nn.Sequential(torch.nn.BatchNorm1d(3))),
        }
        for name, model in made.items():
            model.save(str(folder / f"{name}.pt"))
    return {name: folder / f"{name}.pt" for name in made}


@pytest.mark.parametrize("name", ["vit", "resnet", "scripted"])
def test_the_tensors_are_those_that_torch_reads(archives: dict[str, Path], name: str) -> None:
    """Every entry of the state dict is there with its kind, shape and values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = torch.jit.load(str(archives[name])).state_dict()
    read = read_torchscript(archives[name])
    assert is_torchscript(archives[name]) and set(read) >= set(expected)
    for key, tensor in expected.items():
        assert read[key].dtype == tensor.dtype and torch.equal(read[key], tensor), key


class _Calls:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def _hostile(source: Path, target: Path, content: bytes) -> Path:
    """The archive with another pickle in it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("/data.pkl") else old.read(name))
    return target


@pytest.mark.parametrize(
    "call",
    [
        _Calls(os.system, "touch run"),
        _Calls(Path.mkdir, Path("run")),
        _Calls(eval, "open('run', 'w')"),
        _Calls(getattr, "", "join"),
        [1, 2, 3],
        None,
    ],
    ids=["system", "mkdir", "eval", "getattr", "list", "nothing"],
)
def test_hostile_archives_are_refused(
    archives: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    """A pickle that calls anything, or holds no model, is refused and nothing is called."""
    monkeypatch.chdir(tmp_path)
    file = _hostile(archives["vit"], tmp_path / "hostile.pt", pickle.dumps(call, 2))
    with refused_in_one_sentence("hostile.pt"):
        load_encoder(f"small-vit:{file}", device="cpu")
    assert not (tmp_path / "run").exists()


def _beyond(key: str, count: int) -> bytes:
    """A pickle of one module with one tensor that begins at the storage ``key``."""
    pid = f"(X\x07\0\0\0storagectorch\nFloatStorage\nX{_text(key)}X{_text('cpu')}K\x01tQ"
    sizes = f"K\0(J{count.to_bytes(4, 'little').decode('latin-1')}t(K\x01t\x89N"
    return (
        "\x80\x02c__torch__.m\nM\n)\x81}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
        f"{pid}{sizes}tRsb."
    ).encode("latin-1")


def _text(text: str) -> str:
    return len(text).to_bytes(4, "little").decode("latin-1") + text


@pytest.mark.parametrize(("key", "count"), [("0", 10**6), ("../../secret", 1), ("nowhere", 1)])
def test_tensors_outside_of_the_archive_are_refused(
    archives: dict[str, Path], tmp_path: Path, key: str, count: int
) -> None:
    """A tensor beyond the end of its storage, or of a storage that is not there, is refused."""
    file = _hostile(archives["vit"], tmp_path / "hostile.pt", _beyond(key, count))
    with refused_in_one_sentence("hostile.pt"):
        load_encoder(f"small-vit:{file}", device="cpu")


def test_checkpoints_are_never_unpickled_freely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """open_clip tries again without a limit after a TypeError, and even then the limit holds."""
    register_models()
    file, limits = save_model("small-vit", tmp_path / "w.pt"), []

    def load(*_: Any, **options: Any) -> Any:
        limits.append(os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD"))
        raise TypeError("as a file may provoke")

    monkeypatch.setattr(torch, "load", load)
    with refused_in_one_sentence("w.pt"):
        load_encoder(f"small-vit:{file}", device="cpu")
    assert limits and set(limits) == {"1"}
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
