"""The cache of text features: what it saves, and that it never stops the work."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from crg import prompts as caching
from crg.prompts import encode_classes
from letter_counts import LetterCounts

NAMES = ["sea_lion", "Red Fox"]
TEMPLATES = ["a photo of a {}.", "art of the {}."]


def test_the_second_time_comes_from_the_cache(tmp_path: Path) -> None:
    """The same prompts and weights are not encoded again; anything else is."""
    encoder, cold = LetterCounts(), encode_classes(LetterCounts(), NAMES, TEMPLATES, cache=tmp_path)
    warm = encode_classes(encoder, NAMES, TEMPLATES, cache=tmp_path)
    np.testing.assert_array_equal(cold, warm)
    assert encoder.calls == []
    warm[:] = 0  # what was handed out may be written to
    encode_classes(encoder, NAMES, TEMPLATES[:1], cache=tmp_path)
    encode_classes(encoder, NAMES[::-1], TEMPLATES, cache=tmp_path)
    encode_classes(encoder, ["sea_lion a", "photo"], TEMPLATES, cache=tmp_path)
    assert len(encoder.calls) == 3
    other = LetterCounts("two")
    encode_classes(other, NAMES, TEMPLATES, cache=tmp_path)
    assert len(other.calls) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "folder"])
def test_a_damaged_cache_is_computed_again(damage: str, tmp_path: Path) -> None:
    """Whatever happened to the file, the features are right, and kept again where possible."""
    right = encode_classes(LetterCounts(), NAMES, TEMPLATES, cache=tmp_path)
    (file,) = (tmp_path / "text").iterdir()
    content = file.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    file.write_bytes({"cut": content[:-4], "flip": flipped}.get(damage, b""))
    if damage == "folder":
        file.unlink()
        file.mkdir()
    encoder = LetterCounts()
    features = encode_classes(encoder, NAMES, TEMPLATES, cache=tmp_path)
    np.testing.assert_array_equal(features, right)
    assert len(encoder.calls) == 1


def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """A file where the folder should be means no cache, not an error."""
    (tmp_path / "taken").write_text("not a folder")
    features = encode_classes(LetterCounts(), NAMES, TEMPLATES, cache=tmp_path / "taken")
    assert features.shape == (2, 26)


def test_the_cache_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its room the files that were not used for longest go first."""
    size = 32 + 2 * 26 * 4
    monkeypatch.setattr(caching, "ROOM", 3 * size)
    kept = caching.TextCache(tmp_path)
    features = np.ones((2, 26), np.float32)
    for number, key in enumerate(["old", "used", "third"]):
        kept.write(key, features)
        path = tmp_path / "text" / f"{key}.features"
        os.utime(path, (number, number))
    assert kept.read("old", (2, 26)) is not None  # and so it is not the oldest any more
    kept.write("new", features)
    assert {path.stem for path in (tmp_path / "text").iterdir()} == {"old", "third", "new"}


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CRG_CACHE comes first, then the platform's variable, then the home folder."""
    for variable in ("CRG_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    home = caching.default_folder()
    assert home is not None and home.name == "crg" and Path.home() in home.parents
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.default_folder() == tmp_path / "crg"
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "mine"))
    assert caching.default_folder() == tmp_path / "mine"
    encode_classes(LetterCounts(), NAMES, TEMPLATES)
    assert len(list((tmp_path / "mine/text").iterdir())) == 1
