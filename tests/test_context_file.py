"""A learnt context on disk: written, used, shown, and refused where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from coop_tasks import check_task, logits_of, made, without_few
from crg import Task, create
from crg.checks.base import make_stream
from crg.cli.methods import context as show
from crg.encoders.mini import Mini
from crg.methods.coop import save_context
from crg.parts.context import FORMAT, Context, read_context, write_context
from sentences import refused_in_one_sentence

pytest.importorskip("torch")


def learnt_file(path: Path, task: Task, **options: Any) -> Path:
    """A context learnt from the task's images."""
    save_context(create("coop", task, epochs=5, **options), path)
    return path


@pytest.mark.parametrize("per_class", [False, True])
def test_a_context_from_a_file_needs_no_images(tmp_path: Path, per_class: bool) -> None:
    """It answers as the adapter that learnt it, to the last bit."""
    task = check_task()
    file, stream = tmp_path / "learnt", make_stream(task, 8)
    adapter = create("coop", task, epochs=5, per_class=per_class, save_context=str(file))
    before = logits_of(adapter, stream)
    again = made(without_few(task), context_file=str(file))
    np.testing.assert_array_equal(before, logits_of(again, stream))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Vectors, model, classes and words come back as they were."""
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    write_context(tmp_path / "file", Context(vectors, "mini", ("Æ", "b"), "a photo"))
    back = read_context(tmp_path / "file")
    np.testing.assert_array_equal(back.vectors, vectors)
    assert (back.model, back.class_names, back.words) == ("mini", ("Æ", "b"), "a photo")


def test_classes_that_the_file_does_not_know(tmp_path: Path) -> None:
    """They get the mean of the contexts that it has."""
    vectors = np.arange(12.0).reshape(2, 2, 3)
    context = Context(vectors, "mini", ("a", "b"))
    expected = np.stack([vectors[1], vectors.mean(axis=0)])
    np.testing.assert_array_equal(context.for_classes(["b", "new"]), expected)


@pytest.mark.parametrize("place", [20, -3])
def test_damage_is_reported(tmp_path: Path, place: int) -> None:
    """A byte changed in the header or in the vectors is noticed."""
    file = learnt_file(tmp_path / "file", check_task())
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1
    file.write_bytes(raw)
    with refused_in_one_sentence(str(file)):
        read_context(file)


def test_truncated_and_foreign_files_are_reported(tmp_path: Path) -> None:
    """Half a file, a file of something else, a folder and nothing at all are refused."""
    file = learnt_file(tmp_path / "file", check_task())
    file.write_bytes(file.read_bytes()[:-8])
    with refused_in_one_sentence("damaged"):
        read_context(file)
    save_file({"context": np.zeros((2, 2))}, tmp_path / "other")
    with refused_in_one_sentence("not a learnt context"):
        read_context(tmp_path / "other")
    with refused_in_one_sentence("is a folder"):
        read_context(tmp_path)
    with refused_in_one_sentence("cannot be read"):
        read_context(tmp_path / "nothing")


@pytest.mark.parametrize("change", [{"version": 2}, {"model": "other"}, {"class_names": ["a"]}])
def test_edited_headers_are_reported(tmp_path: Path, change: dict[str, Any]) -> None:
    """A header that was edited does not fit the checksum or the version."""
    facts = {"format": FORMAT, "version": 1, "model": "mini", "class_names": [], "words": ""}
    header = {**facts, "sha256": "0" * 64, **change}
    save_file({"context": np.zeros((2, 2))}, tmp_path / "file", {"crg": json.dumps(header)})
    with refused_in_one_sentence(str(tmp_path / "file")):
        read_context(tmp_path / "file")


@pytest.mark.parametrize(
    ("vectors", "names"),
    [
        (np.zeros((2, 2)), ("a", "b")),
        (np.zeros((2, 2, 2)), ()),
        (np.zeros((2, 2, 2)), ("a",)),
        (np.zeros((0, 2)), ()),
        (np.zeros((2, 2), np.int64), ()),
        (np.full((2, 2), np.nan), ()),
    ],
)
def test_vectors_that_make_no_sense(vectors: Any, names: tuple[str, ...]) -> None:
    """Shapes that do not fit the classes, no numbers, and NaN make no context."""
    with pytest.raises(ValueError, match=r"vectors|names"):
        Context(vectors, "mini", names)


def test_context_of_another_model_is_refused(tmp_path: Path) -> None:
    """A context belongs to the text encoder that it was learnt with."""
    write_context(tmp_path / "file", Context(np.zeros((2, 6)), "mini"))
    with refused_in_one_sentence("mini", "word-hashes"):
        create("coop", check_task(), context_file=str(tmp_path / "file"))


def test_places_that_cannot_be_written_are_told_at_once(tmp_path: Path) -> None:
    """A folder that is not there is refused before training; other methods have no context."""
    with refused_in_one_sentence("folder does not exist"):
        create("coop", check_task(), save_context=str(tmp_path / "no" / "file"))
    with refused_in_one_sentence("coop"):
        save_context(create("zero_shot", check_task()), tmp_path / "file")


def test_command_shows_nearest_words(tmp_path: Path) -> None:
    """A context that is made of words is shown as these words."""
    vectors = Mini().promptable().context_of("red star").numpy()
    write_context(tmp_path / "file", Context(vectors, "mini", words="red star"))
    shown = CliRunner().invoke(show, [str(tmp_path / "file"), "--words", "1"])
    assert shown.exit_code == 0, shown.output
    assert "2 vectors of width 128, shared, for mini" in shown.output
    assert "red" in shown.output.splitlines()[4] and "star" in shown.output.splitlines()[5]


def test_command_shows_each_class_as_json(tmp_path: Path) -> None:
    """Contexts per class are listed class by class."""
    vectors = Mini().promptable().context_of("red star").numpy()
    per_class = np.stack([vectors, vectors[::-1]])
    write_context(tmp_path / "file", Context(per_class, "mini", ("x", "y")))
    shown = CliRunner().invoke(show, [str(tmp_path / "file"), "--words", "1", "--json"])
    facts = json.loads(shown.output)
    assert facts["shape"] == [2, 2, 128] and facts["started_from"] is None
    words = [(row["class"], row["vector"], *row["nearest_words"]) for row in facts["vectors"]]
    assert words == [("x", 1, "red"), ("x", 2, "star"), ("y", 1, "star"), ("y", 2, "red")]


def test_command_refuses_another_width(tmp_path: Path) -> None:
    """A context of a width that the model does not have is refused, not shown."""
    write_context(tmp_path / "file", Context(np.zeros((2, 6)), "mini"))
    outcome = CliRunner().invoke(show, [str(tmp_path / "file")])
    assert "width 6" in str(outcome.exception)
