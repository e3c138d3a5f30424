"""From an open_clip model to a folder for ONNX Runtime, which appears complete or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg.atomic import file_sha256
from crg.encoders.base import first_line, library
from crg.encoders.onnx import TEST_SENTENCES, Onnx, reference_pixels
from crg.encoders.onnx_folder import DESCRIPTION, FORMAT, IMAGE, TEXT, VERSION
from crg.encoders.openclip import OpenClip
from crg.encoders.tokenizer import write_tokenizer
from crg.types import InputError

TOLERANCE = 1e-3  # of a coordinate of a unit feature
_SENTENCES = (
    "a photo of a cat.",
    "it's a bad photo of the 2 large dogs!",
    "a centered satellite photo of Río de la Plata",
    "art of the " + "very " * 200 + "long name",
)


@dataclass(frozen=True)
class Exported:
    """What was written, and by how much the two models differ at most."""

    folder: Path
    name: str  # what to give as --model
    image_difference: float
    text_difference: float
    size: int  # bytes


def export(name: str, folder: str | os.PathLike[str], *, force: bool = False) -> Exported:
    """Write the open_clip model ``name`` into ``folder`` and check that both agree."""
    target = Path(folder)
    _check_target(target, force)
    for module in ("onnx", "onnxruntime"):
        library(module, "export")
    encoder = OpenClip(name, device="cpu", precision="fp32")
    with _appearing(target) as partial:
        _write(encoder, partial)
        images, texts = _differences(encoder, Onnx(partial, device="cpu"))
        _check_agreement(name, max(images, texts))
    size = sum(file.stat().st_size for file in target.iterdir())
    return Exported(target, f"onnx:{target}", images, texts, size)


def _write(encoder: OpenClip, folder: Path) -> None:
    tokenizer = write_tokenizer(encoder.tokenizer, folder)
    side = encoder.preprocessing.size
    torch = library("torch", "export")
    images = torch.zeros(2, 3, side, side)
    texts = encoder.tokenizer(list(_SENTENCES[:2]))
    _write_graph(encoder, "encode_image", images, folder / IMAGE)
    _write_graph(encoder, "encode_text", texts, folder / TEXT)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "model": encoder.name,
        "width": encoder.width,
        "logit_scale": encoder.logit_scale,
        "logit_bias": encoder.logit_bias,
        "context_length": int(encoder.tokenizer.context_length),
        "preprocessing": asdict(encoder.preprocessing),
        "tokenizer": msgspec.to_builtins(tokenizer),
        "reference": {
            "images": encoder.encode_images(reference_pixels(side)).round(6).tolist(),
            "texts": encoder.encode_texts(TEST_SENTENCES).round(6).tolist(),
        },
        "files": {file.name: file_sha256(file) for file in sorted(folder.iterdir())},
    }
    (folder / DESCRIPTION).write_text(json.dumps(about, indent=2), encoding="utf-8")


def _write_graph(encoder: OpenClip, method: str, example: Any, file: Path) -> None:
    """Trace one half of the model; the first axis stays open for batches of any size."""
    torch = library("torch", "export")

    class Half(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, rows: Any) -> Any:
            return getattr(self.model, method)(rows)

    names = {"input_names": ["rows"], "output_names": ["features"]}
    axes = {"rows": {0: "batch"}, "features": {0: "batch"}}
    try:
        with warnings.catch_warnings(), _plain_attention(torch), torch.no_grad():
            warnings.simplefilter("ignore")  # tracing warns of each size that it writes down
            # dynamo=True would need onnxscript and ten times as long for the same graph
            torch.onnx.export(
                Half().eval(), (example,), str(file), dynamo=False, dynamic_axes=axes, **names
            )
    except OSError:
        raise  # the disk is full, say: nothing to do with the model
    except Exception as error:
        raise InputError(
            f"{encoder.name} cannot be exported ({first_line(error)}): use it through open_clip."
        ) from None


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Without the fused attention of evaluation mode, which ONNX has no word for."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _differences(encoder: OpenClip, exported: Onnx) -> tuple[float, float]:
    """The largest difference of a coordinate, for images and for texts; three and four rows."""
    side = encoder.preprocessing.size
    pixels = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    images = encoder.encode_images(pixels) - exported.encode_images(pixels)
    texts = encoder.encode_texts(_SENTENCES) - exported.encode_texts(_SENTENCES)
    return float(np.abs(images).max()), float(np.abs(texts).max())


def _check_agreement(name: str, difference: float) -> None:
    if not difference <= TOLERANCE:  # NaN fails too
        raise InputError(
            f"The exported features of {name} differ by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}, and nothing was written: use the model through open_clip."
        )


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file: give the name of a folder to make.")
    if not target.exists():
        return
    if not force:
        raise InputError(f"{target} exists already: choose another name or add --force.")
    if any(target.iterdir()) and not (target / DESCRIPTION).is_file():
        raise InputError(
            f"{target} holds something other than an exported model, "
            "which --force does not overwrite: choose another name."
        )


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place only when all went well."""
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): "
            "choose a folder that exists and is writable."
        ) from None
    try:
        (work / "new").mkdir()  # with the permissions that folders have here
        yield work / "new"
        if target.exists():
            target.rename(work / "old")
        (work / "new").rename(target)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): make room or choose another place."
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
