"""Small models of open_clip's real architectures with random weights, saved as checkpoints."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.extras import library
from crg.images.preprocessing import Pixels, Preprocessing
from plain_views import plain_original

_TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "small-vit": {"embed_dim": 24, "text_cfg": _TEXT, "vision_cfg": {
        "image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32}},
    "small-resnet": {"embed_dim": 24, "text_cfg": _TEXT, "vision_cfg": {
        "image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}},
    "small-sigmoid": {  # built like SigLIP
        "embed_dim": 64, "init_logit_bias": -10, "custom_text": True,
        "vision_cfg": {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "map",
                       "timm_model_pretrained": False, "timm_proj": "none"},
        "text_cfg": {**_TEXT, "context_length": 16, "width": 64, "no_causal_mask": True,
                     "proj_bias": True, "pool_type": "last",
                     "tokenizer_kwargs": {"clean": "canonicalize"}}},
}  # fmt: skip


def open_clip() -> Any:
    """The module open_clip; the test is skipped where it is not installed."""
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed: install crg-tta[openclip]")
    return library("open_clip", "openclip")


@functools.cache
def register_models() -> None:
    """Make the small models known to open_clip by name."""
    with tempfile.TemporaryDirectory() as folder:
        for name, configuration in MODELS.items():
            (Path(folder) / f"{name}.json").write_text(json.dumps(configuration))
        open_clip().add_model_config(folder)


def make_model(name: str, seed: int = 0, **options: Any) -> Any:
    """A model with random weights, the same for the same seed."""
    import torch

    register_models()
    quiet = logging.NullHandler()
    logging.getLogger().addHandler(quiet)  # open_clip warns that the weights are random
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return open_clip().create_model(name, **options).eval()
    finally:
        logging.getLogger().removeHandler(quiet)


def save_model(name: str, file: Path, seed: int = 0) -> Path:
    """A checkpoint of ``make_model``."""
    import torch

    torch.save(make_model(name, seed).state_dict(), file)
    return file


@functools.cache
def saved(name: str, seed: int = 0) -> str:
    """MODEL:FILE of a checkpoint that is made once, for tests that only read it."""
    return f"{name}:{save_model(name, _once() / f'{name}-{seed}.pt', seed)}"


@functools.cache
def exported(name: str, int8: bool = False) -> Path:
    """A folder with that model for ONNX Runtime, made once, for tests that only read it."""
    from crg.encoders.export import export

    return Path(export(saved(name), _once() / f"{name}{'-8' if int8 else ''}", int8)["folder"])


def check_alone_and_together(encoder: Any) -> None:
    """Alone, in pairs and in a batch, in any place, an image has the same features to the bit."""
    pixels = some_pixels(9, encoder.preprocessing.size)
    pixels[3] //= 9  # a dark one, and a bright one: quantised together, they change each other
    pixels[4] = 255 - pixels[3]
    whole = encoder.encode_images(pixels)
    for size in (1, 2, 4):
        starts = range(0, len(pixels), size)
        parts = [encoder.encode_images(pixels[at : at + size]) for at in starts]
        assert np.array_equal(np.concatenate(parts), whole), size
    assert np.array_equal(encoder.encode_images(pixels[::-1])[::-1], whole)


@functools.cache
def _once() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="small-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def some_image(width: int = 97, height: int = 75, seed: int = 0) -> Image.Image:
    """An image of smooth colours and some noise."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, 3))
    colours = np.stack([x * 190 // width, y * 190 // height, (x + y) % 190], axis=-1)
    return Image.fromarray((colours + noise).astype(np.uint8))


def plain_pixels(image: Image.Image, wanted: Preprocessing) -> Pixels:
    """The square that the model sees, (1, S, S, 3), by Pillow alone."""
    return np.asarray(plain_original(image, wanted))[None]


def some_pixels(count: int, side: int, seed: int = 0) -> Pixels:
    """Random pixels (B, S, S, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def some_features(model: Any, name: str, image: Any, texts: list[str]) -> tuple[Any, Any]:
    """Unit features by open_clip alone, its own transform included."""
    import torch

    module = open_clip()
    wanted = module.transform.PreprocessCfg(**model.visual.preprocess_cfg)
    tensor = module.transform.image_transform_v2(wanted, is_train=False)(image)[None]
    with torch.no_grad():
        images = model.encode_image(tensor, normalize=True)
        words = model.encode_text(module.get_tokenizer(name)(texts), normalize=True)
    return images.numpy(), words.numpy()
