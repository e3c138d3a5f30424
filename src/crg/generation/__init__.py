"""Generation: variations of images, made once by a diffusion model or found in a folder."""
