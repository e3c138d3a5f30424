"""The text half of the bundled model in torch, for prompts whose words are tuned.

The same weights and the same map as ``mini_net.text_features``, but differentiable: context
vectors stand where the embeddings of the first words would. ``W`` is the width of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crg.encoders.base import library
from crg.encoders.mini import MAX_WORDS, Lexicon, Weights, split_words
from crg.types import InputError

_REMEMBERED = 64  # lists of endings, so that the same classes are not looked up each time


class MiniPrompts:
    """A PromptableTextEncoder; its weights are frozen."""

    def __init__(
        self, name: str, lexicon: Lexicon, weights: Weights, layers: int, heads: int
    ) -> None:
        torch = library("torch", "torch")
        self.name = name
        self.layers, self.heads = layers, heads
        self.weights: dict[str, Any] = {
            key: torch.tensor(weights[key]) for key in weights if _is_of_text(key)
        }
        self._lexicon = lexicon
        self._embedded: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def context_of(self, words: str) -> Any:
        """The embeddings (M, W) of some words."""
        torch = library("torch", "torch")
        rows = [torch.tensor(self._lexicon.vector(word)) for word in split_words(words)]
        return torch.stack(rows) if rows else torch.zeros(0, self._lexicon.words.shape[1])

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Unit features (K, D) of context (M, W) or (K, M, W) followed by each ending.

        As in a sentence, words beyond what the model reads are cut off.
        """
        torch = library("torch", "torch")
        tokens, mask = self._ending_tokens(tuple(endings))
        context = context.to(tokens).expand(len(tokens), *context.shape[-2:])
        _check_room(context.shape[1])
        words = torch.cat([context, tokens], dim=1)[:, :MAX_WORDS]
        seen = torch.cat([mask.new_ones(context.shape[:2]), mask], dim=1)[:, :MAX_WORDS]
        seen[:, 0] = True  # a text without words is one word that is all zeros
        return self._features(words, seen)

    def _ending_tokens(self, endings: tuple[str, ...]) -> tuple[Any, Any]:
        """Embeddings (K, T, W) of the endings and a mask (K, T) of words."""
        if endings not in self._embedded:
            torch = library("torch", "torch")
            tokens, _ = self._lexicon.embed(endings)
            lengths = torch.tensor([[len(split_words(ending))] for ending in endings])
            mask = torch.arange(tokens.shape[1]) < lengths.reshape(-1, 1)
            if len(self._embedded) >= _REMEMBERED:
                self._embedded.clear()
            self._embedded[endings] = torch.tensor(tokens).to(self.weights["places"]), mask
        return self._embedded[endings]

    def _features(self, tokens: Any, mask: Any) -> Any:
        functional = library("torch", "torch").nn.functional
        x = tokens + self.weights["places"][: tokens.shape[1]]
        for layer in range(self.layers):
            x = self._transformed(x, mask, f"layer{layer}")
        share = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
        pooled = (share.to(x).unsqueeze(1) @ x).squeeze(1)
        return functional.normalize(
            self._linear(self._normed(pooled, "text_norm"), "text_head"), dim=1
        )

    def _transformed(self, x: Any, mask: Any, name: str) -> Any:
        """One layer of the transformer, (n, T, W) to the same."""
        functional = library("torch", "torch").nn.functional
        x = x + self._attention(self._normed(x, f"{name}.norm1"), mask, name)
        hidden = self._linear(self._normed(x, f"{name}.norm2"), f"{name}.widen")
        return x + self._linear(functional.gelu(hidden, approximate="tanh"), f"{name}.narrow")

    def _attention(self, x: Any, mask: Any, name: str) -> Any:
        attend = library("torch", "torch").nn.functional.scaled_dot_product_attention
        n, t, w = x.shape
        mixed = self._linear(x, f"{name}.qkv").reshape(n, t, 3, self.heads, w // self.heads)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)  # each (n, heads, T, W / heads)
        joined = attend(q, k, v, attn_mask=mask[:, None, None, :])
        return self._linear(joined.transpose(1, 2).reshape(n, t, w), f"{name}.join")

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _normed(self, x: Any, name: str) -> Any:
        functional = library("torch", "torch").nn.functional
        gain, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], gain, shift)


def _is_of_text(key: str) -> bool:
    return key.startswith(("places", "layer", "text_"))


def _check_room(n_vectors: int) -> None:
    if n_vectors >= MAX_WORDS:
        raise InputError(
            f"A context of {n_vectors} vectors leaves no room for a class name: "
            f"mini reads {MAX_WORDS} words, so give it at most {MAX_WORDS - 1} vectors."
        )
