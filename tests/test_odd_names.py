"""Odd names and encodings: a sentence, not a traceback, and nothing a terminal would obey."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from crg.images import reading
from crg.predict.files import list_images
from crg.results import ledger
from crg.types import limit
from sentences import refused_in_one_sentence


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "null\0byte.png"])
def test_names_that_no_file_system_has_are_refused(name: str) -> None:
    """A name that is too long, or has a null byte: an image, or no list of images."""
    with refused_in_one_sentence("cannot be read"):
        reading.read_image(*list_images([name]))
    with refused_in_one_sentence("cannot be read"):
        list_images([name.removesuffix(".png")])


def test_limits_are_settable_and_refuse_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beyond a limit is one refused image, however sparse it is; variables move limits."""
    sparse = tmp_path / "huge.png"
    with sparse.open("wb") as file:
        file.truncate(6_000_000_000)
    with refused_in_one_sentence("CRG_MAX_BYTES"):
        reading.read_image(sparse)
    monkeypatch.setenv("CRG_MAX_PIXELS", "1000")
    assert limit("CRG_MAX_PIXELS", 5) == 1000 and limit("CRG_MAX_OTHER", 5) == 5
    monkeypatch.setenv("CRG_MAX_PIXELS", "many")
    with refused_in_one_sentence("CRG_MAX_PIXELS"):
        limit("CRG_MAX_PIXELS", 5)


def test_results_that_grow_beyond_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small compressed file does not become gigabytes in memory."""
    monkeypatch.setattr(ledger, "MAX_BYTES", 100_000)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * 1_000_000))
    with refused_in_one_sentence("CRG_MAX_RESULTS"):
        ledger.read(tmp_path / "bomb.jsonl.gz")
