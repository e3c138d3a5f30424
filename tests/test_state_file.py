"""Saved states: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import crg
from crg import state_file
from crg.checks.base import make_stream, make_task
from sentences import refused_in_one_sentence


@pytest.fixture
def adapter() -> crg.Adapter:
    """An adapter that has seen a few samples."""
    used = crg.create("tda", make_task())
    for views in make_stream(used.task, 20, 8):
        used.step(views)
    return used


@pytest.fixture
def saved(adapter: crg.Adapter, tmp_path: Path) -> Path:
    """Its state file."""
    adapter.save(tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def test_everything_comes_back(adapter: crg.Adapter, saved: Path) -> None:
    """Method, options, classes, scale, step count and cache are as they were."""
    loaded = crg.load(saved)
    assert (loaded.name, loaded.n_steps) == ("tda", 20)
    assert loaded.config == adapter.config
    assert loaded.task.class_names == adapter.task.class_names
    assert loaded.task.logit_scale == adapter.task.logit_scale
    for name, entries in adapter.cache.items():
        again = loaded.cache[name]
        assert [e.sample_id for e in entries] == [e.sample_id for e in again]
        assert all(
            np.array_equal(a.feature, b.feature) for a, b in zip(entries, again, strict=True)
        )


def test_torch_state_comes_back_as_torch(tmp_path: Path) -> None:
    """Tensors come back as tensors, with the same numbers."""
    torch = pytest.importorskip("torch")
    task = make_task()
    tensors = crg.Task(task.class_names, torch.asarray(task.text_features), task.logit_scale)
    crg.create("zero_shot", tensors).save(tmp_path / "state")
    text = crg.load(tmp_path / "state").task.text_features
    assert isinstance(text, torch.Tensor) and torch.equal(text, tensors.text_features)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    """An image, a text and another program's safetensors file are no states."""
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500))
    (tmp_path / "notes.txt").write_text("not a state at all, but long enough to look at")
    save_file({"weights": np.ones(3)}, tmp_path / "model.safetensors")
    save_file({"weights": np.ones(3)}, tmp_path / "other.safetensors", {"crg": "[1]"})
    for path in sorted(tmp_path.iterdir()):
        with refused_in_one_sentence(path.name):
            crg.load(path)
    for name in ("model", "other"):
        with refused_in_one_sentence(f"{name}.safetensors is not a saved crg state"):
            crg.load(tmp_path / f"{name}.safetensors")


def test_other_versions_are_refused(saved: Path) -> None:
    """A state of a version to come is refused, with both versions named."""
    _rewrite_header(saved, version=99)
    with refused_in_one_sentence("99", "version 2"):
        crg.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"method": None},
        {"method": "no_such_method"},
        {"options": {"no_such_option": 1}},
        {"options": None},
        {"class_names": ["only", "two"]},
        {"logit_scale": None},
        {"plain": {}},
        {"plain": None},
        {"n_steps": None},
        {"n_steps": "many"},
        {"n_steps": True},
        {"logit_scale": "100"},
        {"class_names": [1, 2, 3]},
        {"version": "a\nb"},
        {"version": "\x1b[2J" * 99},
    ],
    ids=repr,
)
def test_edited_headers_are_refused(saved: Path, change: dict[str, Any]) -> None:
    """A header whose parts are missing or do not fit is refused in one sentence."""
    _rewrite_header(saved, **change)
    with refused_in_one_sentence():
        crg.load(saved)


def test_tensors_of_another_shape_are_refused(saved: Path) -> None:
    """A state whose arrays do not fit the task is refused in one sentence."""
    header, tensors = _contents(saved)
    cut = np.ascontiguousarray(tensors["state.positive.features"][:, :1])
    tensors["state.positive.features"] = cut
    header.pop("sha256")
    header["sha256"] = state_file._digest(header, tensors)  # as of a file that a program made
    save_file(tensors, saved, {"crg": json.dumps(header)})
    with refused_in_one_sentence("features"):
        crg.load(saved)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    """A missing file and a folder cannot be read."""
    for path in (tmp_path / "nothing.safetensors", tmp_path):
        with refused_in_one_sentence(path.name):
            crg.load(path)


def test_saving_needs_a_folder(adapter: crg.Adapter, tmp_path: Path) -> None:
    """A state cannot be saved into a folder that is not there, nor onto a folder."""
    with refused_in_one_sentence("cannot be written"):
        adapter.save(tmp_path / "no" / "such" / "folder" / "state")
    (tmp_path / "taken").mkdir()
    with refused_in_one_sentence("is a folder"):
        adapter.save(tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


def test_unwritable_folders_are_refused(
    adapter: crg.Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without write permission is refused in one sentence."""
    if os.geteuid() == 0:  # root may write anywhere, so the system's answer is played

        def denied(*_: Any, **__: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "touch", denied)
    tmp_path.chmod(stat.S_IREAD | stat.S_IEXEC)
    try:
        with refused_in_one_sentence("Permission denied", "writable"):
            adapter.save(tmp_path / "state")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_full_disk_leaves_the_old_file(
    adapter: crg.Adapter, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk is full the error says so, the old state stays and nothing else is left."""
    before = saved.read_bytes()
    adapter.step(make_stream(adapter.task, 1)[0])

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with refused_in_one_sentence("No space left on device"):
            adapter.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_death_before_the_rename_leaves_the_old_file(
    adapter: crg.Adapter, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies between write and rename leaves the old state readable."""
    adapter.step(make_stream(adapter.task, 1)[0])
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Path, "replace", lambda *_: os._exit(9))
        adapter.save(saved)
        os._exit(0)  # not reached
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    assert crg.load(saved).n_steps == 20
    adapter.save(saved)
    assert crg.load(saved).n_steps == 21


def test_saved_file_has_the_usual_permissions(saved: Path) -> None:
    """The state file is as readable as any other new file of this user."""
    plain = saved.parent / "plain"
    plain.touch()
    assert saved.stat().st_mode == plain.stat().st_mode


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return state_file._contents(path)


def _rewrite_header(path: Path, **changes: Any) -> None:
    header, tensors = _contents(path)
    header = {key: value for key, value in (header | changes).items() if key != "sha256"}
    header["sha256"] = state_file._digest(header, tensors)  # so that nothing else is wrong
    save_file(tensors, path, {"crg": json.dumps(header)})
