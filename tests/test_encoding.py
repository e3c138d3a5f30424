"""Encoding jobs: the same bytes however often they are stopped, and nothing left out silently."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crg.encoding import EncodingProgress, encode
from crg.features.files import read_features
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, StoppedAfter, contents, dots, run, small_blocks
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture


pytestmark = pytest.mark.usefixtures("small_blocks")


def test_the_summary_tells_what_is_there(tmp_path: Path) -> None:
    """A job says how much it encoded, and a second one that nothing was left to do."""
    first = run(dots(20), tmp_path / "s")
    assert (first.n_images, first.n_reused, first.n_views, first.width) == (20, 0, 3, 8)
    encoder = HashEncoder()
    again = run(dots(20), tmp_path / "s", encoder)
    assert (again.n_reused, encoder.encoded, again.sha256) == (20, 0, first.sha256)


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 3}, {"batch": 1}, {"batch": 50}])
def test_workers_and_batches_do_not_change_the_bytes(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """However the work is cut, the same files come out of an encoder that is exact."""
    run(dots(20), tmp_path / "a")
    run(dots(20), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("after", [0, 5, 8, 13, 19])
def test_a_stopped_job_continues_where_it_was(tmp_path: Path, after: int) -> None:
    """Whole blocks are not encoded again, and the end is as if nothing had happened."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(after), batch=3)
    assert not (tmp_path / "s" / "lock").exists()
    encoder = HashEncoder()
    assert run(dots(20), tmp_path / "s", encoder).n_reused == after // 8 * 8
    assert encoder.encoded == 3 * (20 - after // 8 * 8)
    run(dots(20), tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_an_unfinished_store_is_not_read(tmp_path: Path) -> None:
    """Half a store is refused with the remedy."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(9))
    with refused_in_one_sentence("not finished", "run the same crg encode again"):
        read_features(tmp_path / "s")


def test_an_unfinished_store_of_something_else_is_refused(tmp_path: Path) -> None:
    """Going on with another seed is refused just as for a finished store."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(9))
    with refused_in_one_sentence("seed is 0 in the store but 4 was asked for"):
        encode(dots(20), HashEncoder(), Recipe(3, seed=4), tmp_path / "s")


@pytest.mark.parametrize("name", ["image_features.partial", "journal.jsonl"])
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_damage_to_an_unfinished_store_costs_only_time(tmp_path: Path, name: str, how: str) -> None:
    """Blocks whose numbers or journal lines were spoilt are encoded again."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(17))
    _spoil(tmp_path / "s" / name, how)
    encoder = HashEncoder()
    run(dots(20), tmp_path / "s", encoder)
    assert encoder.encoded > 3 * 4, "the damage was not noticed"
    run(dots(20), tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_progress_begins_with_what_is_kept(tmp_path: Path) -> None:
    """Progress never goes back, and tells apart what was done before."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(9))
    seen: list[EncodingProgress] = []
    run(dots(20), tmp_path / "s", on_progress=seen.append)
    assert seen[0] == EncodingProgress(8, 8, 20) and seen[-1] == EncodingProgress(8, 20, 20)
    assert [at.done for at in seen] == sorted(at.done for at in seen)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the names of files")
def test_numbers_are_on_disk_before_the_journal_tells_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure finds no line in the journal without the numbers that it stands for."""
    done: list[str] = []
    for name in ("write", "fsync"):
        monkeypatch.setattr(os, name, _recorded(name, getattr(os, name), done))
    run(dots(8), tmp_path / "s")
    expected = [f"{what} {which}" for which in ("image", "journ") for what in ("write", "fsync")]
    assert done[2:6] == expected  # the first two are for store.json and its folder


def _recorded(name: str, call: Callable[..., Any], done: list[str]) -> Callable[..., Any]:
    def told(handle: int, *data: Any) -> Any:
        done.append(f"{name} {Path(os.readlink(f'/proc/self/fd/{handle}')).name[:5]}")
        return call(handle, *data)

    return told


def _spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "remove":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        place = len(content) // 3
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
