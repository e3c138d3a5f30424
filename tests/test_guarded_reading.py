"""Files from strangers: whatever they hold is refused in one sentence or read as it is."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save as to_safetensors

from crg import state_file
from crg.bench.design import read_design
from crg.datasets.readers import read_split_file
from crg.features import formats, store
from crg.features.files import read_features
from crg.images import reading
from crg.prompts import read_descriptions
from crg.results import ledger
from crg.types import DEEPEST, limit, parsed_json
from made_files import png, raw_values
from sentences import check_refused


def nested(levels: int) -> str:
    """A JSON list in a list in a list."""
    return "[" * levels + "]" * levels


def test_json_is_read_to_a_depth_and_no_further() -> None:
    """Fifty levels are read, one more and a hundred thousand more are refused alike."""
    assert parsed_json(nested(DEEPEST)) == json.loads(nested(DEEPEST))
    objects = '{"a":' * 900 + "1" + "}" * 900
    for text in (nested(DEEPEST + 1), nested(900), nested(100_000), objects):
        with pytest.raises(ValueError, match="nested"):
            parsed_json(text)


def _tensors(path: Path, **texts: str) -> None:
    path.write_bytes(to_safetensors({"context": np.zeros((1, 1), np.float32)}, texts))


def _store(path: Path, text: str) -> None:
    path.mkdir()
    (path / store.HEADER).write_text(text)


DEEP_FILES: dict[str, tuple[Callable[[Path, str], Any], Callable[[Path], Any]]] = {
    "state": (lambda path, text: _tensors(path, crg=text), state_file.read),
    "deep.safetensors": (lambda path, text: _tensors(path, class_names=text), read_features),
    "store": (_store, read_features),
    "split": (Path.write_text, read_split_file),
    "descriptions": (Path.write_text, read_descriptions),
    "design.toml": (lambda path, text: path.write_text(f"name = {text}"), read_design),
}


@pytest.mark.parametrize("levels", [900, 100_000])
def test_deep_nesting_is_refused_wherever_it_is_read(tmp_path: Path, levels: int) -> None:
    """No file of JSON or TOML ends a command by its depth; a line of results is left out."""
    for name, (write, read) in DEEP_FILES.items():
        write(tmp_path / name, nested(levels))
        check_refused(name, read, tmp_path / name)
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"schema": 1, "key": "k", "kind": "x", "options": {nested(900)}}}\n')
    known = ledger.read(path)
    assert not known.entries and list(known.left_out) == [1]


def test_a_compressed_feature_file_does_not_grow_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed numbers count by what they become; numbers as they are count by the disk."""
    monkeypatch.setattr(formats, "MAX_BYTES", 100_000)
    arrays = raw_values(9, 2, 4000) | {"image_features": np.ones((9, 4000), np.float32)}
    np.savez_compressed(tmp_path / "bomb.npz", **arrays)
    np.savez(tmp_path / "large.npz", **arrays)
    assert len(read_features(tmp_path / "large.npz")) == 9
    check_refused(("bomb.npz", "CRG_MAX_FEATURES"), read_features, tmp_path / "bomb.npz")


def test_decoders_share_one_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that decode wait for each other, and what can never fit is one refused image."""
    clear = Image.new("RGBA", (100, 100))  # 25 bytes for each pixel
    monkeypatch.setattr(reading, "_memory", reading._Memory(2 * 25 * 100 * 100))
    at_once: list[int] = []
    inside = threading.Semaphore(8)
    convert = reading._as_rgb

    def counting(image: Image.Image, name: str) -> Image.Image:
        with inside:
            at_once.append(8 - inside._value)
            time.sleep(0.01)  # so that the others come meanwhile
            return convert(image, name)

    monkeypatch.setattr(reading, "_as_rgb", counting)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(reading.read_image, [clear] * 16))) == 16
    assert max(at_once) == 2
    check_refused("CRG_MAX_MEMORY", reading.read_image, Image.new("RGBA", (300, 300)))
    assert reading.read_image(clear).size == (100, 100)


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_what_hides_in_a_png_does_not_grow_without_bound(kind: bytes) -> None:
    """A text or a profile that decompresses to many times its size is one refused image."""
    bomb = kind, b"k\0\0" + zlib.compress(b"a" * 5_000_000)
    check_refused("too large", reading.read_image, png(1, 1, 8, 2, lines=bytes(4), more=[bomb]))


def test_limits_are_settable_and_refuse_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beyond a limit is one refused image, however sparse it is; variables move limits."""
    sparse = tmp_path / "huge.png"
    with sparse.open("wb") as file:
        file.truncate(6_000_000_000)
    check_refused("CRG_MAX_BYTES", reading.read_image, sparse)
    monkeypatch.setenv("CRG_MAX_PIXELS", "1000")
    assert limit("CRG_MAX_PIXELS", 5) == 1000 and limit("CRG_MAX_OTHER", 5) == 5
    monkeypatch.setenv("CRG_MAX_PIXELS", "many")
    check_refused("CRG_MAX_PIXELS", limit, "CRG_MAX_PIXELS", 5)


def test_results_that_grow_beyond_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small compressed file does not become gigabytes in memory."""
    monkeypatch.setattr(ledger, "MAX_BYTES", 100_000)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * 1_000_000))
    check_refused("CRG_MAX_RESULTS", ledger.read, tmp_path / "bomb.jsonl.gz")
