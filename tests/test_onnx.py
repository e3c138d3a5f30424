"""Exported models: the same features without torch, and a folder that is complete or absent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.cli.encoders import encoders as command
from crg.encoders import export as module
from crg.encoders import load_encoder
from crg.encoders.export import export
from sentences import refused_in_one_sentence
from small_models import MODELS, exported, open_clip, saved, some_pixels

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
TEXTS = ["a photo of a cat.", "it's 2 DOGS &amp; a fox", "", "word " * 300, "naïve café"]


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    open_clip()


@pytest.fixture
def original() -> str:
    """The name of a small transformer."""
    return saved("small-vit")


@pytest.fixture
def made() -> Path:
    """The folder it was exported to."""
    return exported("small-vit")


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_agree(name: str) -> None:
    """Both give the same features, for batches of any size and texts of any length."""
    encoder = load_encoder(saved(name), device="cpu")
    other = load_encoder(f"onnx:{exported(name)}", device="cpu")
    pixels = some_pixels(5, encoder.preprocessing.size)
    assert np.allclose(other.encode_images(pixels), encoder.encode_images(pixels), atol=1e-5)
    assert np.allclose(other.encode_texts(TEXTS), encoder.encode_texts(TEXTS), atol=1e-5)
    for fact in ("preprocessing", "width", "logit_scale", "logit_bias"):
        assert getattr(other, fact) == getattr(encoder, fact), fact


def test_exported_models_need_no_torch(made: Path) -> None:
    """An exported model works where neither torch nor open_clip can be imported."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['open_clip'] = None\n"
        "from crg.encoders import load_encoder\n"
        f"print(load_encoder('onnx:{made}').encode_texts(['a cat', 'a dog']).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(2, 24)\n"


def test_the_fingerprint_is_of_the_contents(made: Path, tmp_path: Path) -> None:
    """A copy has the same fingerprint, another model another one."""
    folders = made, shutil.copytree(made, tmp_path / "copy"), exported("small-resnet")
    prints = [load_encoder(f"onnx:{each}").fingerprint for each in folders]
    assert prints[0] == prints[1] != prints[2]


def test_the_command_prints_how_well_they_agree(
    original: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints the differences and the name to use, also as JSON."""
    out = tmp_path / "out"
    done = CliRunner().invoke(command, ["export", original, "--out", str(out), "--json"])
    facts = json.loads(done.output)
    assert facts["name"] == f"onnx:{out}" and 0 < facts["image_difference"] < 1e-5
    made = module.Exported(**{**facts, "folder": out})
    monkeypatch.setattr(module, "export", lambda *_: made)
    shown = CliRunner().invoke(command, ["export", original, "--out", str(out)]).output
    assert "differ by at most" in shown and f"--model onnx:{out}" in shown


def test_nothing_is_overwritten_by_accident(original: str, made: Path, tmp_path: Path) -> None:
    """Whatever exists stays, and the folder above must exist."""
    for there in (made, made / "encoder.json"):
        with refused_in_one_sentence("exists already", "another name"):
            export(original, there)
    with refused_in_one_sentence("cannot be written", "exists and is writable"):
        export(original, tmp_path / "no" / "where")


def _raising(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (f"{module.__name__}.TOLERANCE", 0.0, ["more than 0e+00", "nothing was written"]),
        ("torch.onnx.export", _raising(OSError(28, "No space left")), ["No space", "make room"]),
        ("torch.onnx.export", _raising(RuntimeError("No aten::magic. More")), ["aten::magic"]),
        ("torch.onnx.export", _raising(KeyboardInterrupt()), None),
    ],
    ids=["other features", "disk", "operator", "interrupt"],
)
def test_a_failed_export_leaves_nothing(
    name: str, value: Any, words: Any, original: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Features that differ, a full disk, an operator that ONNX lacks or Ctrl-C leave no folder."""
    monkeypatch.setattr(name, value)
    with refused_in_one_sentence(*words) if words else pytest.raises(KeyboardInterrupt):
        export(original, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mini", "hf:USER/MODEL", "onnx:folder"])
def test_only_models_of_open_clip_are_exported(name: str, tmp_path: Path) -> None:
    """The sentence says so of the bundled model, too."""
    with refused_in_one_sentence(f"{name} is not a model of open_clip", "crg encoders PATTERN"):
        export(name, tmp_path / "out")


def test_impossible_wishes_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precision is fixed at export, and a device or library must be there."""
    with refused_in_one_sentence("fp32"):
        load_encoder(f"onnx:{made}", precision="fp16")
    with refused_in_one_sentence("'mps'", "'cpu'"):
        load_encoder(f"onnx:{made}", device="mps")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refused_in_one_sentence("onnxruntime", ".[onnx]"):
        load_encoder(f"onnx:{made}")
