"""The text half of open_clip's models, for prompts whose words are tuned.

Parts are exchanged in a copy that shares all weights. The original is not touched, so that
several threads may use it at once.

The model's own code runs on a sentence of M placeholder words and the ending; only the
embeddings of the placeholders are replaced by the context. Positions, masks, pooling and
projection are therefore those of the model, whatever its text tower is made of.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from crg.encoders.base import library
from crg.types import InputError

_KINDS = ("_modules", "_parameters", "_buffers")  # where torch keeps what a module is made of


def with_part(module: Any, path: str, part: Any) -> Any:
    """The module with ``part``, any callable or tensor, in place of what is at ``path``."""
    first, _, rest = path.partition(".")
    clone = copy.copy(module)
    for kind in _KINDS:
        clone.__dict__[kind] = dict(module.__dict__[kind])
    if rest:
        clone._modules[first] = with_part(module._modules[first], rest, part)
        return clone
    for kind in _KINDS:
        clone.__dict__[kind].pop(first, None)
    clone.__dict__[first] = part
    return clone


def shortened(model: Any, path: str, ids: Any) -> tuple[Any, Any]:
    """The model and token ids (K, L) without the places behind the last one that is read.

    In a causal transformer that reads the end token, what follows it has no influence: class
    names need some ten places of CLIP's 77. Other text towers are left as they are.
    """
    before, _, _ = path.rpartition(".")
    tower = model.get_submodule(before)
    length = _places_read(tower, ids)
    if length >= ids.shape[1]:
        return model, ids
    prefix = f"{before}." if before else ""
    places = tower.positional_embedding[:length]
    model = with_part(model, f"{prefix}positional_embedding", places)
    model = with_part(model, f"{prefix}attn_mask", tower.attn_mask[:length, :length])
    return model, ids[:, :length]


def _places_read(tower: Any, ids: Any) -> int:
    """How many places from the first on have influence on the features."""
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", ""))
    causal = getattr(tower, "attn_mask", None) is not None
    if not causal or getattr(tower, "cls_emb", None) is not None or pool not in ("argmax", "eos"):
        return int(ids.shape[1])
    end = getattr(tower, "text_eos_id", getattr(tower, "eos_id", None))
    found = ids if pool == "argmax" else (ids == end).int()
    return int(found.argmax(dim=-1).max()) + 1


_PLACEHOLDER = "a"  # one token in every vocabulary
_REMEMBERED = 64  # lists of endings, so that the same classes are not tokenised each time


class OpenClipPrompts:
    """A PromptableTextEncoder; its weights are frozen and stay where the model has them."""

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.model = _text_half(model)
        self._path = _embedding_path(name, self.model)
        self._start = _tokens_before_words(tokenizer)
        self._ids: dict[tuple[int, tuple[str, ...]], Any] = {}

    def context_of(self, words: str) -> Any:
        """The embeddings (M, W) of some words, one row per token."""
        torch = library("torch", "openclip")
        table = self._embedding.weight
        ids = torch.tensor(self._tokens(words), dtype=torch.long, device=table.device)
        return table.detach()[ids].clone()

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Unit features (K, D) of context (M, W) or (K, M, W) followed by each ending.

        Endings that are too long are cut as the tokenizer cuts any sentence.
        """
        functional = library("torch", "openclip").nn.functional
        ids = self._sentences(context.shape[-2], tuple(endings))
        rows = context.to(self._embedding.weight).expand(len(ids), *context.shape[-2:])
        model, ids = shortened(self.model, self._path, ids)
        spliced = with_part(model, self._path, self._splice(rows))
        return functional.normalize(spliced.encode_text(ids), dim=-1)

    @property
    def _embedding(self) -> Any:
        return self.model.get_submodule(self._path)

    def _splice(self, rows: Any) -> Callable[[Any], Any]:
        """What takes the place of the table of embeddings: the same, but for the context."""
        torch, table, start = library("torch", "openclip"), self._embedding, self._start

        def embed(ids: Any) -> Any:
            words = table(ids)
            end = start + rows.shape[1]
            return torch.cat([words[:, :start], rows.to(words), words[:, end:]], dim=1)

        return embed

    def _sentences(self, n_vectors: int, endings: tuple[str, ...]) -> Any:
        """Token ids (K, L) of M placeholders and the ending."""
        key = (n_vectors, endings)
        if key not in self._ids:
            placeholders = " ".join([_PLACEHOLDER] * n_vectors)
            ids = self.tokenizer([f"{placeholders} {ending}" for ending in endings])
            self._check(ids, n_vectors)
            if len(self._ids) >= _REMEMBERED:
                self._ids.clear()
            self._ids[key] = ids.to(self._embedding.weight.device)
        return self._ids[key]

    def _check(self, ids: Any, n_vectors: int) -> None:
        most = ids.shape[1] - self._start - 2  # one for a class name and one for the end
        if n_vectors > most:
            raise InputError(
                f"A context of {n_vectors} vectors leaves no room for a class name: "
                f"{self.name} reads {ids.shape[1]} tokens, so give it at most {most} vectors."
            )
        there = ids[:, self._start : self._start + n_vectors]
        if bool((there != self._tokens(_PLACEHOLDER)[0]).any()):
            raise InputError(
                f"The tokenizer of {self.name} does not keep words in their places: "
                "tune prompts in another model."
            )

    def _tokens(self, words: str) -> list[int]:
        """Token ids of words without what marks a beginning and an end."""
        if hasattr(self.tokenizer, "bpe_ranks"):
            return list(self.tokenizer.encode(words))
        clean = self.tokenizer.clean_fn(words)
        return list(self.tokenizer.tokenizer(clean, add_special_tokens=False).input_ids)


def _text_half(model: Any) -> Any:
    """The model without its image tower, which shares the weights of the text tower."""
    half = copy.copy(model)
    half._modules = {name: part for name, part in model._modules.items() if name != "visual"}
    return half.eval().requires_grad_(False)


def _embedding_path(name: str, model: Any) -> str:
    """Where the table of token embeddings is in the model."""
    parts = dict(model.named_modules())
    inner = parts.get("text.transformer")
    ask = getattr(inner, "get_input_embeddings", None)  # of Hugging Face's text towers
    tables = [ask()] if ask else []
    for path, part in parts.items():
        if path in ("token_embedding", "text.token_embedding") or part in tables:
            return str(path)
    raise InputError(
        f"The text encoder of {name} takes no embeddings: "
        "encode with mini or another model of open_clip."
    )


def _tokens_before_words(tokenizer: Any) -> int:
    """How many tokens stand before the first word: what a text and the empty one share."""
    with_word, without = tokenizer([_PLACEHOLDER, ""]).tolist()
    return next(i for i, (a, b) in enumerate(zip(with_word, without, strict=True)) if a != b)
