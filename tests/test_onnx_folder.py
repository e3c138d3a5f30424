"""Folders of exported models from strangers: anything but the described content is refused."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from crg.atomic import file_sha256
from crg.encoders import load_encoder
from crg.encoders.onnx import check_sound
from sentences import check_refused
from small_models import exported, some_pixels

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
NAMES = ("image.onnx", "tokenizer.json", "encoder.json")
Spoil: TypeAlias = Callable[[Path], Any]


@pytest.fixture
def made() -> Path:
    """The folder it was exported to."""
    return exported("small-vit")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(made, tmp_path / "copy")


def _described(folder: Path, **changes: Any) -> None:
    """Change the description, and let the checksums fit what is there."""
    file = folder / "encoder.json"
    about = {**json.loads(file.read_text()), **changes}
    if "files" not in changes:
        listed = [folder / name for name in about["files"] if (folder / name).exists()]
        about["files"] = {each.name: file_sha256(each) for each in listed}
    file.write_text(json.dumps({key: value for key, value in about.items() if value != "gone"}))


def _files(folder: Path) -> dict[str, str]:
    about: dict[str, Any] = json.loads((folder / "encoder.json").read_text())
    return dict(about["files"])


def _changed(**changes: Any) -> Spoil:
    return lambda folder: _described(folder, **changes)


def _filled(name: str, content: Callable[[bytes], bytes], described: bool = False) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content((folder / name).read_bytes()))
        if described:
            _described(folder)

    return spoil


def _cut(name: str) -> Spoil:
    return _filled(name, lambda whole: whole[: len(whole) // 2])


def _without(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def _preprocessing(**changes: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}
    return {"preprocessing": about | changes}


def _with_unknown_token(content: bytes) -> bytes:
    words = json.loads(content)
    words["post_processor"]["special_tokens"]["<end_of_text>"]["ids"] = [60_000]
    return json.dumps(words).encode()


def _with_link(folder: Path) -> None:
    (folder / "image.onnx").rename(folder.parent / "image.onnx")
    (folder / "image.onnx").symlink_to(folder.parent / "image.onnx")


def _naming(name: str) -> Spoil:
    return lambda folder: _described(folder, files={**_files(folder), name: "0" * 64})


def _external(location: str, listed: bool = False) -> Spoil:
    """Move the weights of the image graph into another file, or pretend that they are there."""

    def spoil(folder: Path) -> None:
        graph = onnx.load(folder / "image.onnx")
        onnx.save(graph, folder / "image.onnx", save_as_external_data=True, location="more.bin")
        graph = onnx.load(folder / "image.onnx", load_external_data=False)
        for tensor in graph.graph.initializer:
            for entry in tensor.external_data:
                entry.value = location if entry.key == "location" else entry.value
        (folder / "image.onnx").write_bytes(graph.SerializeToString())
        if location != "more.bin":
            (folder / "more.bin").rename(folder.parent / "more.bin")
        _described(folder, files=_files(folder) | ({"more.bin": ""} if listed else {}))
        _described(folder)

    return spoil


def _perturbed(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        model = onnx.load(folder / name)
        rng = np.random.default_rng(0)
        for tensor in model.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if values.ndim == 2:
                noise = 0.7 * values.std() * rng.standard_normal(values.shape)
                new = (values + noise).astype(values.dtype)
                tensor.CopyFrom(onnx.numpy_helper.from_array(new, tensor.name))
        onnx.save(model, folder / name)
        _described(folder)

    return spoil


def _in_eight_bits(folder: Path, kind: str = "QUInt8", name: str = "image.onnx") -> None:
    quantization: Any = pytest.importorskip("onnxruntime.quantization")
    graph, weights = folder / name, quantization.QuantType[kind]
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_dynamic(graph, graph, ["MatMul", "Gemm"], weight_type=weights)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        *((_cut(name), [name, "damaged"]) for name in NAMES),
        (_filled("encoder.json", lambda _: b"[" * 100_000), ["encoder.json", "damaged"]),
        (_filled("encoder.json", lambda _: b"\xff\xfe"), ["encoder.json", "damaged"]),
        *((_without(name), [name, "missing"]) for name in NAMES[:2]),
        (_without("encoder.json"), ["make one with crg encoders export"]),
        (shutil.rmtree, ["make one with crg encoders export"]),
        (_changed(width="gone"), ["missing", "'width'"]),
        (_changed(files="gone"), ["missing", "'files'"]),
        (_changed(version=99), ["version 99", "version 1"]),
        (_filled("image.onnx", lambda _: b"no graph", True), ["image.onnx", "cannot be used"]),
        (_filled("tokenizer.json", lambda _: b"no words", True), ["tokenizer.json", "damaged"]),
        (_changed(width=25, reference="gone"), ["image.onnx", "(1, 24)", "25 wide", "width"]),
        (_changed(output="featurs"), ["no output 'featurs'", "'features'"]),
        (_changed(widht=24), ["'widht'", "did you mean 'width'"]),
        (_changed(**_preprocessing(intrpolation="bicubic")), ["preprocessing", "'interpolation'"]),
        (_changed(**_preprocessing(size=40)), ["image.onnx", "cannot be used"]),
        (_changed(context_length=50), ["text.onnx", "cannot be used"]),
        (_changed(reference={"images": [[0.1] * 23] * 2}), ["reference", "24 wide"]),
        (_changed(reference={"images": [[0.1] * 24, [0.1] * 25]}), ["reference", "24 wide"]),
        (_filled("tokenizer.json", _with_unknown_token, True), ["text.onnx"]),
        (_with_link, ["image.onnx", "files themselves"]),
        (_external("more.bin"), ["more.bin is not listed"]),
        *((_external(to), ["image.onnx", "cannot"]) for to in ("../more.bin", "/etc/passwd", "")),
        (_perturbed("image.onnx"), ["image.onnx", "test inputs", "encoders import"]),
        (_perturbed("text.onnx"), ["text.onnx", "test inputs", "encoders import"]),
        (_in_eight_bits, ["image.onnx", "was changed", "crg encoders import"]),
        *((_naming(name), ["copy"]) for name in ("../w.pt", "/etc/passwd", "a/b", "..", "", "t\n")),
    ],
)
def test_spoilt_folders_are_refused(folder: Path, spoil: Spoil, words: list[str]) -> None:
    """The refusal names the file and the remedy, even where all checksums fit."""
    spoil(folder)
    check_refused(tuple(words), load_encoder, f"onnx:{folder}")


@pytest.mark.parametrize(
    "change",
    [
        *({"width": width} for width in (0, -24, True, 10**12, 24.5, "24")),
        *({"logit_scale": scale} for scale in (math.nan, math.inf, -1, True)),
        *({"context_length": length} for length in (0, 10**9, None)),
        *({"tokenizer": use} for use in (None, 5, {"clean": "shell"})),
        {"tokenizer": {"clean": "lower", "pad_id": -1, "pad_token": "p"}},
        *(_preprocessing(size=size) for size in (0, 10**6)),
        _preprocessing(mean=[0.5, 0.5]),
        *(_preprocessing(std=[0.5, each, 0.5]) for each in (0.0, math.nan)),
        _preprocessing(interpolation="magic"),
        _preprocessing(fit=True),
        {"files": []},
        {"files": {"image.onnx": 5}},
        *({"reference": {"images": rows}} for rows in ([[math.nan] * 24] * 2, [[0.1] * 24])),
        {"version": True},
        {"version": [[[]]]},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_values_of_other_kinds_and_ranges_are_refused(folder: Path, change: Any) -> None:
    """The description is checked before any file that it names is used."""
    _described(folder, **change)
    check_refused(("encoder.json", "make the folder again"), load_encoder, f"onnx:{folder}")


def test_external_data_must_be_listed(folder: Path, made: Path) -> None:
    """Weights beside the graph are used if the list has them with their checksum."""
    _external("more.bin", listed=True)(folder)
    pixels = some_pixels(3, 32)
    expected = load_encoder(f"onnx:{made}").encode_images(pixels)
    assert np.allclose(load_encoder(f"onnx:{folder}").encode_images(pixels), expected, atol=1e-6)
    (folder / "more.bin").write_bytes(b"other" * 99)
    check_refused(("more.bin", "damaged"), load_encoder, f"onnx:{folder}")


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_sound_eight_bits_are_taken(folder: Path, made: Path, kind: str) -> None:
    """A graph that was quantised may differ by its noise from the features of float32."""
    for name in ("image.onnx", "text.onnx"):
        _in_eight_bits(folder, kind, name)
    _described(folder)
    pixels = some_pixels(2, 32)
    ours = load_encoder(f"onnx:{folder}").encode_images(pixels)
    assert 1e-4 < np.abs(ours - load_encoder(f"onnx:{made}").encode_images(pixels)).max() < 0.05
    texts = [load_encoder(f"onnx:{folder}").encode_texts(["a cat", *more]) for more in ([], ["2"])]
    assert np.array_equal(texts[0][0], texts[1][0])
    _described(folder, reference={"images": [[0.2] * 24, [-0.2] * 24]})
    check_refused(("image.onnx", "those in encoder.json"), load_encoder, f"onnx:{folder}")


class _Overflowing:
    """Signed 8-bit products, whose sums of two are cut to 16 bits as without VNNI."""

    file, batch, eight_bit, at_once = Path("image.onnx"), None, True, 1

    def __init__(self, cut: float) -> None:
        self.weights = np.random.default_rng(0).integers(90, 128, (48, 24, 2)).astype(np.float32)
        self.weights *= np.random.default_rng(1).choice([-1, 1], (48, 24, 1))
        self.cut = cut

    def __call__(self, rows: Any) -> Any:
        """Features of rows (n, 48, 2), quantised by the largest value of all."""
        scale = np.abs(rows).max() / 255
        products = np.round(rows / scale)[:, :, None, :] * self.weights
        return scale * np.clip(products.sum(-1), -self.cut, self.cut).sum(1)


def test_products_that_overflow_are_found() -> None:
    """Beside larger values fewer products are cut, and features move beyond the noise."""
    rows = np.random.default_rng(2).uniform(0.5, 1, (2, 48, 2)).astype(np.float32)
    rows[1] *= 4
    check_sound(_Overflowing(np.inf), rows, 24, None)  # type: ignore[arg-type]
    words = ("image.onnx", "another beside it", "overflow", "QUInt8")
    check_refused(words, check_sound, _Overflowing(32767), rows, 24, None)


def test_some_files_and_facts_do_not_matter(folder: Path, made: Path) -> None:
    """Without reference features, beside a README or a folder, the fingerprint is the same.

    Another model has another one.
    """
    _described(folder, reference="gone")
    for name in ("README.md", ".DS_Store", "a", "image.onnx.orig"):
        (folder / name).write_text("hello")
    (folder / "notes").mkdir()
    folders = folder, made, exported("small-resnet")
    prints = [load_encoder(f"onnx:{each}").fingerprint for each in folders]
    assert prints[0] == prints[1] != prints[2]


def test_a_folder_may_hold_the_image_graph_only(folder: Path, made: Path) -> None:
    """The text graph is deleted; texts are refused."""
    for name in ("text.onnx", "tokenizer.json"):
        (folder / name).unlink()
    encoder, pixels = load_encoder(f"onnx:{folder}"), some_pixels(2, 32)
    assert np.array_equal(
        encoder.encode_images(pixels), load_encoder(f"onnx:{made}").encode_images(pixels)
    )
    check_refused(("no text.onnx", "--text-features"), encoder.encode_texts, ["a cat"])
