"""A small StableDiffusionImageVariationPipeline of diffusers with random weights, saved."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from torchvision_operators import declared_operators

SIDE = 16  # of the images that it makes


def libraries() -> tuple[Any, Any]:
    """The modules diffusers and transformers; the test is skipped where one is missing."""
    for name in ("torch", "diffusers", "transformers"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: install crg-tta[diffusion]")
    if importlib.util.find_spec("torchvision") is not None:
        declared_operators()
    return importlib.import_module("diffusers"), importlib.import_module("transformers")


def save_pipeline(folder: Path, seed: int = 0) -> Path:
    """The pipeline as ``save_pretrained`` writes it, the same for the same seed."""
    import torch

    diffusers, transformers = libraries()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        pipeline = diffusers.StableDiffusionImageVariationPipeline(
            vae=_autoencoder(diffusers),
            image_encoder=_image_encoder(transformers),
            unet=_unet(diffusers),
            scheduler=diffusers.PNDMScheduler(skip_prk_steps=True),  # that of the published one
            safety_checker=None,
            feature_extractor=transformers.CLIPImageProcessor(crop_size=32, size=32),
            requires_safety_checker=False,
        )
    pipeline.save_pretrained(folder)
    return folder


def _unet(diffusers: Any) -> Any:
    return diffusers.UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=SIDE // 2,
        in_channels=4,
        out_channels=4,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )


def _autoencoder(diffusers: Any) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=[8, 8],
        norm_num_groups=4,
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=4,
        sample_size=SIDE,
    )


def _image_encoder(transformers: Any) -> Any:
    return transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(
            hidden_size=16,
            projection_dim=16,
            intermediate_size=20,
            num_hidden_layers=1,
            num_attention_heads=2,
            image_size=32,
            patch_size=8,
        )
    )
