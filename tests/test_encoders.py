"""Encoders by name, and the list of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from crg.cli.encoders import encoders
from crg.encoders import list_encoders, load_encoder
from crg.encoders.mini import Mini
from sentences import refused_in_one_sentence
from small_models import check_alone_and_together, exported, open_clip, saved, some_pixels


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mini", {"device": "cuda"}, ["mini", "leave"]),
        ("mini", {"precision": "bf16"}, ["mini", "leave"]),
        ("onnx:.", {}, ["crg encoders export"]),
    ],
)
def test_impossible_models_are_refused(
    name: str, options: dict[str, str], words: list[str]
) -> None:
    """mini computes on the processor in fp32, and a folder must be an exported one."""
    assert isinstance(load_encoder("mini", device="cpu", precision="fp32"), Mini)
    with refused_in_one_sentence(*words):
        load_encoder(name, **options)


@pytest.fixture(params=["mini", "openclip", "onnx", "onnx in 8 bits"])
def encoder(request: pytest.FixtureRequest) -> Any:
    """One encoder of each library."""
    if request.param == "mini":
        return load_encoder("mini", device="cpu")
    open_clip()
    if request.param == "openclip":
        return load_encoder(saved("small-vit"), device="cpu")
    bits = [True] if "bits" in request.param else []
    return load_encoder(f"onnx:{exported('small-vit', *bits)}", device="cpu")


def test_images_have_the_same_features_alone_and_together(encoder: Any) -> None:
    """No bit of an image's features depends on what else is in its batch."""
    check_alone_and_together(encoder)


def test_features_are_unit_rows_whatever_the_batch(encoder: Any) -> None:
    """Alone or among others, images and texts have the same features up to rounding."""
    pixels, texts = some_pixels(70, encoder.preprocessing.size), ["red star", "", "a " * 99]
    for encode, rows in ((encoder.encode_images, pixels), (encoder.encode_texts, texts)):
        whole, last = encode(rows), encode(rows[-1:])
        assert whole.dtype == np.float32 and whole.shape == (len(rows), encoder.width)
        assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
        assert np.allclose(whole[-1:], last, atol=1e-5)
        assert encode(rows[:0]).shape == (0, encoder.width)
    long, longer = encoder.encode_texts(["word " * 100, "word " * 100 + "and more"])
    assert np.array_equal(long, longer)


def test_wrong_inputs_are_refused(encoder: Any) -> None:
    """Pixels of another size or type, one text, a number or half a character are refused."""
    side = encoder.preprocessing.size
    with refused_in_one_sentence("(1, 31, 31, 3)", f"(B, {side}, {side}, 3)"):
        encoder.encode_images(some_pixels(1, 31))
    with refused_in_one_sentence("float64", "uint8"):
        encoder.encode_images(some_pixels(1, side).astype(np.float64))
    for texts in ("cat", ["cat", 3], ["cat", "\ud800"]) if encoder.name != "mini" else ():
        with refused_in_one_sentence("text"):
            encoder.encode_texts(texts)


def test_the_list_has_the_papers_models_first() -> None:
    """Then exported folders; a pattern matches any part of MODEL:TAG, and a star means anything."""
    open_clip()
    rows = list_encoders()
    names = [row.name for row in rows]
    assert names == ["mini", "RN50:openai", "ViT-B-16:openai", "hf:USER/MODEL", "onnx:FOLDER"]
    assert rows[0].here and rows[0].needs is None and all(row.source for row in rows)
    names = [row.name for row in list_encoders("vit-b/16")]
    assert names[0] == "ViT-B-16:openai"
    assert "ViT-B-16:laion2b_s34b_b88k" in names and "ViT-B-16-SigLIP:webli" in names
    found = {row.name for row in list_encoders("rn50:*")}
    assert found == {f"RN50:{tag}" for tag in ("openai", "yfcc15m", "cc12m")}
    with refused_in_one_sentence("'gpt-5'", "pattern"):
        list_encoders("gpt-5")
    table = CliRunner().invoke(encoders, ["siglip"]).stdout
    listed = json.loads(CliRunner().invoke(encoders, ["siglip", "--json"]).stdout)["encoders"]
    assert len(listed) > 10 and all(each["name"] in table for each in listed)
    assert {"name", "kind", "source", "here", "needs"} == set(listed[0])
    assert "crg encoders PATTERN" in CliRunner().invoke(encoders, []).stdout


def test_weights_on_this_machine_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the cache of CLIP is shown as being here, with its place."""
    open_clip()
    import huggingface_hub.constants

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    file = tmp_path / ".cache" / "clip" / "RN50.pt"
    file.parent.mkdir(parents=True)
    file.touch()
    rows = {row.name: row for row in list_encoders()}
    assert (rows["RN50:openai"].here, rows["RN50:openai"].source) == (True, str(file))
    assert rows["ViT-B-16:openai"].here is False
    assert rows["ViT-B-16:openai"].source.startswith("https://huggingface.co/timm/")


@pytest.mark.parametrize("missing", ["missing.pt", "in/missing"])
def test_missing_weights_are_reported_before_torch_is_imported(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that can only be a file, and is none, costs no import."""
    monkeypatch.setattr("crg.encoders.weights.library", None)
    with refused_in_one_sentence(f"There is no file {missing}"):
        load_encoder(f"ViT-B-32:{missing}")


@pytest.mark.parametrize("missing", ["open_clip", "onnxruntime"])
def test_the_list_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an extra its encoders are listed with its name."""
    if missing != "open_clip":
        open_clip()
    monkeypatch.setitem(sys.modules, missing, None)
    outcome = CliRunner().invoke(encoders, ["--json"])
    needs = {each["kind"]: each["needs"] for each in json.loads(outcome.stdout)["encoders"]}
    extra = {"open_clip": "openclip", "onnxruntime": "onnx"}[missing]
    assert needs[extra] == extra and needs["mini"] is None
    assert (f".[{extra}]" in outcome.stderr) == (missing == "open_clip")
    assert f".[{extra}]" in CliRunner().invoke(encoders, []).stdout
    if missing == "open_clip":  # most models cannot be listed, so finding none is no answer
        assert [row.name for row in list_encoders("rn50")] == ["RN50:openai"]
        with refused_in_one_sentence(".[openclip]"):
            list_encoders("siglip")


def test_a_library_that_does_not_load_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is installed but fails to load is reported as such, not as missing."""
    sentence = "operator torchvision::nms does not exist"
    (tmp_path / "open_clip.py").write_text(f"raise RuntimeError({sentence!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "open_clip", raising=False)
    with refused_in_one_sentence(sentence, "--force-reinstall"):
        load_encoder("RN50")
