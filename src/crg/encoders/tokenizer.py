"""CLIP's tokenizer without torch, and the tokenizers of exported models, described in JSON."""

from __future__ import annotations

import html
import re
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta, Struct

from crg.encoders.base import library
from crg.types import InputError

Clean = Literal["lower", "whitespace", "canonicalize"]
_Token = Annotated[int, Meta(ge=0, lt=2**31)]
Tokens = np.ndarray[Any, np.dtype[np.int64]]  # (n, context length)
_END = "</w>"  # closes the last piece of a word
# Endings, runs of letters, single digits, runs of anything else but spaces. U+0345 is a mark whose
# capital is a letter: the original's pattern, which ignores case, matches it nowhere.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}\u0345]+"
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class ClipTokenizer:
    """Sentences to rows of token numbers, with CLIP's byte pairs."""

    def __init__(
        self, merges: Sequence[tuple[str, str]], specials: Sequence[str], clean: str = "lower"
    ) -> None:
        tokenizers = library("tokenizers", "onnx")
        by_bytes = tokenizers.pre_tokenizers.ByteLevel
        letters = sorted(by_bytes.alphabet())  # one for each byte
        words = [*letters, *(letter + _END for letter in letters)]
        words += ["".join(pair) for pair in merges] + list(specials)
        numbers = {word: number for number, word in enumerate(words)}
        pattern = "|".join(["(?i)" + "|".join(map(re.escape, specials)), _WORDS])
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed", invert=True)
        self._split = tokenizers.pre_tokenizers.Sequence(
            [split, by_bytes(add_prefix_space=False, use_regex=False)]
        )
        self._pairs = tokenizers.models.BPE(numbers, list(merges), end_of_word_suffix=_END)
        self._special = {word: numbers[word] for word in specials}
        self._start, self._stop = (numbers[word] for word in specials[:2])
        self._clean = cleaner(clean)

    def __call__(self, texts: Sequence[str], context_length: int) -> Tokens:
        """One row per text, padded with zeros; a long text loses its end but not its last token."""
        rows = np.zeros((len(texts), context_length), np.int64)
        for row, text in zip(rows, texts, strict=True):
            tokens = [self._start, *self._encode(text)][: context_length - 1]
            row[: len(tokens) + 1] = [*tokens, self._stop]
        return rows

    def _encode(self, text: str) -> Iterator[int]:
        for word, _ in self._split.pre_tokenize_str(self._clean(text)):
            if word in self._special:
                yield self._special[word]
            else:
                yield from (token.id for token in self._pairs.tokenize(word))


def cleaner(kind: str) -> Callable[[str], str]:
    """The function that open_clip calls by this name; it tidies a text before it is cut up."""
    tidy: dict[str, Callable[[str], str]] = {
        "lower": lambda text: _spaced(text).lower(),
        "whitespace": _spaced,
        "canonicalize": lambda text: _spaced(_unpunctuated(text).lower()),
    }
    chosen = tidy[kind]
    fix = library("ftfy", "onnx").fix_text
    return lambda text: chosen(html.unescape(html.unescape(fix(text))).strip())


def _unpunctuated(text: str) -> str:
    return text.replace("_", " ").translate(_PUNCTUATION)


def _spaced(text: str) -> str:
    return " ".join(text.split())


Tokenize = Callable[[Sequence[str], int], Tokens]


class ClipWords(Struct, tag="clip", tag_field="kind"):
    """CLIP's tokenizer, whose byte pairs are in ``merges.txt``."""

    clean: Clean
    specials: Annotated[list[str], Meta(min_length=2, max_length=1000)]


class HuggingFaceWords(Struct, tag="huggingface", tag_field="kind"):
    """A tokenizer of Hugging Face, in ``tokenizer.json``."""

    clean: Clean
    pad_id: _Token
    pad_token: str
    stripped: _Token | None = None


Words: TypeAlias = ClipWords | HuggingFaceWords


def write_tokenizer(tokenizer: Any, folder: Path) -> Words:
    """Write what ``read_tokenizer`` needs of an open_clip tokenizer; returns its description."""
    clean = tokenizer.clean_fn.__name__.removeprefix("_clean_")
    if hasattr(tokenizer, "bpe_ranks") and tokenizer.reduction_fn is None:
        merges = "\n".join(" ".join(pair) for pair in tokenizer.bpe_ranks)
        (folder / "merges.txt").write_text(merges, encoding="utf-8")
        specials = [tokenizer.decoder[number] for number in tokenizer.all_special_ids]
        return ClipWords(clean, specials)
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
    return HuggingFaceWords(clean, inner.pad_token_id, inner.pad_token, stripped)


def read_tokenizer(about: Words, folder: Path) -> Tokenize:
    """The tokenizer that ``about`` describes."""
    if isinstance(about, HuggingFaceWords):
        return _hugging_face(about, folder)
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [(left, right) for left, right in (line.split(" ") for line in lines)]
    return ClipTokenizer(merges, about.specials, about.clean)


def _hugging_face(about: HuggingFaceWords, folder: Path) -> Tokenize:
    tokenizers = library("tokenizers", "onnx")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    clean = cleaner(about.clean)

    def tokenize(texts: Sequence[str], context_length: int) -> Tokens:
        inner.enable_truncation(context_length)
        inner.enable_padding(pad_id=about.pad_id, pad_token=about.pad_token, length=context_length)
        rows = [each.ids for each in inner.encode_batch([clean(text) for text in texts])]
        tokens = np.array(rows, np.int64).reshape(len(rows), context_length)
        return np.where(tokens == about.stripped, 0, tokens) if about.stripped else tokens

    return tokenize
