"""The pieces that the papers name: cache, prototypes, residual, Gaussian."""
