"""Encoding jobs: the same bytes however often they are stopped, and nothing left out silently."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crg.encoding import EncodingProgress, encode
from crg.features.files import read_features
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, StoppedAfter, contents, dots, run, small_blocks
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture


pytestmark = pytest.mark.usefixtures("small_blocks")


def test_the_summary_counts_images(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("how", ["flip", "cut", "remove", "empty"])
def test_damage_to_an_unfinished_store_costs_only_time(tmp_path: Path, how: str) -> None:
    """A block whose file was damaged is encoded again, and no other."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(17))
    _damage(tmp_path / "s" / "blocks" / "000001.npz", how)
    assert run(dots(20), tmp_path / "s").n_reused == 8
    run(dots(20), tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_progress_begins_with_what_is_kept(tmp_path: Path) -> None:
    """Progress never goes back, and counts earlier work apart."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(9))
    seen: list[EncodingProgress] = []
    run(dots(20), tmp_path / "s", on_progress=seen.append)
    assert seen[0] == EncodingProgress(8, 8, 20) and seen[-1] == EncodingProgress(8, 20, 20)
    assert [at.done for at in seen] == sorted(at.done for at in seen)


def test_a_block_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a file of a block is whole, because it was synced before its rename."""
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync"))
    rename = os.replace

    def renamed(*names: Path) -> None:
        done.append("rename")
        rename(*names)

    monkeypatch.setattr(os, "replace", renamed)
    run(dots(8), tmp_path / "s")
    assert done == ["fsync", "rename", "fsync"] * 5  # header, block, images, text, header


def _damage(path: Path, how: str) -> None:
    content, middle = path.read_bytes(), path.stat().st_size // 3
    changed = {
        "cut": content[:middle],
        "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "empty": b"",
    }
    path.unlink()
    if how in changed:
        path.write_bytes(changed[how])
