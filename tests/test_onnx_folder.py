"""Folders of exported models from strangers: anything but the described content is refused."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg import InputError
from crg.atomic import file_sha256
from crg.encoders import load_encoder
from documents import ROOT, code_blocks
from sentences import refused_in_one_sentence
from small_models import exported, some_pixels

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


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


def _cut(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return spoil


def _filled(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content)
        _described(folder)

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
        (lambda folder: _described(folder, width="gone"), ["missing", "'width'"]),
        (lambda folder: _described(folder, files="gone"), ["missing", "'files'"]),
        (lambda folder: _described(folder, version=99), ["version 99", "version 1"]),
        (_filled("image.onnx", b"no graph"), ["image.onnx", "export the model again"]),
        (_filled("tokenizer.json", b"no tokenizer"), ["tokenizer.json", "damaged"]),
    ],
)
def test_incomplete_folders_are_refused(
    folder: Path, spoil: Callable[[Path], None], words: list[str]
) -> None:
    """The refusal names the file and the remedy, even where all checksums fit."""
    spoil(folder)
    with refused_in_one_sentence(*words):
        load_encoder(f"onnx:{folder}")


def _preprocessing(**changes: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}
    return {"preprocessing": about | changes}


@pytest.mark.parametrize(
    "change",
    [
        {"width": 0},
        {"width": -24},
        {"width": True},
        {"width": 10**12},
        {"width": 24.5},
        {"width": "24"},
        {"logit_scale": math.nan},
        {"logit_scale": math.inf},
        {"logit_scale": -1},
        {"logit_scale": True},
        {"logit_bias": 1e300},
        {"logit_bias": None},
        {"context_length": 0},
        {"context_length": 10**9},
        {"context_length": None},
        {"tokenizer": None},
        {"tokenizer": 5},
        {"tokenizer": {"clean": "shell"}},
        {"tokenizer": {"clean": "lower", "pad_id": -1, "pad_token": "p"}},
        _preprocessing(size=0),
        _preprocessing(size=10**6),
        _preprocessing(mean=[0.5, 0.5]),
        _preprocessing(std=[0.5, 0.0, 0.5]),
        _preprocessing(std=[0.5, math.nan, 0.5]),
        _preprocessing(interpolation="magic"),
        _preprocessing(fit=True),
        {"files": []},
        {"files": {"image.onnx": 5}},
        {"reference": {"images": [[math.nan] * 24] * 2}},
        {"reference": {"images": [[0.1] * 24]}},
        {"version": True},
        {"version": [[[]]]},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_values_of_other_kinds_and_ranges_are_refused(folder: Path, change: Any) -> None:
    """The description is checked before any file that it names is used."""
    _described(folder, **change)
    with refused_in_one_sentence("encoder.json", "export the model again"):
        load_encoder(f"onnx:{folder}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 25}, ["image.onnx", "(2, 25)"]),
        (_preprocessing(size=40), ["image.onnx", "cannot be used"]),
        ({"context_length": 50}, ["text.onnx", "cannot be used"]),
        ({"reference": {"images": [[0.1] * 23] * 2}}, ["reference", "23 wide"]),
        ({"reference": {"images": [[0.1] * 24, [0.1] * 25]}}, ["reference", "25 wide"]),
    ],
)
def test_graphs_of_other_shapes_are_refused(folder: Path, change: Any, words: list[str]) -> None:
    """Both graphs are run once, so that inputs and outputs are what the description says."""
    _described(folder, **change)
    with refused_in_one_sentence(*words):
        load_encoder(f"onnx:{folder}")


def test_tokens_that_the_graph_does_not_know_are_refused(folder: Path) -> None:
    """A token number beyond the vocabulary of the graph is refused."""
    file = folder / "tokenizer.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    words["post_processor"]["special_tokens"]["<end_of_text>"]["ids"] = [60_000]
    file.write_text(json.dumps(words), encoding="utf-8")
    _described(folder)
    with refused_in_one_sentence("text.onnx"):
        load_encoder(f"onnx:{folder}")


@pytest.mark.parametrize("name", ["../w.pt", "/etc/passwd", "a/b", "..", "", "tokenizer.json\n"])
def test_files_elsewhere_are_refused(folder: Path, name: str) -> None:
    """The list of files names files of the folder only."""
    about = json.loads((folder / "encoder.json").read_text())
    _described(folder, files={**about["files"], name: "0" * 64})
    with refused_in_one_sentence("copy"):
        load_encoder(f"onnx:{folder}")


def test_links_are_refused(folder: Path, made: Path) -> None:
    """A link in the place of a graph is not followed."""
    (folder / "image.onnx").unlink()
    (folder / "image.onnx").symlink_to(made / "image.onnx")
    with refused_in_one_sentence("image.onnx", "files themselves"):
        load_encoder(f"onnx:{folder}")


def _with_external_data(folder: Path, location: str, listed: bool) -> None:
    """Move the weights of the image graph into another file."""
    graph = onnx.load(folder / "image.onnx")
    onnx.save(graph, folder / "image.onnx", save_as_external_data=True, location="more.bin")
    graph = onnx.load(folder / "image.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            entry.value = location if entry.key == "location" else entry.value
    (folder / "image.onnx").write_bytes(graph.SerializeToString())
    about = json.loads((folder / "encoder.json").read_text())
    _described(folder, files={**about["files"], **({"more.bin": ""} if listed else {})})
    _described(folder)


def test_external_data_must_be_listed(folder: Path, made: Path) -> None:
    """Weights beside the graph are used if the list has them with their checksum."""
    _with_external_data(folder, "more.bin", listed=True)
    pixels = some_pixels(3, 32)
    expected = load_encoder(f"onnx:{made}").encode_images(pixels)
    assert np.allclose(load_encoder(f"onnx:{folder}").encode_images(pixels), expected, atol=1e-6)
    (folder / "more.bin").write_bytes(b"other" * 99)
    with refused_in_one_sentence("more.bin", "damaged"):
        load_encoder(f"onnx:{folder}")


@pytest.mark.parametrize("location", ["more.bin", "../w.bin", "/etc/passwd", "./image.onnx", ""])
def test_other_external_data_are_refused(folder: Path, location: str) -> None:
    """Weights from a file that is not listed are refused before the runtime opens it."""
    _with_external_data(folder, location, listed=False)
    with refused_in_one_sentence("takes weights from", "does not list"):
        load_encoder(f"onnx:{folder}")


def test_external_data_of_functions_are_refused(folder: Path) -> None:
    """A default value of a function in the graph may be a tensor too."""
    graph = onnx.load(folder / "image.onnx")
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    function = graph.functions.add(name="f", domain="d")
    function.attribute_proto.add(name="value", type=onnx.AttributeProto.TENSOR, t=tensor)
    (folder / "image.onnx").write_bytes(graph.SerializeToString())
    _described(folder)
    with refused_in_one_sentence("takes weights from", "does not list"):
        load_encoder(f"onnx:{folder}")


def _perturbed(graph: Path) -> None:
    model = onnx.load(graph)
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.ndim == 2:
            noise = 0.7 * values.std() * rng.standard_normal(values.shape)
            new = (values + noise).astype(values.dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(new, tensor.name))
    onnx.save(model, graph)


def _in_eight_bits(graph: Path, kind: str = "QUInt8") -> None:
    quantization: Any = pytest.importorskip("onnxruntime.quantization")
    logging.disable(logging.WARNING)
    try:
        weights = quantization.QuantType[kind]
        quantization.quantize_dynamic(graph, graph, weight_type=weights)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx"])
def test_a_graph_with_other_answers_is_refused(folder: Path, name: str) -> None:
    """Weights that differ from those exported show on the built-in test inputs."""
    _perturbed(folder / name)
    _described(folder)
    with refused_in_one_sentence(name, "test inputs", "fp32"):
        load_encoder(f"onnx:{folder}")


def test_eight_bits_need_a_reference(folder: Path, made: Path) -> None:
    """A quantised graph is used if its features are right, and refused without a reference."""
    _in_eight_bits(folder / "image.onnx")
    _described(folder)
    pixels = some_pixels(2, 32)
    ours, theirs = (load_encoder(f"onnx:{each}").encode_images(pixels) for each in (folder, made))
    assert 1e-4 < np.abs(ours - theirs).max() < 0.05
    _described(folder, reference="gone")
    with refused_in_one_sentence("8 bits", "reference"):
        load_encoder(f"onnx:{folder}")


def test_eight_bits_are_never_silently_wrong(folder: Path, made: Path) -> None:
    """Signed weights, which overflow on processors without VNNI, are right or are refused."""
    _in_eight_bits(folder / "image.onnx", "QInt8")
    _described(folder)
    pixels = some_pixels(2, 32)
    try:
        ours = load_encoder(f"onnx:{folder}").encode_images(pixels)
    except InputError as error:
        assert "8-bit weights overflow" in str(error)
        return
    assert np.abs(ours - load_encoder(f"onnx:{made}").encode_images(pixels)).max() < 0.05


def test_reference_features_are_optional(folder: Path, made: Path) -> None:
    """A folder without reference features is read, with the same fingerprint."""
    _described(folder, reference="gone")
    prints = [load_encoder(f"onnx:{each}").fingerprint for each in (folder, made)]
    assert prints[0] == prints[1]


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_folder_may_hold_the_image_graph_only(folder: Path, made: Path, by_hand: bool) -> None:
    """The text graph is deleted, or the description is the documented one; texts are refused."""
    for name in ("text.onnx", "tokenizer.json"):
        (folder / name).unlink()
    if by_hand:
        about = json.loads((folder / "encoder.json").read_text())
        [shown] = map(json.loads, code_blocks(ROOT / "docs" / "encoders.md", "json"))
        shown |= {"width": 24, "preprocessing": {**about["preprocessing"]}}
        shown["files"] = {name: file_sha256(folder / name) for name in shown["files"]}
        (folder / "encoder.json").write_text(json.dumps(shown))
    encoder, pixels = load_encoder(f"onnx:{folder}"), some_pixels(2, 32)
    assert np.array_equal(
        encoder.encode_images(pixels), load_encoder(f"onnx:{made}").encode_images(pixels)
    )
    with refused_in_one_sentence("no text.onnx", "--text-features"):
        encoder.encode_texts(["a cat"])


def test_a_changed_graph_says_how_it_is_accepted(folder: Path) -> None:
    """If a graph was converted, the sentence says to update its checksum."""
    _in_eight_bits(folder / "image.onnx")
    with refused_in_one_sentence("image.onnx", "was changed", "SHA-256", "encoder.json"):
        load_encoder(f"onnx:{folder}")


@pytest.mark.parametrize(
    "spoil", [lambda _: b"[" * 100_000, lambda whole: whole[:-9], lambda _: b"\xff\xfe"]
)
def test_descriptions_that_are_no_json_are_refused(
    folder: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """Deep nesting, truncation and other encodings end in a sentence."""
    file = folder / "encoder.json"
    file.write_bytes(spoil(file.read_bytes()))
    with refused_in_one_sentence("encoder.json", "damaged"):
        load_encoder(f"onnx:{folder}")
