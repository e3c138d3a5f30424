"""Packing: what a run tells of every image, short enough for a line of the results file.

Bits become hexadecimal text, and class numbers compressed bytes in base64. What is by row of
the file lets runs in different orders pair up image by image.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

NOT_STREAMED = 65_535  # in place of a class number


def packed_bits(bits: Numbers) -> str:
    """One bit each, as hexadecimal text.

    >>> packed_bits(np.array([True, False, False, True]))
    '90'
    """
    return np.packbits(bits).tobytes().hex()


def unpacked_bits(text: str, count: int) -> Numbers:
    """The first ``count`` bits that ``packed_bits`` packed.

    >>> unpacked_bits("90", 4).tolist()
    [True, False, False, True]
    """
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(bool)


def packed_classes(classes: Numbers) -> str:
    """Class numbers, compressed; -1 for a row that did not come."""
    known = np.where(classes < 0, NOT_STREAMED, classes).astype("<u2")
    return base64.b64encode(zlib.compress(known.tobytes(), 9)).decode("ascii")


def correct_rows(metrics_of_run: Mapping[str, Any], n_rows: int) -> Numbers:
    """Which rows of the file were predicted rightly (N,), from the ``correct`` of a run."""
    return unpacked_bits(metrics_of_run["correct"], n_rows)


def scored_rows(metrics_of_run: Mapping[str, Any], n_rows: int) -> Numbers:
    """Which rows of the file came and had a class (N,): all, unless the run tells otherwise."""
    told = metrics_of_run.get("streamed")
    return np.ones(n_rows, dtype=bool) if told is None else unpacked_bits(told, n_rows)


def right_in_order(metrics_of_run: Mapping[str, Any]) -> Numbers:
    """Which answers were right, by place in the stream; images of no class are left out."""
    return unpacked_bits(metrics_of_run["right_in_order"], metrics_of_run["n_scored"])


def predicted_rows(metrics_of_run: Mapping[str, Any]) -> Numbers:
    """The answer for each row of the file (N,), as class numbers; -1 where it did not come."""
    content = zlib.decompress(base64.b64decode(metrics_of_run["predicted"]))
    answers = np.frombuffer(content, dtype="<u2").astype(np.int64)
    return np.where(answers == NOT_STREAMED, -1, answers)
