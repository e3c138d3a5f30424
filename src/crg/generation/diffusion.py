"""Variations by a diffusion model: StableDiffusionImageVariationPipeline of diffusers.

The weights come from a folder on this machine, as ``save_pretrained`` writes it; nothing is
fetched. An image is what the pipeline's image encoder sees, squashed to its square with
bicubic interpolation, which is how the authors of DiffTPT use it. Its safety checker is left
on where the folder has one; the black images that it gives are far from the original.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crg.encoders.torch_encoder import choose_device
from crg.extras import first_line, install, library
from crg.generation.variations import seed_of
from crg.images.preprocessing import Preprocessing
from crg.types import InputError

_EXTRA = "diffusion"
_INDEX = "model_index.json"
_PIPELINE = "StableDiffusionImageVariationPipeline"


class DiffusersGenerator:
    """Variations that a diffusion model makes one by one, so that each can be had again."""

    def __init__(
        self,
        weights: Path,
        steps: int = 50,  # the pipeline's own default
        guidance: float = 3.0,  # as in the authors' code
        device: str | None = None,
    ) -> None:
        self.steps, self.guidance = steps, guidance
        self.device = choose_device(device)
        self.fingerprint = _fingerprint(weights)
        self._pipeline = _loaded(weights).to(self.device)
        self._preprocessing = _preprocessing(self._pipeline)

    def generate(
        self, image: Image.Image, image_id: str, numbers: Sequence[int], seed: int
    ) -> Iterator[Image.Image]:
        """The variations of these numbers, each from noise of its own."""
        import torch

        pixels = torch.from_numpy(self._pixels(image)).to(self.device)
        for number in numbers:
            # Noise is drawn on the processor, where it is the same for every kind of device.
            noise = torch.Generator("cpu").manual_seed(seed_of(seed, image_id, number))
            made = self._pipeline(
                pixels,
                generator=noise,
                num_inference_steps=self.steps,
                guidance_scale=self.guidance,
            )
            yield made.images[0].convert("RGB")

    def describe(self) -> Mapping[str, Any]:
        """The weights and how they are used."""
        return {"weights": self.fingerprint, "steps": self.steps, "guidance": self.guidance}

    def _pixels(self, image: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
        side = self._preprocessing.size
        square = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
        return self._preprocessing.normalised(np.array(square)[None])


def _loaded(weights: Path) -> Any:
    kind = _pipeline_class()
    try:
        with _quiet():
            pipeline = kind.from_pretrained(
                weights, local_files_only=True, low_cpu_mem_usage=False, use_safetensors=None
            )
    except Exception as error:  # a damaged folder makes the libraries raise nearly anything
        raise InputError(
            f"{weights} cannot be loaded as a {_PIPELINE} ({first_line(error)}): "
            "give a folder that its save_pretrained wrote."
        ) from None
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _pipeline_class() -> Any:
    module = library("diffusers", _EXTRA)
    library("transformers", _EXTRA)
    try:
        return getattr(module, _PIPELINE)
    except Exception as error:  # it is only now that diffusers imports what it needs
        raise InputError(
            f"{_PIPELINE} cannot be imported ({first_line(_root(error))}): "
            f"{install(_EXTRA)}, with a torchvision that belongs to that torch, or none."
        ) from None


def _root(error: BaseException) -> BaseException:
    """What came first: the libraries wrap it in errors that tell nothing."""
    cause = error.__cause__ or error.__context__
    return error if cause is None else _root(cause)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars of the two libraries, which the library never prints."""
    loggings = [library(f"{name}.utils.logging", _EXTRA) for name in ("diffusers", "transformers")]
    shown = [each for each in loggings if each.is_progress_bar_enabled()]
    for each in shown:
        each.disable_progress_bar()
    try:
        yield
    finally:
        for each in shown:
            each.enable_progress_bar()


def _preprocessing(pipeline: Any) -> Preprocessing:
    extractor = pipeline.feature_extractor
    side = int(pipeline.image_encoder.config.image_size)
    return Preprocessing(side, tuple(extractor.image_mean), tuple(extractor.image_std))


def _fingerprint(weights: Path) -> str:
    """Of the names and sizes of the files, and of what the small ones say."""
    if not (weights / _INDEX).is_file():
        raise InputError(
            f"{weights} holds no {_INDEX}: give a folder that save_pretrained of a "
            f"{_PIPELINE} wrote."
        )
    digest = hashlib.sha256()
    for path in sorted(path for path in weights.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(weights).as_posix()}\0{path.stat().st_size}\n".encode())
        if path.suffix == ".json":
            digest.update(path.read_bytes())
    return digest.hexdigest()
