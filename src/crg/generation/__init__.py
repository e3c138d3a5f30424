"""Generation: variations of images, made once by a diffusion model or found in a folder."""

from crg.generation.job import Progress, Summary, generate
from crg.generation.variations import FolderGenerator, Generator, Variations

__all__ = ["FolderGenerator", "Generator", "Progress", "Summary", "Variations", "generate"]
