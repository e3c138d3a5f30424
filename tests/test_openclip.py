"""Models of open_clip: the same features as open_clip gives, whatever the weights came in."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg.encoders import load_encoder
from crg.encoders.openclip import OpenClip
from sentences import refused_in_one_sentence
from small_models import (
    MODELS,
    make_model,
    plain_pixels,
    save_model,
    saved,
    some_features,
    some_image,
    some_pixels,
)
from torchvision_operators import open_clip

TEXTS = ["a photo of a cat.", "", "Ünïcode & 'quotes'", "word " * 300]


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    open_clip()


@pytest.fixture(scope="module")
def vit() -> OpenClip:
    """The small vision transformer."""
    return OpenClip(saved("small-vit"), device="cpu")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [(97, 75), (40, 131), (160, 160)])
def test_features_are_those_of_open_clip(name: str, size: tuple[int, int]) -> None:
    """Images and texts get the features that open_clip's own transform and model give."""
    encoder = load_encoder(saved(name), device="cpu")
    image = some_image(*size)
    images, texts = some_features(make_model(name), name, image, TEXTS)
    pixels = plain_pixels(image, encoder.preprocessing)
    assert np.allclose(encoder.encode_images(pixels), images, atol=2e-6)
    assert np.allclose(encoder.encode_texts(TEXTS), texts, atol=2e-6)
    assert encoder.width == images.shape[1] == MODELS[name]["embed_dim"]


def test_scale_and_bias_are_the_models_own(tmp_path: Path, vit: OpenClip) -> None:
    """The logit scale is the exponential of the parameter; only a sigmoid model has a bias."""
    import torch

    assert vit.logit_bias == 0.0 and vit.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)

    model = make_model("small-sigmoid")
    with torch.no_grad():
        model.logit_scale.fill_(4.7)
        model.logit_bias.fill_(-12.9)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    encoder = load_encoder(f"small-sigmoid:{tmp_path / 'weights.pt'}")
    assert encoder.logit_scale == pytest.approx(np.exp(4.7), rel=1e-5)
    assert encoder.logit_bias == pytest.approx(-12.9, rel=1e-5)


@pytest.mark.parametrize("form", ["bin", "safetensors", "training", "half"])
def test_every_form_of_checkpoint_is_read(form: str, tmp_path: Path, vit: OpenClip) -> None:
    """The weights are the same in .pt, .bin, .safetensors and in a checkpoint of training."""
    import torch
    from safetensors.torch import save_file

    state = make_model("small-vit").state_dict()
    file = tmp_path / f"other.{form if form in ('bin', 'safetensors') else 'pt'}"
    if form == "safetensors":
        save_file(state, file)
    elif form == "training":
        parallel = {f"module.{key}": value for key, value in state.items()}
        torch.save({"epoch": 3, "name": "run", "state_dict": parallel}, file)
    else:
        torch.save({k: v.half() if form == "half" else v for k, v in state.items()}, file)
    other = OpenClip(f"small-vit:{file}", device="cpu")
    pixels = some_pixels(2, 32)
    tolerance = 5e-3 if form == "half" else 0.0
    difference = np.abs(other.encode_images(pixels) - vit.encode_images(pixels)).max()
    assert difference <= tolerance
    assert (other.fingerprint == vit.fingerprint) == (form != "half")


def test_openais_archives_are_read_with_the_quick_activation(tmp_path: Path) -> None:
    """A TorchScript archive in half precision, as OpenAI published them, means the quick GELU."""
    import torch

    quick = make_model("small-vit", force_quick_gelu=True)
    for note in ("input_resolution", "context_length", "vocab_size"):
        vars(quick).pop(note, None)
        quick.register_buffer(note, torch.tensor(77))
    example = torch.zeros(1, 3, 32, 32), torch.zeros(1, 77, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is on its way out
        trace: Any = torch.jit.trace
        trace(quick, example, check_trace=False).half().save(str(tmp_path / "ViT.pt"))
    encoder, image = OpenClip(f"small-vit:{tmp_path / 'ViT.pt'}", device="cpu"), some_image()
    features = encoder.encode_images(plain_pixels(image, encoder.preprocessing))
    models = make_model("small-vit", force_quick_gelu=True), make_model("small-vit")
    near, far = (some_features(each, "small-vit", image, ["a"])[0] for each in models)
    assert np.abs(features - near).max() < 0.5 * np.abs(features - far).max()
    assert encoder.configuration["quick_gelu"]


def test_the_fingerprint_follows_the_weights(tmp_path: Path, vit: OpenClip) -> None:
    """A weight that differs by a millionth makes another fingerprint."""
    import torch

    state = make_model("small-vit").state_dict()
    state["ln_final.bias"][3] += 1e-6
    torch.save(state, tmp_path / "changed.pt")
    assert OpenClip(f"small-vit:{tmp_path / 'changed.pt'}").fingerprint != vit.fingerprint


def test_large_inputs_are_cut_into_pieces(vit: OpenClip, monkeypatch: Any) -> None:
    """A large input gives what its pieces give, no piece being larger than the limit."""
    pixels = some_pixels(150, 32)
    sizes: list[int] = []
    encode = vit.model.encode_image

    def watched(piece: Any) -> Any:
        sizes.append(len(piece))
        return encode(piece)

    monkeypatch.setattr(vit.model, "encode_image", watched)
    whole = vit.encode_images(pixels)
    assert sizes == [64, 64, 22]
    ones = np.concatenate([vit.encode_images(pixels[i : i + 1]) for i in (0, 70, 149)])
    assert np.allclose(whole[[0, 70, 149]], ones, atol=1e-6)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert whole.dtype == np.float32
    assert vit.encode_images(pixels[:0]).shape == vit.encode_texts([]).shape == (0, 24)


def test_lower_precision_comes_close(vit: OpenClip) -> None:
    """bf16 gives nearly the features of fp32, and not exactly them."""
    lower = load_encoder(vit.name, device="cpu", precision="bf16")
    pixels = some_pixels(4, 32)
    difference = np.abs(lower.encode_images(pixels) - vit.encode_images(pixels)).max()
    assert 1e-5 < difference < 0.05
    assert lower.fingerprint == vit.fingerprint
    assert lower.encode_texts(["a cat"]).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda:9"}, ["cuda:9", "leave it out"]),
        ({"device": "toaster"}, ["toaster", "cpu"]),
        ({"device": "cpu", "precision": "fp16"}, ["bf16 or fp32"]),
        ({"precision": "fp8"}, ["fp8", "fp32, fp16, bf16"]),
    ],
)
def test_impossible_devices_are_refused(options: dict[str, str], words: list[str]) -> None:
    """A device that is not there, or a precision that makes no sense, is refused at once."""
    with refused_in_one_sentence(*words):
        load_encoder("RN50", **options)


@pytest.mark.parametrize("texts", ["cat", ["cat", 3], ["cat", "\ud800"]])
def test_wrong_inputs_are_refused(vit: OpenClip, texts: Any) -> None:
    """Pixels of another size or type, one text, a number or half a character are refused."""
    with refused_in_one_sentence("(1, 31, 31, 3)", "(B, 32, 32, 3)"):
        vit.encode_images(some_pixels(1, 31))
    with refused_in_one_sentence("float64", "uint8"):
        vit.encode_images(some_pixels(1, 32).astype(np.float64))
    with refused_in_one_sentence("text"):
        vit.encode_texts(texts)


def test_the_papers_resnet_in_its_real_size(tmp_path: Path) -> None:
    """RN50 as the paper uses it: width 1024, 224 pixels, quick GELU even from a plain file."""
    file = save_model("RN50", tmp_path / "RN50.pt")
    encoder = OpenClip(f"RN50:{file}", device="cpu")
    assert (encoder.width, encoder.preprocessing.size) == (1024, 224)
    assert encoder.configuration["quick_gelu"]
    assert encoder.encode_images(some_pixels(2, 224)).shape == (2, 1024)
    assert encoder.encode_texts(["a photo of a cat."]).shape == (1, 1024)
