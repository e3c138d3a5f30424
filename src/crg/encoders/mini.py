"""The bundled model: small, trained on rendered shapes, and run by NumPy alone.

It knows the names of objects of many shapes, colours and textures, and nothing else.
``tools/train_mini.py`` trained it, and ``docs/mini.md`` says how well it does. Weights are named
as in that script. Images are (B, S, S, 3), channels last; a convolution gathers its windows and
multiplies once. W is the width of a word, D that of a feature.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace
from numpy.lib.stride_tricks import as_strided
from safetensors import SafetensorError
from safetensors.numpy import load

from crg.encoders.base import Vectors, check_pixels, encode_in_pieces
from crg.extras import first_line, library
from crg.images.preprocessing import Pixels, Preprocessing
from crg.resources import PromptableTextEncoder
from crg.threads import one_blas_thread
from crg.types import InputError

MAX_WORDS = 24  # of a sentence; the model ignores the rest
_MAX_CHARACTERS = 4000  # of a text; nothing beyond can be among the first words that count
_MAX_PIECES = 64  # of a word
_WORD = re.compile(r"\w+")
_CHUNK = 16  # images at a time, so that the windows stay in the processor's cache
_SENTENCES = 256  # at a time
_CACHED_LISTS = 64  # of class names whose embeddings are cached
WEIGHTS = Path(__file__).with_name("mini.safetensors")
FORMAT = 1

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Weights: TypeAlias = Mapping[str, Any]  # arrays of NumPy or of torch


def split_words(text: str) -> list[str]:
    """The first words in lower case without accents; hyphens and punctuation separate them.

    >>> split_words("A photo of a polka-dot Café!")
    ['a', 'photo', 'of', 'a', 'polka', 'dot', 'cafe']
    """
    plain = unicodedata.normalize("NFKD", str(text)[:_MAX_CHARACTERS].lower())
    letters = "".join(c for c in plain if not unicodedata.combining(c)).replace("_", " ")
    return _WORD.findall(letters)[:MAX_WORDS]


def piece_buckets(word: str, n_buckets: int) -> list[int]:
    """The buckets of all runs of three characters of <word>, so that similar words share some."""
    marked = f"<{word}>"
    pieces = [marked[i : i + 3] for i in range(max(1, len(marked) - 2))][:_MAX_PIECES]
    return [zlib.crc32(piece.encode("utf-8", "surrogatepass")) % n_buckets for piece in pieces]


def image_features(pixels: Numbers, weights: Weights, stages: int) -> Any:
    """Features (B, D) of unit length of normalised pixels (B, S, S, 3).

    A strided convolution and a residual one per stage, then mean and peak of each channel. Every
    product is of one image, so that no bit of its features depends on the others.
    """
    x = _convolved(pixels, weights, "stem", 4, 2)
    np.maximum(x, 0, out=x)
    for stage in range(stages):
        x = _convolved(x, weights, f"stage{stage}.down", 3, 2)
        np.maximum(x, 0, out=x)
        more = _convolved(x, weights, f"stage{stage}.same", 3, 1)
        x += np.maximum(more, 0, out=more)
    pooled = np.concatenate([x.mean(axis=(1, 2)), x.max(axis=(1, 2))], axis=1)
    return _unit(_linear(pooled[:, None], weights, "picture_head")[:, 0])


def text_features(tokens: Any, mask: Any, weights: Weights, layers: int, heads: int) -> Any:
    """Features (n, D) of unit length of token embeddings (n, T, W); mask (n, T) marks words.

    In NumPy for ``encode_texts`` and in torch for tuned prompts, where it is differentiable.
    """
    xp = array_namespace(tokens)
    x = tokens + weights["places"][: tokens.shape[1]]
    for name in (f"layer{layer}" for layer in range(layers)):
        x = x + _attention(_normed(x, weights, f"{name}.norm1"), mask, weights, name, heads)
        hidden = _gelu(_linear(_normed(x, weights, f"{name}.norm2"), weights, f"{name}.widen"))
        x = x + _linear(hidden, weights, f"{name}.narrow")
    words = xp.astype(mask, x.dtype)
    share = words / xp.clip(xp.sum(words, axis=1, keepdims=True), 1, None)
    pooled = xp.einsum("nt,ntw->nw", share, x)
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
    out: Numbers = windows.reshape(b, rows * columns, -1) @ weight  # image by image: exact
    out += bias
    return out.reshape(b, rows, columns, -1)


def _attention(x: Any, mask: Any, weights: Weights, name: str, heads: int) -> Any:
    xp = array_namespace(x)
    n, t, w = x.shape
    mixed = xp.reshape(_linear(x, weights, f"{name}.qkv"), (n, t, 3, heads, w // heads))
    q, k, v = xp.permute_dims(mixed, (2, 0, 3, 1, 4))  # each (n, heads, T, w / heads)
    scores = (q @ k.swapaxes(-1, -2)) / math.sqrt(w // heads)
    scores = xp.where(mask[:, None, None, :], scores, xp.full_like(scores, -1e9))
    scores = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    scores = scores / xp.sum(scores, axis=-1, keepdims=True)
    joined = xp.reshape((scores @ v).swapaxes(1, 2), (n, t, w))
    return _linear(joined, weights, f"{name}.join")


def _linear(x: Any, weights: Weights, name: str) -> Any:
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _normed(x: Any, weights: Weights, name: str) -> Any:
    """Layer normalisation."""
    xp = array_namespace(x)
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    spread = xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    """GELU in the form with tanh."""
    curve = array_namespace(x).tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + curve)


def _unit(rows: Any) -> Any:
    xp = array_namespace(rows)
    norms = xp.sqrt(xp.sum(rows * rows, axis=1, keepdims=True))
    return rows / xp.clip(norms, 1e-12, None)


class Mini:
    """The Encoder protocol on the bundled weights, or on others of the same make."""

    name = "mini"

    def __init__(self, path: Path = WEIGHTS) -> None:
        """Read the weights; a missing or damaged file is reported in one sentence."""
        self.facts, weights, self.fingerprint = _read(path)
        self.weights = {name: array.astype(np.float32) for name, array in weights.items()}
        self._known = {word: row for row, word in enumerate(self.facts["words"])}
        self.width = int(self.facts["width"])
        self.logit_scale = float(self.facts["logit_scale"])
        mean, std = tuple(self.facts["mean"]), tuple(self.facts["std"])
        self.preprocessing = Preprocessing(int(self.facts["size"]), mean, std)

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Features (B, D) of unit length for pixels (B, S, S, 3)."""
        check_pixels(pixels, self.preprocessing)
        std = np.asarray(self.preprocessing.std, np.float32)
        scale, shift = 1 / (255 * std), np.asarray(self.preprocessing.mean, np.float32) / std
        stages = self.facts["stages"]
        run = lambda part: image_features(part * scale - shift, self.weights, stages)  # noqa: E731
        with one_blas_thread():
            return encode_in_pieces(pixels, run, _CHUNK, self.width, "images")

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        """Features (n, D) of unit length, one sentence each."""
        layers, heads = self.facts["layers"], self.facts["heads"]
        run = lambda part: text_features(*self.embed(part), self.weights, layers, heads)  # noqa: E731
        with one_blas_thread():
            return encode_in_pieces(texts, run, _SENTENCES, self.width, "texts")

    def embed(self, texts: Sequence[str]) -> tuple[Numbers, Mask]:
        """Token embeddings (n, T, W) and a mask (n, T) that is true where there is a word.

        A text without words becomes one word that is all zeros.
        """
        split = [split_words(text) for text in texts]
        shape = len(split), max([1, *map(len, split)])
        tokens = np.zeros((*shape, self.weights["words"].shape[1]), np.float32)
        mask = np.zeros(shape, np.bool_)
        for row, words in enumerate(split):
            mask[row, : max(1, len(words))] = True
            for place, word in enumerate(words):
                tokens[row, place] = self.vector(word)
        return tokens, mask

    def vector(self, word: str) -> Numbers:
        """The embedding of a known word, or the mean over the pieces of an unknown one."""
        if word in self._known:
            return np.asarray(self.weights["words"][self._known[word]])
        buckets = self.weights["buckets"]
        return np.asarray(buckets[piece_buckets(word, len(buckets))].mean(axis=0))

    def promptable(self) -> PromptableTextEncoder:
        """The text encoder in torch, which takes context vectors in place of words."""
        return MiniPrompts(self)


class MiniPrompts:
    """A PromptableTextEncoder: the text encoder of mini in torch, with frozen weights."""

    def __init__(self, mini: Mini) -> None:
        torch = library("torch", "torch")
        self.name, self._mini = mini.name, mini
        self.layers, self.heads = mini.facts["layers"], mini.facts["heads"]
        self.weights: dict[str, Any] = {
            key: torch.tensor(values)
            for key, values in mini.weights.items()
            if key.startswith(("places", "layer", "text_"))
        }
        self._embedded: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def context_of(self, words: str) -> Any:
        """The embeddings (M, W) of ``words``."""
        torch = library("torch", "torch")
        tokens, _ = self._mini.embed([words])
        return torch.tensor(tokens[0, : len(split_words(words))])

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Unit features (K, D) of a context (M, W) followed by each ending.

        As in a sentence, words beyond what the model reads are cut off.
        """
        torch = library("torch", "torch")
        tokens, mask = self._ending_tokens(tuple(endings))
        context = context.to(tokens).expand(len(tokens), *context.shape)
        if context.shape[1] >= MAX_WORDS:
            raise InputError(
                f"A context of {context.shape[1]} vectors leaves no room for a class name: "
                f"mini reads {MAX_WORDS} words, so give it at most {MAX_WORDS - 1} vectors."
            )
        words = torch.cat([context, tokens], dim=1)[:, :MAX_WORDS]
        seen = torch.cat([mask.new_ones(context.shape[:2]), mask], dim=1)[:, :MAX_WORDS]
        seen[:, 0] = True  # a text without words is one word that is all zeros
        return text_features(words, seen, self.weights, self.layers, self.heads)

    def _ending_tokens(self, endings: tuple[str, ...]) -> tuple[Any, Any]:
        """Embeddings (K, T, W) of the endings and a mask (K, T) of words."""
        if endings not in self._embedded:
            torch = library("torch", "torch")
            tokens, _ = self._mini.embed(endings)
            lengths = torch.tensor([[len(split_words(ending))] for ending in endings])
            mask = torch.arange(tokens.shape[1]) < lengths.reshape(-1, 1)
            if len(self._embedded) >= _CACHED_LISTS:
                self._embedded.clear()
            self._embedded[endings] = torch.tensor(tokens).to(self.weights["places"]), mask
        return self._embedded[endings]


def _read(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """The facts and the weights of a file, and its SHA-256."""
    try:
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        facts = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["mini"])
        weights = load(raw)
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']} in place of {FORMAT}")
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(name.encode() + np.ascontiguousarray(weights[name]).tobytes())
        if digest.hexdigest() != facts["sha256"]:
            raise ValueError("its checksum does not fit")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"The weights of mini cannot be read from {path} ({first_line(error)}): "
            "install crg-tta again or run tools/train_mini.py."
        ) from None
    return facts, weights, hashlib.sha256(raw).hexdigest()
