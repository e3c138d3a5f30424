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
from sentences import check_refused
from small_models import check_alone_and_together, exported, open_clip, saved, some_pixels


def test_impossible_models_are_refused() -> None:
    """mini computes on the processor in fp32."""
    assert isinstance(load_encoder("mini", device="cpu", precision="fp32"), Mini)
    check_refused(("mini", "leave"), load_encoder, "mini", device="cuda")
    check_refused(("mini", "leave"), load_encoder, "mini", precision="bf16")


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


def test_features_are_unit_rows_whatever_the_batch(encoder: Any) -> None:
    """No bit of an image's features depends on its batch, and texts' only up to rounding."""
    check_alone_and_together(encoder)
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
    words = ("(1, 31, 31, 3)", f"(B, {side}, {side}, 3)")
    check_refused(words, encoder.encode_images, some_pixels(1, 31))
    odd = some_pixels(1, side).astype(np.float64)
    check_refused(("float64", "uint8"), encoder.encode_images, odd)
    for texts in ("cat", ["cat", 3], ["cat", "\ud800"]) if encoder.name != "mini" else ():
        check_refused("text", encoder.encode_texts, texts)


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
    check_refused(("'gpt-5'", "pattern"), list_encoders, "gpt-5")
    table = CliRunner().invoke(encoders, ["siglip"]).stdout
    listed = json.loads(CliRunner().invoke(encoders, ["siglip", "--json"]).stdout)["encoders"]
    assert len(listed) > 10 and all(each["name"] in table for each in listed)
    assert {"name", "kind", "source", "here", "needs"} == set(listed[0])
    assert "crg encoders PATTERN" in CliRunner().invoke(encoders, []).stdout


@pytest.mark.parametrize("missing", ["missing.pt", "in/missing"])
def test_missing_weights_are_reported_before_torch_is_imported(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that can only be a file, and is none, costs no import."""
    monkeypatch.setattr("crg.encoders.weights.library", None)
    check_refused(f"There is no file {missing}", load_encoder, f"ViT-B-32:{missing}")


@pytest.mark.parametrize("missing", ["open_clip", "onnxruntime"])
def test_the_list_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an extra its encoders are listed with its name; finding none without is no answer."""
    if missing != "open_clip":
        open_clip()
    monkeypatch.setitem(sys.modules, missing, None)
    outcome = CliRunner().invoke(encoders, ["--json"])
    needs = {each["kind"]: each["needs"] for each in json.loads(outcome.stdout)["encoders"]}
    extra = {"open_clip": "openclip", "onnxruntime": "onnx"}[missing]
    assert needs[extra] == extra and needs["mini"] is None
    assert (f".[{extra}]" in outcome.stderr) == (missing == "open_clip")
    assert f".[{extra}]" in CliRunner().invoke(encoders, []).stdout
    if missing == "open_clip":
        assert [row.name for row in list_encoders("rn50")] == ["RN50:openai"]
        check_refused(".[openclip]", list_encoders, "siglip")


def test_a_library_that_does_not_load_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is installed but fails to load is reported as such, not as missing."""
    sentence = "operator torchvision::nms does not exist"
    (tmp_path / "open_clip.py").write_text(f"raise RuntimeError({sentence!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "open_clip", raising=False)
    check_refused((sentence, "--force-reinstall"), load_encoder, "RN50")
