"""The bundled model in torch: what is trained, and what the NumPy version is checked against."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional

from crg.atomic import replacing
from crg.encoders.mini import FORMAT, MAX_WORDS, piece_buckets, split_words


@dataclass(frozen=True)
class Plan:
    """The sizes of the model."""

    size: int = 64  # pixels
    width: int = 256  # D, of the features
    channels: tuple[int, ...] = (16, 32, 80, 160)  # after the stem and after each stage
    word_width: int = 128
    layers: int = 2
    heads: int = 4
    buckets: int = 2048
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.25, 0.25, 0.25)


class Convolution(nn.Module):
    """A convolution with batch normalisation, which is folded into it for export."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, normalise, cut at zero."""
        return functional.relu(self.norm(self.conv(x)))

    def folded(self) -> dict[str, Tensor]:
        """Weight (kernel * kernel * C, outputs) and bias of the same map in evaluation."""
        norm, variance, mean = self.norm, self.norm.running_var, self.norm.running_mean
        assert variance is not None and mean is not None
        gain = norm.weight / torch.sqrt(variance + norm.eps)
        weight = (self.conv.weight * gain[:, None, None, None]).permute(2, 3, 1, 0)
        return {
            "weight": weight.reshape(-1, weight.shape[-1]),
            "bias": norm.bias - mean * gain,
        }


class Stage(nn.Module):
    """Half the resolution, then a residual convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = Convolution(inputs, outputs, 3, 2)
        self.same = Convolution(outputs, outputs, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C', H / 2, W / 2)."""
        half: Tensor = self.down(x)
        more: Tensor = self.same(half)
        return half + more


class Layer(nn.Module):
    """One layer of the text transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(n, T, W) to the same; mask (n, T) marks words."""
        x = x + self._attention(self.norm1(x), mask)
        hidden = functional.gelu(self.widen(self.norm2(x)), approximate="tanh")
        more: Tensor = self.narrow(hidden)
        return x + more

    def _attention(self, x: Tensor, mask: Tensor) -> Tensor:
        n, t, w = x.shape
        mixed = self.qkv(x).view(n, t, 3, self.heads, w // self.heads)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        joined: Tensor = self.join(seen.transpose(1, 2).reshape(n, t, w))
        return joined


class Twin(nn.Module):
    """Both encoders and the scale of the logits."""

    def __init__(self, plan: Plan, words: Sequence[str]) -> None:
        super().__init__()
        self.plan, self.word_list = plan, tuple(words)
        self.known = {word: row for row, word in enumerate(words)}
        self.stem = Convolution(3, plan.channels[0], 4, 2)
        pairs = zip(plan.channels, plan.channels[1:], strict=False)
        self.stages = nn.ModuleList(Stage(a, b) for a, b in pairs)
        self.picture_head = nn.Linear(2 * plan.channels[-1], plan.width)
        self.words = nn.Parameter(0.3 * torch.randn(len(words), plan.word_width))
        self.buckets = nn.Parameter(0.3 * torch.randn(plan.buckets, plan.word_width))
        self.places = nn.Parameter(0.1 * torch.randn(MAX_WORDS, plan.word_width))
        self.layers = nn.ModuleList(Layer(plan.word_width, plan.heads) for _ in range(plan.layers))
        self.text_norm = nn.LayerNorm(plan.word_width)
        self.text_head = nn.Linear(plan.word_width, plan.width)
        self.log_scale = nn.Parameter(torch.tensor(2.7))

    def images(self, pixels: Tensor) -> Tensor:
        """Unit features (B, D) of uint8 or float pixels (B, S, S, 3), 0 to 255."""
        mean, std = torch.tensor(self.plan.mean), torch.tensor(self.plan.std)
        x = self.stem(((pixels.float() / 255 - mean) / std).permute(0, 3, 1, 2))
        for stage in self.stages:
            x = stage(x)
        pooled = torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1)
        return functional.normalize(self.picture_head(pooled), dim=1)

    def tokens(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Unit features (n, D) of token embeddings (n, T, W); mask (n, T) marks words."""
        x = tokens + self.places[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        share = mask / mask.sum(dim=1, keepdim=True)
        pooled = torch.einsum("nt,ntw->nw", share, x)
        return functional.normalize(self.text_head(self.text_norm(pooled)), dim=1)

    def embed(self, texts: Sequence[str], unknown: float = 0.0) -> tuple[Tensor, Tensor]:
        """Token embeddings and mask; a share ``unknown`` of the words is read in pieces."""
        split = [split_words(text) for text in texts]
        length = max([1, *map(len, split)])
        flat = [word for words in split for word in words]
        hidden = (torch.rand(len(flat)) < unknown).tolist()
        rows = torch.tensor([r for r, words in enumerate(split) for _ in words], dtype=torch.long)
        places = torch.tensor([p for words in split for p in range(len(words))], dtype=torch.long)
        tokens = torch.zeros(len(split), length, self.plan.word_width)
        if flat:
            vectors = self._vectors(flat, hidden)
            tokens = tokens.index_put((rows, places), vectors)
        mask = torch.arange(length)[None] < torch.tensor([[max(1, len(w))] for w in split])
        return tokens, mask

    def _vectors(self, words: list[str], hidden: list[bool]) -> Tensor:
        """One row per word: from the table, or the mean over its pieces."""
        pieces: list[int] = []
        starts: list[int] = []
        for word, is_hidden in zip(words, hidden, strict=True):
            starts.append(len(pieces))
            if word in self.known and not is_hidden:
                pieces.append(self.known[word])
            else:
                buckets = piece_buckets(word, self.plan.buckets)
                pieces.extend(len(self.word_list) + bucket for bucket in buckets)
        table = torch.cat([self.words, self.buckets])
        offsets = torch.tensor(starts)
        return functional.embedding_bag(torch.tensor(pieces), table, offsets, mode="mean")

    def texts(self, texts: Sequence[str], unknown: float = 0.0) -> Tensor:
        """Unit features (n, D) of sentences."""
        return self.tokens(*self.embed(texts, unknown))

    def export(self, precision: Any = np.float16) -> dict[str, Any]:
        """Arrays under the names that the NumPy version uses, linear weights (in, out)."""
        arrays: dict[str, Any] = {}
        for name, module in self.named_modules():
            short = name.replace("stages.", "stage").replace("layers.", "layer")
            if isinstance(module, Convolution):
                arrays.update({f"{short}.{key}": value for key, value in module.folded().items()})
            elif isinstance(module, nn.Linear):
                arrays.update({f"{short}.weight": module.weight.T, f"{short}.bias": module.bias})
            elif isinstance(module, nn.LayerNorm):
                arrays.update({f"{short}.weight": module.weight, f"{short}.bias": module.bias})
        arrays.update(words=self.words, buckets=self.buckets, places=self.places)
        return {
            name: np.ascontiguousarray(value.detach().numpy().astype(precision))
            for name, value in arrays.items()
        }


def write_weights(
    twin: Twin, path: Path, training: dict[str, Any], precision: Any = np.float16
) -> None:
    """The file that ``Mini`` reads."""
    arrays = twin.export(precision)
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    plan = twin.plan
    facts = {
        "format": FORMAT,
        "size": plan.size,
        "mean": plan.mean,
        "std": plan.std,
        "width": plan.width,
        "stages": len(plan.channels) - 1,
        "layers": plan.layers,
        "heads": plan.heads,
        "words": twin.word_list,
        "logit_scale": float(twin.log_scale.detach().exp()),
        "sha256": digest.hexdigest(),
        "training": training,
    }
    with replacing(path) as partial:
        partial.write_bytes(to_bytes(arrays, {"mini": json.dumps(facts)}))
