"""Image graphs from elsewhere become folders, and 8 bits are measured beside float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.encoders import export as module
from crg.encoders import load_encoder
from crg.encoders.export import import_graph
from sentences import refused_in_one_sentence
from small_models import check_alone_and_together, exported, open_clip, saved, some_pixels

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    open_clip()


@pytest.fixture
def graph() -> Path:
    """The image graph of a small transformer."""
    return exported("small-vit") / "image.onnx"


def _changed(graph: Path, file: Path, *shape: Any, also: tuple[str, ...] = ()) -> Path:
    """A copy of a graph that declares another input shape, or more outputs."""
    model = onnx.load(graph)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for dim, value in zip(dims, shape, strict=False):
        dim.Clear()
        dim.dim_value = value
    for name in also:
        node = onnx.helper.make_node("Identity", ["features"], [name])
        model.graph.node.append(node)
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_a_graph_becomes_a_folder(graph: Path, tmp_path: Path, batch: int | None) -> None:
    """Whether it takes any number of images or a fixed one, its features are the same."""
    given = graph if batch is None else _changed(graph, tmp_path / "fixed.onnx", batch)
    about = json.loads((graph.parent / "encoder.json").read_text())["preprocessing"]
    options = ["--mean", *map(str, about["mean"]), "--std", *map(str, about["std"])]
    out = tmp_path / "out"
    words = ["encoders", "import", str(given), "--out", str(out), "--size", "32", *options]
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    facts = {"width": 24, "output": "features", "batch": batch, "int8": False}
    assert json.loads(done.output) == {"folder": str(out), "name": f"onnx:{out}", **facts}
    encoder, pixels = load_encoder(f"onnx:{out}"), some_pixels(5, 32)
    expected = load_encoder(f"onnx:{graph.parent}").encode_images(pixels)
    assert np.allclose(encoder.encode_images(pixels), expected, atol=1e-6)
    check_alone_and_together(encoder)
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 2 and "exists already" in again.output


def test_weights_in_other_files_come_along(graph: Path, tmp_path: Path) -> None:
    """Only files that the graph refers to are copied and listed."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "tower.onnx"
    onnx.save(onnx.load(graph), file, save_as_external_data=True, location="more.bin")
    (tmp_path / "in" / "README").write_text("hello")
    made = import_graph(file, tmp_path / "out")
    assert {each.name for each in Path(made["folder"]).iterdir()} == {
        "encoder.json", "image.onnx", "more.bin",
    }  # fmt: skip


def test_the_refusal_says_what_is_wrong_with_this_graph(graph: Path, tmp_path: Path) -> None:
    """A text graph, another size, no size, several outputs, a wrong name; nothing is left."""
    file, out = tmp_path / "g.onnx", tmp_path / "out"
    (tmp_path / "none.onnx").write_bytes(b"no graph")
    value, make = onnx.helper.make_tensor_value_info, onnx.helper
    ends = [value("x", 1, ["b", 32, 32, 3])], [value("y", 1, None)]
    flat = make.make_graph([make.make_node("Flatten", ["x"], ["y"])], "flat", *ends)
    opset = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(flat, opset_imports=opset, ir_version=9), file)
    for given, options, words in (
        (graph.with_name("text.onnx"), {}, ["int64", "image encoder alone"]),
        (graph, {"size": 40}, ["32, 32", "not --size 40"]),
        (file, {}, ["32, 3]", "channels last"]),
        (_changed(graph, tmp_path / "2.onnx", also=("pooled",)), {}, ["features [2, 24], pooled"]),
        (graph, {"output": "featurs"}, ["no output 'featurs'", "did you mean 'features'"]),
        (graph, {"std": (0.2, 0, 0.2)}, ["preprocessing", "std[1]"]),
        (tmp_path / "none.onnx", {}, ["none.onnx", "complete graph"]),
        (tmp_path / "gone.onnx", {}, ["no file", "gone.onnx"]),
    ):
        with refused_in_one_sentence(*words):
            import_graph(given, out, **options)
        assert not out.exists()
    made = import_graph(tmp_path / "2.onnx", out, output="pooled")
    assert made["output"] == "pooled"


def test_eight_bits_are_measured_beside_float32(tmp_path: Path, monkeypatch: Any) -> None:
    """``export --int8`` prints both rates and how many labels agree; too few are refused."""
    words = ["encoders", "export", saved("small-vit"), "--int8", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "images/s, in float32" in done.output and "200 rendered images" in done.output
    plain, small = exported("small-vit"), tmp_path / "out"
    sizes = [(folder / "image.onnx").stat().st_size for folder in (plain, small)]
    assert sizes[1] < 0.6 * sizes[0]
    pixels = some_pixels(4, 32)
    ours, theirs = (load_encoder(f"onnx:{each}").encode_images(pixels) for each in (small, plain))
    assert 1e-5 < np.abs(ours - theirs).max() < 0.05
    monkeypatch.setattr(module, "LEAST_AGREEMENT", 1.1)
    words[-1] = str(tmp_path / "other")
    failed = CliRunner().invoke(main, words)
    assert failed.exit_code == 2 and "the same label" in failed.output
    assert not (tmp_path / "other").exists()
