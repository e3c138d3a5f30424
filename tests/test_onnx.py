"""Exported models: the same features without torch, and a folder that is complete or absent."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.atomic import file_sha256
from crg.cli.encoders import encoders as command
from crg.encoders import export as module
from crg.encoders import load_encoder
from crg.encoders.export import export
from sentences import refused_in_one_sentence
from small_models import MODELS, save_model, some_pixels
from torchvision_operators import open_clip

TEXTS = ["a photo of a cat.", "it's 2 DOGS &amp; a fox", "", "word " * 300, "naïve café"]

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")),
    reason="onnx or onnxruntime is not installed: install crg-tta[export]",
)


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    open_clip()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a small transformer."""
    return f"small-vit:{save_model('small-vit', tmp_path_factory.mktemp('weights') / 'w.pt')}"


@pytest.fixture(scope="module")
def made(original: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It exported."""
    return export(original, tmp_path_factory.mktemp("exports") / "vit").folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(made, tmp_path / "copy")


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_agree(name: str, tmp_path: Path) -> None:
    """Both give the same features, for batches of any size and texts of any length."""
    encoder = load_encoder(f"{name}:{save_model(name, tmp_path / 'w.pt')}", device="cpu")
    done = export(encoder.name, tmp_path / "folder")
    exported = load_encoder(done.name)
    pixels = some_pixels(5, encoder.preprocessing.size)
    images, texts = encoder.encode_images(pixels), encoder.encode_texts(TEXTS)
    assert np.allclose(exported.encode_images(pixels), images, atol=1e-5)
    assert np.allclose(exported.encode_texts(TEXTS), texts, atol=1e-5)
    for fact in ("preprocessing", "width", "logit_scale", "logit_bias"):
        assert getattr(exported, fact) == getattr(encoder, fact), fact
    assert 0 < max(done.image_difference, done.text_difference) < 1e-5


def test_exported_models_need_no_torch(made: Path) -> None:
    """An exported model works where neither torch nor open_clip can be imported."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['open_clip'] = None\n"
        "from crg.encoders import load_encoder\n"
        f"print(load_encoder('onnx:{made}').encode_texts(['a cat', 'a dog']).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 24)\n"


def test_pieces_and_nothing(made: Path) -> None:
    """A large input gives what its pieces give, and nothing gives no rows."""
    exported = load_encoder(f"onnx:{made}", device="cpu")
    pixels = some_pixels(70, 32)
    whole = exported.encode_images(pixels)
    assert np.allclose(whole[65:], exported.encode_images(pixels[65:]), atol=1e-6)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert exported.encode_images(pixels[:0]).shape == (0, 24)
    assert exported.encode_texts([]).shape == (0, 24)


def test_the_fingerprint_is_of_the_contents(made: Path, folder: Path, tmp_path: Path) -> None:
    """A copy has the same fingerprint, another model another one."""
    other = export(f"small-vit:{save_model('small-vit', tmp_path / 'w.pt', 1)}", tmp_path / "o")
    prints = [load_encoder(f"onnx:{each}").fingerprint for each in (made, folder, other.folder)]
    assert prints[0] == prints[1] != prints[2]


def test_the_command_tells_how_well_they_agree(original: str, tmp_path: Path) -> None:
    """The command prints the differences and the name to use, also as JSON."""
    out = str(tmp_path / "out")
    done = CliRunner().invoke(command, ["export", original, "--out", out])
    assert "differ by at most" in done.output and f"--model onnx:{out}" in done.output
    again = CliRunner().invoke(command, ["export", original, "--out", f"{out}2", "--json"])
    facts = json.loads(again.output)
    assert facts["name"] == f"onnx:{out}2" and facts["image_difference"] < 1e-5


def test_nothing_is_overwritten_by_accident(original: str, folder: Path, tmp_path: Path) -> None:
    """Whatever exists stays, and the folder above must exist."""
    for there in (folder, folder / "encoder.json"):
        with refused_in_one_sentence("exists already", "another name"):
            export(original, there)
    with refused_in_one_sentence("cannot be written", "exists and is writable"):
        export(original, tmp_path / "no" / "where")


def test_models_that_disagree_are_refused(
    original: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the tolerance nothing is left behind, not even a part of it."""
    monkeypatch.setattr(module, "_differences", lambda *_: (0.002, 0.0))
    with refused_in_one_sentence("2.0e-03", "nothing was written"):
        export(original, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(
    original: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full in the middle is reported as such, and the room is given back."""

    def fill(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.onnx.export", fill)
    with refused_in_one_sentence("No space left on device", "make room"):
        export(original, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_models_that_cannot_be_traced_are_reported(
    original: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch cannot export is reported with its reason."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Unsupported: the operator aten::magic. Many more words follow")

    monkeypatch.setattr("torch.onnx.export", fail)
    with refused_in_one_sentence("aten::magic", "through open_clip"):
        export(original, tmp_path / "out")


@pytest.mark.parametrize("stage", ["_write_graph", "_differences"])
def test_an_interrupted_export_leaves_nothing(
    stage: str, original: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle leaves no folder."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, stage, interrupt)
    with pytest.raises(KeyboardInterrupt):
        export(original, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def _without(key: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        about = json.loads((folder / "encoder.json").read_text())
        del about[key]
        (folder / "encoder.json").write_text(json.dumps(about))

    return spoil


def _with(key: str, value: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        about = json.loads((folder / "encoder.json").read_text())
        (folder / "encoder.json").write_text(json.dumps({**about, key: value}))

    return spoil


def _cut(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut("image.onnx"), ["image.onnx", "damaged"]),
        (_cut("tokenizer.json"), ["tokenizer.json", "damaged"]),
        (_cut("encoder.json"), ["encoder.json", "damaged"]),
        (lambda folder: (folder / "image.onnx").unlink(), ["image.onnx", "missing"]),
        (lambda folder: (folder / "tokenizer.json").unlink(), ["tokenizer.json", "missing"]),
        (lambda folder: (folder / "encoder.json").unlink(), ["make one with crg encoders export"]),
        (shutil.rmtree, ["make one with crg encoders export"]),
        (_without("width"), ["missing", "'width'"]),
        (_without("files"), ["missing", "'files'"]),
        (_with("preprocessing", {"size": 3}), ["damaged"]),
        (_with("tokenizer", {"clean": "magic"}), ["magic"]),
        (_with("tokenizer", 5), ["damaged"]),
        (_with("version", 99), ["version 99", "version 1"]),
        (_with("logit_scale", "large"), ["logit_scale"]),
    ],
)
def test_spoilt_folders_are_refused(
    folder: Path, spoil: Callable[[Path], None], words: list[str]
) -> None:
    """The refusal names the file and the remedy."""
    spoil(folder)
    with refused_in_one_sentence(*words):
        load_encoder(f"onnx:{folder}")


def test_a_graph_that_the_runtime_cannot_read(folder: Path) -> None:
    """A wrong graph is refused even when its checksum fits."""
    (folder / "image.onnx").write_bytes(b"no graph")
    files = [path for path in folder.iterdir() if path.name != "encoder.json"]
    _with("files", {path.name: file_sha256(path) for path in files})(folder)
    with refused_in_one_sentence("image.onnx", "export the model again"):
        load_encoder(f"onnx:{folder}")


def test_impossible_wishes_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precision is fixed at export, and a device or library must be there."""
    with refused_in_one_sentence("fp32"):
        load_encoder(f"onnx:{made}", precision="fp16")
    with refused_in_one_sentence("'mps'", "'cpu'"):
        load_encoder(f"onnx:{made}", device="mps")
    with refused_in_one_sentence("(1, 8, 8, 3)"):
        load_encoder(f"onnx:{made}").encode_images(some_pixels(1, 8))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refused_in_one_sentence("onnxruntime", ".[onnx]"):
        load_encoder(f"onnx:{made}")
