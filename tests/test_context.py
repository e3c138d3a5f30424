"""Contexts that coop learns: schedule, loss and gradient, and the file that holds one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from coop_tasks import check_task, logits_of, made, without_few
from crg import Task, create
from crg.checks.base import furnished, make_stream, make_task
from crg.cli.methods import context as show
from crg.encoders.mini import Mini
from crg.methods.coop import save_context
from crg.parts.context import (
    FORMAT,
    Context,
    TrainingPlan,
    batches,
    cross_entropy,
    epochs_for,
    learn_context,
    learning_rates,
    read_context,
    starting_context,
    write_context,
)
from crg.parts.prompting import prompt_features
from crg.resources import TEXT_ENCODER
from sentences import refused_in_one_sentence

torch = pytest.importorskip("torch")

NAMES = ("red star.", "blue ring.", "green heart.")


def problem(n: int = 12) -> tuple[Callable[[Any], Any], Any, Any, list[int]]:
    """Text encoder, start, images (n, 8) and labels."""
    encoder = furnished(make_task(width=8), [TEXT_ENCODER]).resources[TEXT_ENCODER]
    encode = partial(prompt_features, encoder, endings=NAMES)
    rng = np.random.default_rng(3)
    images = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(n, 8))), dim=1)
    start = torch.tensor(rng.normal(size=(4, 6)))
    return encode, start, images, [k % 3 for k in range(n)]


@pytest.mark.parametrize("epochs", [2, 5, 50])
def test_schedule_is_that_of_torch(epochs: int) -> None:
    """One epoch at 1e-5, then torch's cosine annealing over the number of epochs."""
    weight = torch.zeros(1, requires_grad=True)
    sgd = torch.optim.SGD([weight], 0.002)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, epochs)
    expected = [1e-5]
    for _ in range(epochs - 1):
        expected.append(sgd.param_groups[0]["lr"])
        sgd.step()
        cosine.step()
    np.testing.assert_allclose(learning_rates(epochs, 0.002), expected, rtol=1e-9)


def test_schedule_by_hand() -> None:
    """Four epochs: the warm-up, the full rate, and two steps down a cosine of four."""
    half = 0.002 * (1 + math.cos(math.pi / 4)) / 2
    assert learning_rates(4, 0.002) == pytest.approx([1e-5, 0.002, half, 0.001])
    assert [epochs_for(shots) for shots in (1, 2, 4, 8, 16)] == [50, 100, 100, 200, 200]


def test_batches_are_full_and_differ_by_epoch() -> None:
    """Each epoch is a new order without repetition, and a rest is left out unless it is all."""
    first, second = batches(70, TrainingPlan(epochs=2, batch=32))
    assert [len(rows) for rows in first] == [32, 32]
    together = np.concatenate(first)
    assert len(set(together.tolist())) == 64
    assert not np.array_equal(together, np.concatenate(second))
    (only,) = batches(5, TrainingPlan(epochs=1, batch=32))
    assert sorted(only[0].tolist()) == list(range(5))


def test_gradient_agrees_with_finite_differences() -> None:
    """The loss's gradient on the context is what moving each number a little says."""
    encode, start, images, labels = problem()
    answers = torch.tensor(labels)

    def loss(flat: Any) -> Any:
        return cross_entropy(encode(flat.reshape(4, 6)), images, answers, 20.0)

    flat = start.flatten().requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(flat), [flat])
    for place, step in enumerate(1e-6 * torch.eye(24, dtype=torch.float64)):
        with torch.no_grad():
            slope = (loss(flat + step) - loss(flat - step)) / 2e-6
        assert float(slope) == pytest.approx(float(gradient[place]), rel=1e-5, abs=1e-7)


def test_loss_by_hand() -> None:
    """Two orthogonal classes, one image on the first: ln(1 + exp(-s))."""
    eye = torch.eye(2, dtype=torch.float64)
    loss = cross_entropy(eye, eye[:1], torch.tensor([0]), 3.0)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-3.0)), rel=1e-12)


def test_training_is_plain_sgd() -> None:
    """Written out, the steps are v <- 0.9 v + g + wd c; c <- c - lr v."""
    encode, start, images, labels = problem()
    plan = TrainingPlan(epochs=4, lr=0.05)  # all images are one batch
    context, speed = start.clone(), torch.zeros_like(start)
    for lr in learning_rates(4, 0.05):
        leaf = context.clone().requires_grad_(True)
        loss = cross_entropy(encode(leaf), images, torch.tensor(labels), 20.0)
        (gradient,) = torch.autograd.grad(loss, [leaf])
        speed = 0.9 * speed + gradient + 5e-4 * context
        context = context - lr * speed
    learnt = learn_context(encode, start, images, labels, 20.0, plan)
    np.testing.assert_allclose(learnt.context, context, rtol=1e-10)


def test_loss_falls() -> None:
    """On mini's text encoder the loss of one image per class falls epoch by epoch."""
    encoder = Mini().promptable()
    encode = partial(prompt_features, encoder, endings=NAMES)
    targets = encoder.encode(encoder.context_of("itap of a large"), NAMES).detach()
    start = torch.tensor(starting_context(encoder, (), "", 16, 0))
    learnt = learn_context(
        encode, start, targets, [0, 1, 2], 19.0, TrainingPlan(epochs=12, lr=0.05)
    )
    assert list(learnt.losses) == sorted(learnt.losses, reverse=True)
    assert learnt.losses[-1] < 0.9 * learnt.losses[0]


def test_training_depends_on_its_seed_alone() -> None:
    """Equal seeds give equal bits, also without gradients switched on around; others do not."""
    encode, start, images, labels = problem(40)

    def trained(seed: int) -> Any:
        plan = TrainingPlan(epochs=3, lr=0.05, batch=8, seed=seed)
        return learn_context(encode, start, images, labels, 20.0, plan).context

    first = trained(0)
    with torch.no_grad():
        assert torch.equal(first, trained(0))
    assert not torch.equal(first, trained(1))


def test_overflow_ends_training() -> None:
    """A gradient that is not finite leaves the last finite context."""
    encode, start, images, labels = problem()
    spoilt = learn_context(
        lambda context: encode(context) * torch.inf,
        start,
        images,
        labels,
        20.0,
        TrainingPlan(epochs=3),
    )
    assert torch.equal(spoilt.context, start) and spoilt.losses == ()


def test_starts() -> None:
    """Words give their embeddings, chance gives N(0, 0.02) by seed and by the class's name."""
    encoder = Mini().promptable()
    words = starting_context(encoder, (), "a photo of a", 16, 0)
    np.testing.assert_array_equal(words, encoder.context_of("a photo of a"))
    drawn = starting_context(encoder, (), "", 16, 0)
    assert drawn.shape == (16, 128) and 0.019 < drawn.std() < 0.021
    assert not np.array_equal(drawn, starting_context(encoder, (), "", 16, 1))
    both = starting_context(encoder, ("a", "b"), "", 5, 0)
    assert both.shape == (2, 5, 128)
    np.testing.assert_array_equal(both[::-1], starting_context(encoder, ("b", "a"), "", 5, 0))


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
