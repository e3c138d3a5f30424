"""Models of open_clip: the same features as open_clip gives, whatever the weights came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import small_models
from crg.encoders import load_encoder
from crg.encoders.openclip import OpenClip
from sentences import check_refused

TEXTS = ["a photo of a cat.", "", "Ünïcode & 'quotes'", "word " * 300]


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    small_models.open_clip()


@pytest.fixture(scope="module")
def vit() -> OpenClip:
    """The small vision transformer."""
    return OpenClip(small_models.saved("small-vit"), device="cpu")


@pytest.mark.parametrize("name", small_models.MODELS)
@pytest.mark.parametrize("size", [(97, 75), (40, 131), (160, 160)])
def test_features_are_those_of_open_clip(name: str, size: tuple[int, int]) -> None:
    """Images and texts get the features that open_clip's own transform and model give."""
    encoder = load_encoder(small_models.saved(name), device="cpu")
    image = small_models.some_image(*size)
    images, texts = small_models.some_features(small_models.make_model(name), name, image, TEXTS)
    pixels = small_models.plain_pixels(image, encoder.preprocessing)
    assert np.allclose(encoder.encode_images(pixels), images, atol=2e-6)
    assert np.allclose(encoder.encode_texts(TEXTS), texts, atol=2e-6)
    assert encoder.width == images.shape[1] == small_models.MODELS[name]["embed_dim"]


def test_the_scale_is_the_models_own(tmp_path: Path, vit: OpenClip) -> None:
    """The logit scale is the exponential of the parameter."""
    import torch

    assert vit.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)
    model = small_models.make_model("small-sigmoid")
    with torch.no_grad():
        model.logit_scale.fill_(4.7)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    encoder = load_encoder(f"small-sigmoid:{tmp_path / 'weights.pt'}")
    assert encoder.logit_scale == pytest.approx(np.exp(4.7), rel=1e-5)


@pytest.mark.parametrize("form", ["bin", "safetensors", "training", "half", "changed"])
def test_every_form_of_checkpoint_is_read(form: str, tmp_path: Path, vit: OpenClip) -> None:
    """The weights are the same in every form; one that differs by a millionth is noticed."""
    import torch
    from safetensors.torch import save_file

    state = small_models.make_model("small-vit").state_dict()
    state["ln_final.bias"][3] += 1e-6 * (form == "changed")
    file = tmp_path / f"other.{form if form in ('bin', 'safetensors') else 'pt'}"
    if form == "safetensors":
        save_file(state, file)
    elif form == "training":
        parallel = {f"module.{key}": value for key, value in state.items()}
        torch.save({"epoch": 3, "name": "run", "state_dict": parallel}, file)
    else:
        torch.save({k: v.half() if form == "half" else v for k, v in state.items()}, file)
    other = OpenClip(f"small-vit:{file}", device="cpu")
    pixels = small_models.some_pixels(2, 32)
    tolerance = 5e-3 if form == "half" else 0.0
    difference = np.abs(other.encode_images(pixels) - vit.encode_images(pixels)).max()
    assert difference <= tolerance
    assert (other.fingerprint == vit.fingerprint) == (form not in ("half", "changed"))


def test_a_processor_encodes_one_image_at_a_time(vit: OpenClip, monkeypatch: Any) -> None:
    """So that its features do not depend on the others."""
    watched = Mock(wraps=vit.model.encode_image)
    monkeypatch.setattr(vit.model, "encode_image", watched)
    vit.encode_images(small_models.some_pixels(3, 32))
    assert [len(call.args[0]) for call in watched.call_args_list] == [1, 1, 1]


def test_lower_precision_comes_close(vit: OpenClip) -> None:
    """bf16 gives nearly the features of fp32, and not exactly them."""
    lower = load_encoder(vit.name, device="cpu", precision="bf16")
    pixels = small_models.some_pixels(4, 32)
    difference = np.abs(lower.encode_images(pixels) - vit.encode_images(pixels)).max()
    assert 1e-5 < difference < 0.05
    assert lower.fingerprint == vit.fingerprint
    assert lower.encode_texts(["a cat"]).dtype == np.float32


def test_impossible_devices_are_refused() -> None:
    """A device that is not there, or a precision that makes no sense, is refused at once."""
    check_refused(("cuda:9", "leave it out"), load_encoder, "RN50", device="cuda:9")
    check_refused(("toaster", "cpu"), load_encoder, "RN50", device="toaster")
    check_refused("bf16 or fp32", load_encoder, "RN50", device="cpu", precision="fp16")
    check_refused(("fp8", "fp32, fp16, bf16"), load_encoder, "RN50", precision="fp8")
