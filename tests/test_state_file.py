"""Saved states: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as to_bytes
from safetensors.numpy import save_file

import crg
from attacks.states import same_state, signed
from crg import state_file
from crg.checks.base import make_stream, make_task
from sentences import check_refused


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
    assert same_state(loaded, adapter) and loaded.cache.keys() == adapter.cache.keys()
    (saved.parent / "plain").touch()  # the file is as readable as any other new file
    assert saved.stat().st_mode == (saved.parent / "plain").stat().st_mode


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
        check_refused(path.name, crg.load, path)
    stranger = "is not a saved crg state"
    check_refused(f"model.safetensors {stranger}", crg.load, tmp_path / "model.safetensors")
    check_refused(f"other.safetensors {stranger}", crg.load, tmp_path / "other.safetensors")
    check_refused("No such file", crg.load, tmp_path / "nothing")
    check_refused("is a folder", crg.load, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": None}, "'method'"),
        ({"method": "no_such_method"}, "no_such_method"),
        ({"options": {"no_such_option": 1}}, "no_such_option"),
        ({"class_names": ["only", "two"]}, "2 class names"),
        ({"class_names": [1, 2, 3]}, "'class_names'"),
        *(({"logit_scale": odd}, "'logit_scale'") for odd in (None, "100")),
        *(({"n_steps": odd}, "'n_steps'") for odd in (None, "many", True, -1, 2**63)),
        *(({name: None}, f"'{name}'") for name in ("options", "plain", "about")),
        ({"plain": {}}, "does not fit this method"),
        *(({"version": odd}, "reads version 2") for odd in (99, "a\nb", "\x1b[2J" * 99)),
    ],
    ids=repr,
)
def test_edited_headers_are_refused(saved: Path, change: dict[str, Any], words: str) -> None:
    """A header whose parts are missing or do not fit is refused in one sentence."""
    header, tensors = state_file._contents(saved)
    del header["sha256"]
    saved.write_bytes(signed(header | change, tensors))
    check_refused(words, crg.load, saved)


def test_a_damaged_state_is_noticed(saved: Path) -> None:
    """A flipped bit or a checksum that was taken out is noticed where the file reads well."""
    damaged = bytearray(saved.read_bytes())
    damaged[-400] ^= 0x40
    header, tensors = state_file._contents(saved)
    del header["sha256"]
    for content in (bytes(damaged), to_bytes(tensors, {"crg": json.dumps(header)})):
        saved.write_bytes(content)
        check_refused(("damaged", "checksum"), crg.load, saved)


def test_saving_needs_a_folder(adapter: crg.Adapter, tmp_path: Path) -> None:
    """A state cannot be saved into a folder that is not there, nor onto a folder."""
    check_refused("cannot be written", adapter.save, tmp_path / "no" / "such" / "folder" / "state")
    (tmp_path / "taken").mkdir()
    check_refused("is a folder", adapter.save, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


@pytest.mark.parametrize(
    ("verb", "fault", "words"),
    [
        ("touch", PermissionError(13, "Permission denied"), ("Permission denied", "writable")),
        ("write_bytes", OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_failed_write_leaves_the_old_file(
    adapter: crg.Adapter, saved: Path, monkeypatch: Any, verb: str, fault: OSError, words: Any
) -> None:
    """The error says what is wrong, the old state stays, and nothing else is left."""
    before = saved.read_bytes()
    adapter.step(make_stream(adapter.task, 1)[0])

    def fail(*_: Any, **__: Any) -> Any:  # root may write anywhere, so it is played
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(Path, verb, fail)
        check_refused(words, adapter.save, saved)
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
