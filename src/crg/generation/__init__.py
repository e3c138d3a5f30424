"""Generation: variations of images, made once by a diffusion model or found in a folder."""

from crg.generation.job import GenerationProgress, GenerationSummary, generate
from crg.generation.variations import FolderGenerator, Generator, Variations

__all__ = [
    "FolderGenerator",
    "GenerationProgress",
    "GenerationSummary",
    "Generator",
    "Variations",
    "generate",
]
