"""The context that coop learns: its start, the schedule, the loss and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from crg.checks.base import furnished, make_task
from crg.encoders.mini import Mini
from crg.parts.context import (
    TrainingPlan,
    batches,
    cross_entropy,
    epochs_for,
    learn_context,
    learning_rates,
    starting_context,
)
from crg.parts.prompting import prompt_features
from crg.resources import TEXT_ENCODER

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
    learnt, _ = learn_context(encode, start, images, labels, 20.0, plan)
    np.testing.assert_allclose(learnt, context, rtol=1e-10)


def test_loss_falls() -> None:
    """On mini's text encoder the loss of one image per class falls epoch by epoch."""
    encoder = Mini().promptable()
    encode = partial(prompt_features, encoder, endings=NAMES)
    targets = encoder.encode(encoder.context_of("itap of a large"), NAMES).detach()
    start = torch.tensor(starting_context(encoder, (), "", 16, 0))
    plan = TrainingPlan(epochs=12, lr=0.05)
    _, losses = learn_context(encode, start, targets, [0, 1, 2], 19.0, plan)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]


def test_training_depends_on_its_seed_alone() -> None:
    """Equal seeds give equal bits, also without gradients switched on around; others do not."""
    encode, start, images, labels = problem(40)

    def trained(seed: int) -> Any:
        plan = TrainingPlan(epochs=3, lr=0.05, batch=8, seed=seed)
        return learn_context(encode, start, images, labels, 20.0, plan)[0]

    first = trained(0)
    with torch.no_grad():
        assert torch.equal(first, trained(0))
    assert not torch.equal(first, trained(1))


def test_overflow_ends_training() -> None:
    """A gradient that is not finite leaves the last finite context."""
    encode, start, images, labels = problem()
    plan = TrainingPlan(epochs=3)
    kept, losses = learn_context(
        lambda context: encode(context) * torch.inf, start, images, labels, 20.0, plan
    )
    assert torch.equal(kept, start) and losses == []


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
