"""Sentences to numbers for the bundled model: known words, and pieces of unknown ones."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

MAX_WORDS = 24  # of a sentence; what follows is not read
_MAX_CHARACTERS = 4000  # of a text; nothing beyond can be among the first words that count
_MAX_PIECES = 64  # of a word
_WORD = re.compile(r"\w+")

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Lexicon:
    """Word embeddings, with buckets for the pieces of words that it does not know."""

    known: Mapping[str, int]
    words: Numbers  # (number of known words, W)
    buckets: Numbers  # (number of buckets, W)

    def embed(self, texts: Sequence[str]) -> tuple[Numbers, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Token embeddings (n, T, W) and a mask (n, T) that is true where there is a word.

        A text without words becomes one word that is all zeros.
        """
        split = [split_words(text) for text in texts]
        length = max([1, *map(len, split)])
        tokens = np.zeros((len(split), length, self.words.shape[1]), np.float32)
        mask = np.zeros((len(split), length), np.bool_)
        for row, words in enumerate(split):
            mask[row, : max(1, len(words))] = True
            for place, word in enumerate(words):
                tokens[row, place] = self.vector(word)
        return tokens, mask

    def vector(self, word: str) -> Numbers:
        """The embedding of a known word, or the mean over the pieces of an unknown one."""
        if word in self.known:
            known: Numbers = self.words[self.known[word]]
            return known
        rows = piece_buckets(word, len(self.buckets))
        mean: Numbers = self.buckets[rows].mean(axis=0)
        return mean


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
