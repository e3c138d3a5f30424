"""CoOp: how a context is trained, what it learns, and what becomes of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg.checks.base import another_direction, furnished, make_stream, make_task
from crg.encoders.mini import Mini
from crg.methods import coop
from crg.parts import context
from crg.parts.context import TrainingPlan, batches, learn_context, learning_rates, starting_context
from crg.parts.prompting import prompt_features
from crg.resources import FEW, TEXT_ENCODER, FewShot
from sentences import check_refused

torch = pytest.importorskip("torch")
NAMES = ("red star.", "blue ring.", "green heart.")


def check_task(**options: Any) -> crg.Task:
    """A small task of the checks, with what coop needs."""
    return furnished(make_task(**options), coop.CoOp.needs)


def logits_of(adapter: crg.Adapter, stream: Any) -> Any:
    """All logits (N, K)."""
    return np.stack([prediction.logits for prediction in adapter.step_many(stream)])


def test_logits_are_those_of_the_learnt_prompt() -> None:
    """Predictions are s f . t with t encoded from the learnt vectors and the class names.

    So are those of a class that comes later, which changes no other logit.
    """
    task = check_task()
    adapter, stream = crg.create("coop", task, epochs=5), make_stream(task, 10)
    before = logits_of(adapter, stream)
    adapter.add_class("newcomer", another_direction(task))
    logits = logits_of(adapter, stream)
    np.testing.assert_allclose(logits[:, :-1], before, rtol=1e-12)
    method: Any = adapter._method
    endings = [f"{name}." for name in adapter.task.class_names]
    text = task.resources[TEXT_ENCODER].encode(torch.tensor(method.context), endings)
    np.testing.assert_allclose(logits, 20.0 * stream[:, 0] @ text.numpy().T, rtol=1e-12)


def test_labelled_images_become_likelier() -> None:
    """Training raises the probability that labelled images get for their own classes."""
    task = check_task(logit_scale=2.0)
    few: FewShot = task.resources[FEW]
    likely = []
    for epochs in (1, 60):
        answers = crg.create("coop", task, epochs=epochs, lr=1.0).step_many(few.features)
        likely.append(np.mean([a.probs[k] for a, k in zip(answers, few.labels, strict=True)]))
    assert likely[1] > likely[0] + 0.001


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plan of each training from now on."""
    context._learnt.clear()
    done: list[Any] = []
    real = context.descend

    def noted(*given: Any) -> Any:
        done.append(given[-1])
        return real(*given)

    monkeypatch.setattr(context, "descend", noted)
    return done


def test_training_waits_for_the_first_image(tmp_path: Path, trainings: list[Any]) -> None:
    """Creating trains nothing, the first step does; reset and a saved state keep the outcome."""
    task = check_task()
    adapter, stream = crg.create("coop", task, epochs=3), make_stream(task, 5)
    assert trainings == []
    before = logits_of(adapter, stream)
    adapter.save(tmp_path / "state")
    context._learnt.clear()
    adapter.reset()
    adapter.step(stream[0])
    resources = {TEXT_ENCODER: task.resources[TEXT_ENCODER]}
    after = logits_of(crg.load(tmp_path / "state", resources), stream)
    np.testing.assert_array_equal(before, after)
    assert [plan.epochs for plan in trainings] == [3]


def test_same_training_is_done_once(trainings: list[Any]) -> None:
    """Another seed or number of shots trains again, for 50 epochs with one shot, 100 with three."""
    task = check_task()
    for seed, shots in ((0, 1), (0, 1), (1, 1), (1, 16)):  # but there are only three
        crg.create("coop", task, seed=seed, shots=shots).step(make_stream(task, 1)[0])
    assert [(plan.seed, plan.epochs) for plan in trainings] == [(0, 50), (1, 50), (1, 100)]


def test_shots_limit_what_is_learnt_from() -> None:
    """With one shot, all but the first image of each class are as if they were not there."""
    task = check_task()
    few: FewShot = task.resources[FEW]
    stream = make_stream(task, 5)
    one = logits_of(crg.create("coop", task, shots=1, epochs=9), stream)
    only = task.with_resources({FEW: few.shots(1)})
    np.testing.assert_array_equal(one, logits_of(crg.create("coop", only, epochs=9), stream))
    assert not np.array_equal(one, logits_of(crg.create("coop", task, epochs=9), stream))


def test_what_does_not_fit_is_refused_before_any_work() -> None:
    """No labelled images, no words, another width and too long a context are refused at once."""
    check_refused("labelled images", crg.create, "coop", check_task().with_resources({FEW: None}))
    check_refused("no words", crg.create, "coop", check_task(), context_words=" ")
    narrow = make_task(width=8).with_resources(check_task().resources)
    few = FewShot(np.eye(2, 8), (0, 1))
    check_refused(("width 16", "8 wide"), crg.create, "coop", narrow.with_resources({FEW: few}))
    text, few = Mini().encode_texts(NAMES), FewShot(np.eye(3, Mini().width), (0, 1, 2))
    shapes = crg.Task(NAMES, text, 20.0, {FEW: few, TEXT_ENCODER: Mini().promptable()})
    check_refused("no room", crg.create, "coop", shapes, context_length=24)
    task = check_task(n_classes=8)
    adapter = crg.create("coop", task, epochs=2)
    for k in range(5):  # which are all that have labelled images
        adapter.remove_class(f"class {k}")
    check_refused("labelled images", adapter.step, make_stream(task, 1)[0])


def problem(n: int = 12) -> tuple[Callable[[Any], Any], Any, Any, list[int]]:
    """Text encoder, start, images (n, 8) and labels."""
    encoder = furnished(make_task(width=8), [TEXT_ENCODER]).resources[TEXT_ENCODER]
    encode = partial(prompt_features, encoder, endings=NAMES)
    rng = np.random.default_rng(3)
    images = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(n, 8))), dim=1)
    return encode, torch.tensor(rng.normal(size=(4, 6))), images, [k % 3 for k in range(n)]


@pytest.mark.parametrize("epochs", [2, 5, 50])
def test_schedule_is_that_of_torch(epochs: int) -> None:
    """One epoch at 1e-5, then torch's cosine annealing over the number of epochs."""
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.002)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, epochs)
    expected = [1e-5]
    for _ in range(epochs - 1):
        expected.append(sgd.param_groups[0]["lr"])
        sgd.step()
        cosine.step()
    np.testing.assert_allclose(learning_rates(epochs, 0.002), expected, rtol=1e-9)


def test_batches_are_full_and_differ_by_epoch() -> None:
    """Each epoch is a new order without repetition, and a rest is left out unless it is all."""
    first, second = batches(70, TrainingPlan(epochs=2, batch=32))
    assert [len(rows) for rows in first] == [32, 32]
    together = np.concatenate(first)
    assert len(set(together.tolist())) == 64
    assert not np.array_equal(together, np.concatenate(second))
    (only,) = batches(5, TrainingPlan(epochs=1, batch=32))
    assert sorted(only[0].tolist()) == list(range(5))


def test_training_is_plain_sgd() -> None:
    """Written out, the steps are v <- 0.9 v + g + wd c; c <- c - lr v, g that of -ln p_y."""
    encode, start, images, labels = problem()
    moved, speed = start.clone(), torch.zeros_like(start)
    for lr in learning_rates(4, 0.05):  # all images are one batch
        leaf = moved.clone().requires_grad_(True)
        odds = (20.0 * images @ encode(leaf).T).log_softmax(dim=1)
        (gradient,) = torch.autograd.grad(-odds[range(12), labels].mean(), [leaf])
        speed = 0.9 * speed + gradient + 5e-4 * moved
        moved = moved - lr * speed
    learnt = learn_context(encode, start, images, labels, 20.0, TrainingPlan(4, lr=0.05))
    np.testing.assert_allclose(learnt, moved, rtol=1e-10)


def test_training_depends_on_its_seed_alone() -> None:
    """Equal seeds give equal bits, also without gradients switched on around; others do not."""
    encode, start, images, labels = problem(40)

    def trained(seed: int) -> Any:
        context._learnt.clear()
        plan = TrainingPlan(epochs=3, lr=0.05, batch=8, seed=seed)
        return learn_context(encode, start, images, labels, 20.0, plan)

    first = trained(0)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(first, trained(0))
    assert not torch.equal(first, trained(1))


def test_overflow_ends_training() -> None:
    """A gradient that is not finite leaves the last finite context."""
    encode, start, images, labels = problem()
    kept = learn_context(
        lambda vectors: encode(vectors) * torch.inf, start, images, labels, 20.0, TrainingPlan(3)
    )
    assert torch.equal(kept, start)


def test_starts() -> None:
    """Words give their embeddings, chance gives N(0, 0.02) by seed."""
    encoder = Mini().promptable()
    words = starting_context(encoder, "a photo of a", 16, 0)
    np.testing.assert_array_equal(words, encoder.context_of("a photo of a"))
    drawn = starting_context(encoder, "", 16, 0)
    assert drawn.shape == (16, 128) and 0.019 < drawn.std() < 0.021
    assert not np.array_equal(drawn, starting_context(encoder, "", 16, 1))
