"""Fill one folder of generated images per image: the views that DiffTPT adapts with.

python -m pip install diffusers transformers
python examples/generate.py photos/ --weights sd-image-variations/ --count 8 --out variations
crg encode photos/ --model ViT-B-16 --variations variations --generated 8 --out store

An image that is there already is not made again, so the script may be stopped at any moment.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import torch
from diffusers import StableDiffusionImageVariationPipeline

from crg.datasets import load_dataset
from crg.images.reading import read_image

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("images", help="a dataset as crg encode takes it")
parser.add_argument("--weights", required=True, help="folder of the diffusion pipeline")
parser.add_argument("--count", type=int, default=8, help="generated images per image")
parser.add_argument("--steps", type=int, default=50, help="steps from noise to image")
parser.add_argument("--out", type=Path, required=True)
given = parser.parse_args()

pipeline = StableDiffusionImageVariationPipeline.from_pretrained(given.weights)
pipeline = pipeline.to("cuda" if torch.cuda.is_available() else "cpu")
images = load_dataset(given.images)
for name, source in zip(images.ids, images.sources, strict=True):
    for number in range(given.count):
        path = given.out / name / f"{number:04d}.png"
        if path.exists():
            continue
        seed = hashlib.sha256(f"{name} {number}".encode("utf-8", "surrogateescape")).digest()
        noise = torch.Generator("cpu").manual_seed(int.from_bytes(seed[:7], "little"))
        made = pipeline(  # 3.0 as in the authors' code
            read_image(source), generator=noise, num_inference_steps=given.steps, guidance_scale=3.0
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        made.images[0].save(path.with_name(f".{path.name}"))  # hidden until it is whole
        path.with_name(f".{path.name}").replace(path)
