"""Exported and imported graphs: the same features without torch; a folder complete or absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from crg.encoders import export as module
from crg.encoders import load_encoder
from crg.encoders.export import export, import_graph
from processes import called
from sentences import check_refused, refused_in_one_sentence
from small_models import MODELS, check_alone_and_together, exported, open_clip, saved, some_pixels

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
EXPORT = "torch.onnx.export"
TEXTS = ["a photo of a cat.", "it's 2 DOGS &amp; a fox", "", "word " * 300, "naïve café"]


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    open_clip()


@pytest.fixture
def made() -> Path:
    """The folder that a small transformer was exported to."""
    return exported("small-vit")


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_agree(name: str) -> None:
    """Both give the same features, for batches of any size and texts of any length."""
    encoder = load_encoder(saved(name), device="cpu")
    other = load_encoder(f"onnx:{exported(name)}", device="cpu")
    pixels = some_pixels(5, encoder.preprocessing.size)
    assert np.allclose(other.encode_images(pixels), encoder.encode_images(pixels), atol=1e-5)
    assert np.allclose(other.encode_texts(TEXTS), encoder.encode_texts(TEXTS), atol=1e-5)
    for fact in ("preprocessing", "width", "logit_scale"):
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


def test_the_command_prints_how_well_they_agree(tmp_path: Path, monkeypatch: Any) -> None:
    """The command prints the differences and the name to use, also as JSON."""
    out = tmp_path / "out"
    words = ["encoders", "export", saved("small-vit"), "--out", str(out)]
    facts = json.loads(called(*words, "--json").output)
    assert facts["name"] == f"onnx:{out}" and 0 < facts["image_difference"] < 1e-5
    monkeypatch.setattr(module, "export", lambda *_: facts)
    shown = called(*words).output
    assert "differ by at most" in shown and f"--model onnx:{out}" in shown


def test_nothing_is_overwritten_by_accident(made: Path, tmp_path: Path) -> None:
    """Whatever exists stays, and the folder above must exist."""
    for there in (made, made / "encoder.json"):
        check_refused(("exists already", "another name"), export, saved("small-vit"), there)
    words = ("cannot be written", "exists and is writable")
    check_refused(words, export, saved("small-vit"), tmp_path / "no" / "where")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (f"{module.__name__}.TOLERANCE", 0.0, ["more than 0e+00", "nothing was written"]),
        (EXPORT, Mock(side_effect=OSError(28, "No space left")), ["No space", "make room"]),
        (EXPORT, Mock(side_effect=RuntimeError("No aten::magic. More")), ["aten::magic"]),
        (EXPORT, Mock(side_effect=KeyboardInterrupt), None),
    ],
    ids=["other features", "disk", "operator", "interrupt"],
)
def test_a_failed_export_leaves_nothing(
    name: str, value: Any, words: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Features that differ, a full disk, an operator that ONNX lacks or Ctrl-C leave no folder."""
    monkeypatch.setattr(name, value)
    with refused_in_one_sentence(*words) if words else pytest.raises(KeyboardInterrupt):
        export(saved("small-vit"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mini", "hf:USER/MODEL", "onnx:folder"])
def test_only_models_of_open_clip_are_exported(name: str, tmp_path: Path) -> None:
    """The sentence says so of the bundled model, too."""
    words = (f"{name} is not a model of open_clip", "crg encoders PATTERN")
    check_refused(words, export, name, tmp_path / "out")


def test_impossible_wishes_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precision is fixed at export, and a device or library must be there."""
    check_refused("fp32", load_encoder, f"onnx:{made}", precision="fp16")
    check_refused(("'mps'", "'cpu'"), load_encoder, f"onnx:{made}", device="mps")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    check_refused(("onnxruntime", ".[onnx]"), load_encoder, f"onnx:{made}")


@pytest.fixture
def graph(made: Path) -> Path:
    """Its image graph."""
    return made / "image.onnx"


def _altered(graph: Path, file: Path, *shape: Any, also: tuple[str, ...] = ()) -> Path:
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
    given = graph if batch is None else _altered(graph, tmp_path / "fixed.onnx", batch)
    about = json.loads((graph.parent / "encoder.json").read_text())["preprocessing"]
    options = ["--mean", *map(str, about["mean"]), "--std", *map(str, about["std"])]
    out = tmp_path / "out"
    words = ["encoders", "import", str(given), "--out", str(out), "--size", "32", *options]
    done = called(*words, "--json")
    facts = {"width": 24, "output": "features", "batch": batch, "int8": False}
    assert json.loads(done.output) == {"folder": str(out), "name": f"onnx:{out}", **facts}
    encoder, pixels = load_encoder(f"onnx:{out}"), some_pixels(5, 32)
    expected = load_encoder(f"onnx:{graph.parent}").encode_images(pixels)
    assert np.allclose(encoder.encode_images(pixels), expected, atol=1e-6)
    check_alone_and_together(encoder)
    assert "exists already" in called(*words, code=2).output


def test_the_refusal_says_what_is_wrong_with_this_graph(graph: Path, tmp_path: Path) -> None:
    """A text graph, another size, no size, several outputs, a wrong name; nothing is left."""
    file, out = tmp_path / "g.onnx", tmp_path / "out"
    (tmp_path / "none.onnx").write_bytes(b"no graph")
    onnx.save(_mean_colour("b", 32, 32, 3), file)
    for given, options, words in (
        (graph.with_name("text.onnx"), {}, ["int64", "image encoder alone"]),
        (graph, {"size": 40}, ["32, 32", "not --size 40"]),
        (file, {}, ["32, 3]", "channels last"]),
        (_altered(graph, tmp_path / "2.onnx", also=("pooled",)), {}, ["features, pooled"]),
        (graph, {"output": "featurs"}, ["no output 'featurs'", "did you mean 'features'"]),
        (graph, {"std": (0.2, 0, 0.2)}, ["preprocessing", "std[1]"]),
        (tmp_path / "none.onnx", {}, ["none.onnx", "complete graph"]),
        (tmp_path / "gone.onnx", {}, ["no file", "gone.onnx"]),
    ):
        check_refused(tuple(words), import_graph, given, out, **options)
        assert not out.exists()
    made = import_graph(tmp_path / "2.onnx", out, output="pooled")
    assert made["output"] == "pooled"


def test_eight_bits_are_compared_with_float32(tmp_path: Path, monkeypatch: Any) -> None:
    """``export --int8`` writes smaller weights; features that differ too much are refused."""
    words = ["encoders", "export", saved("small-vit"), "--int8", "--out", str(tmp_path / "out")]
    called(*words)
    plain, small = exported("small-vit"), tmp_path / "out"
    sizes = [(folder / "image.onnx").stat().st_size for folder in (plain, small)]
    assert sizes[1] < 0.6 * sizes[0]
    pixels = some_pixels(4, 32)
    ours, theirs = (load_encoder(f"onnx:{each}").encode_images(pixels) for each in (small, plain))
    assert 1e-5 < np.abs(ours - theirs).max() < 0.05
    other = (exported("small-resnet") / "image.onnx").read_bytes()
    spoil = Mock(side_effect=lambda file, *_, **__: file.write_bytes(other))
    monkeypatch.setattr("onnxruntime.quantization.quantize_dynamic", spoil)
    words[-1] = str(tmp_path / "other")
    assert "does not work in 8 bits" in called(*words, code=2).output
    assert not (tmp_path / "other").exists()


def _mean_colour(*shape: Any, mixed: bool = False) -> Any:
    """A graph of three numbers per image, which may depend on the other images of a batch."""
    make, nodes = onnx.helper, [("GlobalAveragePool", ["x"], ["p"]), ("Flatten", ["p"], ["f"])]
    nodes += [("CumSum" if mixed else "Add", ["f", "axis" if mixed else "one"], ["y"])]
    one = np.ones(1, np.float32).tobytes()
    given = [make.make_tensor("axis", 7, [], [0]), make.make_tensor("one", 1, [1], one, raw=True)]
    ends = [make.make_tensor_value_info("x", 1, shape)], [make.make_tensor_value_info("y", 1, None)]
    flat = make.make_graph([make.make_node(*each) for each in nodes], "flat", *ends, given)
    return make.make_model(flat, opset_imports=[make.make_opsetid("", 17)], ir_version=9)


def test_a_graph_is_not_taken_for_another_and_answers_alike(tmp_path: Path, capfd: Any) -> None:
    """Names that begin another name, huge or mixing batches, chance, texts that are not UTF-8."""
    source, model = tmp_path / "tower.onnx", _mean_colour("b", 3, 16, 16)
    onnx.save(_mean_colour("b", 3, 8, 8), tmp_path / "image.onnx")
    onnx.save(model, source, save_as_external_data=True, location="image.onnx.data",
              size_threshold=0)  # fmt: skip
    import_graph(source, tmp_path / "out")
    assert (tmp_path / "out" / "image.onnx").read_bytes() == source.read_bytes()
    copied = {path.name for path in (tmp_path / "out").iterdir()}  # what the graph refers to
    assert copied == {"encoder.json", "image.onnx", "image.onnx.data"}
    onnx.save(_mean_colour(4, 3, 8, 8, mixed=True), source)
    check_alone_and_together(load_encoder(import_graph(source, tmp_path / "mixed")["name"]))
    onnx.save(_mean_colour(10**9, 3, 8, 8), source)
    check_refused("1000000000 images at once", import_graph, source, tmp_path / "huge")
    chance = _mean_colour("b", 3, 8, 8)
    chance.graph.node[0].op_type = "RandomNormalLike"
    onnx.save(chance, source)
    check_refused("other features each time", import_graph, source, tmp_path / "chance")
    source.write_bytes(model.SerializeToString().replace(b"GlobalAverage", b"Global\xff\xfeerage"))
    check_refused("tower.onnx cannot be used", import_graph, source, tmp_path / "text")
    assert capfd.readouterr() == ("", "")
