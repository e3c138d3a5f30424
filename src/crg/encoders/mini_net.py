"""The forward pass of the bundled model in NumPy: convolutions and attention as matrix products.

Weights are named as in the training script, which writes them. Images are (B, S, S, 3),
channels last; a convolution gathers its windows and multiplies once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from crg.preprocessing import Pixels, Preprocessing

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Weights: TypeAlias = Mapping[str, Numbers]

_CHUNK = 16  # images at a time, so that the windows stay in the processor's cache
_GELU = np.float32(np.sqrt(2 / np.pi))


def image_features(
    pixels: Pixels, wanted: Preprocessing, weights: Weights, n_stages: int
) -> Numbers:
    """Features (B, D) of unit length of pixels (B, S, S, 3)."""
    std = np.asarray(wanted.std, np.float32)
    scale, shift = 1 / (255 * std), np.asarray(wanted.mean, np.float32) / std
    parts = [
        _few_images(pixels[start : start + _CHUNK] * scale - shift, weights, n_stages)
        for start in range(0, len(pixels), _CHUNK)
    ]
    return np.concatenate(parts)


def _few_images(pixels: Numbers, weights: Weights, n_stages: int) -> Numbers:
    """A strided convolution and a residual one per stage, then mean and peak of each channel."""
    x = _convolved(pixels, weights, "stem", 4, 2)
    np.maximum(x, 0, out=x)
    for stage in range(n_stages):
        x = _convolved(x, weights, f"stage{stage}.down", 3, 2)
        np.maximum(x, 0, out=x)
        more = _convolved(x, weights, f"stage{stage}.same", 3, 1)
        x += np.maximum(more, 0, out=more)
    pooled = np.concatenate([x.mean(axis=(1, 2)), x.max(axis=(1, 2))], axis=1)
    return _unit(_linear(pooled, weights, "picture_head"))


def text_features(
    tokens: Numbers, mask: Mask, weights: Weights, n_layers: int, heads: int
) -> Numbers:
    """Features (n, D) of unit length of token embeddings (n, T, W); mask (n, T) marks words."""
    x = tokens + weights["places"][: tokens.shape[1]]
    for layer in range(n_layers):
        name = f"layer{layer}"
        x = x + _attention(_normed(x, weights, f"{name}.norm1"), mask, weights, name, heads)
        hidden = _gelu(_linear(_normed(x, weights, f"{name}.norm2"), weights, f"{name}.widen"))
        x = x + _linear(hidden, weights, f"{name}.narrow")
    share = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    pooled = np.einsum("nt,ntw->nw", share.astype(np.float32), x)
    return _unit(_linear(_normed(pooled, weights, "text_norm"), weights, "text_head"))


def _convolved(x: Numbers, weights: Weights, name: str, kernel: int, stride: int) -> Numbers:
    """Padding of one pixel; the weight is (kernel * kernel * C, channels out)."""
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    b, h, w, c = x.shape
    padded = np.zeros((b, h + 2, w + 2, c), np.float32)
    padded[:, 1:-1, 1:-1] = x
    rows, columns = (h + 2 - kernel) // stride + 1, (w + 2 - kernel) // stride + 1
    windows = np.empty((b, rows, columns, kernel, kernel * c), np.float32)
    per_image, per_row, per_column, per_channel = padded.strides
    strides = (per_image, per_row * stride, per_column * stride, per_channel)
    for line in range(kernel):  # neighbours in a row lie side by side: one run per window
        start = padded[:, line:]
        shape = (b, rows, columns, kernel * c)
        windows[:, :, :, line] = as_strided(start, shape, strides, writeable=False)
    out: Numbers = windows.reshape(b * rows * columns, -1) @ weight
    out += bias
    return out.reshape(b, rows, columns, -1)


def _attention(x: Numbers, mask: Mask, weights: Weights, name: str, heads: int) -> Numbers:
    n, t, w = x.shape
    mixed = _linear(x, weights, f"{name}.qkv").reshape(n, t, 3, heads, w // heads)
    q, k, v = mixed.transpose(2, 0, 3, 1, 4)  # each (n, heads, T, w / heads)
    scores = (q @ k.swapaxes(-1, -2)) / np.float32(np.sqrt(w // heads))
    scores = np.where(mask[:, None, None, :], scores, np.float32(-1e9))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    joined = (scores @ v).swapaxes(1, 2).reshape(n, t, w)
    return _linear(joined, weights, f"{name}.join")


def _linear(x: Numbers, weights: Weights, name: str) -> Numbers:
    product: Numbers = x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return product


def _normed(x: Numbers, weights: Weights, name: str) -> Numbers:
    """Layer normalisation."""
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    normed: Numbers = centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]
    return normed


def _gelu(x: Numbers) -> Numbers:
    """GELU in the form with tanh."""
    curved: Numbers = 0.5 * x * (1 + np.tanh(_GELU * (x + np.float32(0.044715) * x * x * x)))
    return curved


def _unit(rows: Numbers) -> Numbers:
    unit: Numbers = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
