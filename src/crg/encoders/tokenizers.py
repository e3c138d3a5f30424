"""Tokenizers of an exported model: described in JSON, read without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crg.encoders.bpe import ClipTokenizer, Tokens, cleaner
from crg.encoders.libraries import library
from crg.types import InputError

Tokenize = Callable[[Sequence[str], int], Tokens]


def write_tokenizer(tokenizer: Any, folder: Path) -> dict[str, Any]:
    """Write what ``read_tokenizer`` needs of an open_clip tokenizer; returns its description."""
    clean = tokenizer.clean_fn.__name__.removeprefix("_clean_")
    if hasattr(tokenizer, "bpe_ranks") and tokenizer.reduction_fn is None:
        merges = "\n".join(" ".join(pair) for pair in tokenizer.bpe_ranks)
        (folder / "merges.txt").write_text(merges, encoding="utf-8")
        specials = [tokenizer.decoder[number] for number in tokenizer.all_special_ids]
        return {"kind": "clip", "clean": clean, "specials": specials}
    plain = type(tokenizer).__name__ == "HFTokenizer" and not tokenizer.tokenizer_mode
    fast = getattr(tokenizer.tokenizer, "backend_tokenizer", None) if plain else None
    if fast is None:
        raise InputError(
            f"A model with the tokenizer {type(tokenizer).__name__} cannot be exported: "
            "use it through open_clip."
        )
    fast.save(str(folder / "tokenizer.json"))
    inner = tokenizer.tokenizer
    stripped = inner.sep_token_id if tokenizer.strip_sep_token else None
    padding = {"pad_id": inner.pad_token_id, "pad_token": inner.pad_token}
    return {"kind": "huggingface", "clean": clean, **padding, "stripped": stripped}


def read_tokenizer(about: Mapping[str, Any], folder: Path) -> Tokenize:
    """The tokenizer that ``about`` describes."""
    if about["kind"] == "clip":
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        merges = [(left, right) for left, right in (line.split(" ") for line in lines)]
        return ClipTokenizer(merges, about["specials"], about["clean"])
    if about["kind"] == "huggingface":
        return _hugging_face(about, folder)
    raise ValueError(f"the tokenizer {about['kind']!r} is not known")


def _hugging_face(about: Mapping[str, Any], folder: Path) -> Tokenize:
    tokenizers = library("tokenizers", "huggingface")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    clean = cleaner(about["clean"])

    def tokenize(texts: Sequence[str], context_length: int) -> Tokens:
        inner.enable_truncation(context_length)
        inner.enable_padding(
            pad_id=about["pad_id"], pad_token=about["pad_token"], length=context_length
        )
        rows = [each.ids for each in inner.encode_batch([clean(text) for text in texts])]
        tokens = np.array(rows, np.int64).reshape(len(rows), context_length)
        return np.where(tokens == about["stripped"], 0, tokens) if about["stripped"] else tokens

    return tokenize
