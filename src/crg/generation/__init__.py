"""Generation: variations of images, made once by a diffusion model or found in a folder."""

from crg.generation.base import Generator
from crg.generation.folder import FolderGenerator, Variations
from crg.generation.job import Progress, Summary, generate

__all__ = ["FolderGenerator", "Generator", "Progress", "Summary", "Variations", "generate"]
