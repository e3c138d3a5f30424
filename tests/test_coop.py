"""CoOp: what it learns on real images, and what becomes of that."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg.checks import answers, state
from crg.checks.base import Check, another_direction, furnished, make_stream, make_task
from crg.encoders.mini import Mini
from crg.methods import coop
from crg.parts import context
from crg.resources import FEW, TEXT_ENCODER, FewShot
from crg.shapes import shape_images
from sentences import refused_in_one_sentence

pytest.importorskip("torch")

CHECKS: list[Check] = [
    answers.reset_returns_to_the_start,
    state.saved_state_continues,
    state.order_of_classes_does_not_matter,
    state.class_added_at_once_counts_as_given,
    state.class_removed_at_once_counts_as_never_given,
    state.classes_may_come_and_go,
    answers.torch_classes_may_come_and_go,
]


def check_task(**options: Any) -> crg.Task:
    """A small task of the checks, with what coop needs."""
    return furnished(make_task(**options), coop.CoOp.needs)


def logits_of(adapter: crg.Adapter, stream: Any) -> Any:
    """All logits (N, K)."""
    return np.stack([prediction.logits for prediction in adapter.step_many(stream)])


@functools.lru_cache
def seen_at_night(seed: int, count: int) -> tuple[Any, tuple[int, ...]]:
    """Features of rendered images at night, and their classes."""
    side, images = Mini().preprocessing.size, shape_images("night", 3, count, seed)
    sources: Any = images.sources
    pixels = np.stack([np.asarray(source.draw().resize((side, side))) for source in sources])
    return Mini().encode_images(pixels), tuple(images.labels or ())


@functools.lru_cache
def night_task(shots: int = 4) -> crg.Task:
    """32 classes of shapes with labelled images of the same shift."""
    mini, names = Mini(), shape_images("night", 3, 32, 77).class_names
    text = mini.encode_texts([f"a photo of a {name}." for name in names])
    few = FewShot(*seen_at_night(77, 32 * shots))
    return crg.Task(names, text, mini.logit_scale, {FEW: few, TEXT_ENCODER: mini.promptable()})


def accuracy(adapter: crg.Adapter) -> float:
    """On night images that were not labelled."""
    features, labels = seen_at_night(7, 320)
    answers = [prediction.label for prediction in adapter.step_many(features)]
    return float(np.mean(np.array(answers) == labels))


def test_learnt_context_beats_zero_shot() -> None:
    """Four labelled images per class of a shift raise accuracy on it by many points."""
    task = night_task()
    plain = accuracy(crg.create("zero_shot", task))
    learnt = accuracy(crg.create("coop", task, epochs=20, lr=0.03, context_length=4))
    assert learnt > plain + 0.08


def test_context_per_class_beats_zero_shot() -> None:
    """So does a context for each class, started from words."""
    task = night_task()
    plain = accuracy(crg.create("zero_shot", task))
    options = {"per_class": True, "context_words": "a photo of a", "epochs": 20, "lr": 0.1}
    assert accuracy(crg.create("coop", task, **options)) > plain + 0.05


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contexts_per_class_pass_the_checks_too(check: Check) -> None:
    """Checks that classes and state could fail pass with a context for each class."""

    def make(task: crg.Task, /, **options: Any) -> crg.Adapter:
        given = {"per_class": True, "epochs": 5, "lr": 0.1, **options}
        return crg.create("coop", furnished(task, coop.CoOp.needs), **given)

    check(make)


def test_logits_are_those_of_the_learnt_prompt() -> None:
    """Predictions are s f . t with t encoded from the learnt vectors and the class names."""
    import torch

    task = check_task()
    adapter, stream = crg.create("coop", task, epochs=5), make_stream(task, 10)
    logits = logits_of(adapter, stream)
    method: Any = adapter._method
    endings = [f"{name}." for name in task.class_names]
    text = task.resources[TEXT_ENCODER].encode(torch.tensor(method.context), endings)
    np.testing.assert_allclose(logits, 20.0 * stream[:, 0] @ text.numpy().T, rtol=1e-12)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plan of each training from now on."""
    context.forget()
    done: list[Any] = []
    real = context.learn_context

    def noted(*problem: Any) -> Any:
        done.append(problem[-1])
        return real(*problem)

    monkeypatch.setattr(context, "learn_context", noted)
    return done


def test_training_waits_for_the_first_image(trainings: list[Any]) -> None:
    """Creating trains nothing, the first step does, and reset keeps what it learnt."""
    task = check_task()
    adapter = crg.create("coop", task, epochs=3)
    assert trainings == []
    adapter.step(make_stream(task, 1)[0])
    context.forget()
    adapter.reset()
    adapter.step(make_stream(task, 1)[0])
    assert [plan.epochs for plan in trainings] == [3]


def test_epochs_follow_from_shots(trainings: list[Any]) -> None:
    """Unless they are given, there are 50 epochs for one shot and 100 for three."""
    for shots in (1, 16):  # but there are only three
        crg.create("coop", check_task(), shots=shots).step(make_stream(check_task(), 1)[0])
    assert [plan.epochs for plan in trainings] == [50, 100]


def test_loading_does_not_train_again(tmp_path: Path, trainings: list[Any]) -> None:
    """A saved state holds what was learnt."""
    task = check_task()
    adapter, stream = crg.create("coop", task, epochs=3), make_stream(task, 5)
    before = logits_of(adapter, stream)
    adapter.save(tmp_path / "state")
    context.forget()
    resources = {TEXT_ENCODER: task.resources[TEXT_ENCODER]}
    after = logits_of(crg.load(tmp_path / "state", resources), stream)
    np.testing.assert_array_equal(before, after)
    assert len(trainings) == 1


def test_same_training_is_done_once(trainings: list[Any]) -> None:
    """Another adapter with the same images takes what was learnt, one with another seed not."""
    task = check_task()
    for seed in (0, 0, 1):
        crg.create("coop", task, epochs=2, seed=seed).step(make_stream(task, 1)[0])
    assert [plan.seed for plan in trainings] == [0, 1]


@pytest.mark.parametrize("per_class", [False, True])
def test_class_that_comes_later(per_class: bool) -> None:
    """It gets the shared context, or the mean of the others', and changes no other logit."""
    import torch

    task = check_task()
    adapter, stream = crg.create("coop", task, epochs=5, per_class=per_class), make_stream(task, 4)
    before = logits_of(adapter, stream)
    method: Any = adapter._method
    own = method.context.mean(axis=0) if per_class else method.context
    adapter.add_class("newcomer", another_direction(task))
    after = logits_of(adapter, stream)
    np.testing.assert_allclose(after[:, :-1], before, rtol=1e-12)
    text = task.resources[TEXT_ENCODER].encode(torch.tensor(own), ["newcomer."])[0].numpy()
    np.testing.assert_allclose(after[:, -1], 20.0 * stream[:, 0] @ text, rtol=1e-12)


def test_shots_limit_what_is_learnt_from() -> None:
    """With one shot, all but the first image of each class are as if they were not there."""
    task = check_task()
    few: FewShot = task.resources[FEW]
    stream = make_stream(task, 5)
    one = logits_of(crg.create("coop", task, shots=1, epochs=9), stream)
    only = task.with_resources({FEW: few.shots(1)})
    np.testing.assert_array_equal(one, logits_of(crg.create("coop", only, epochs=9), stream))
    assert not np.array_equal(one, logits_of(crg.create("coop", task, epochs=9), stream))


def test_missing_images_are_told_before_any_work() -> None:
    """Without labelled images, coop is refused when it is made."""
    with refused_in_one_sentence("labelled images"):
        crg.create("coop", check_task().with_resources({FEW: None}))


def test_removed_images_are_reported() -> None:
    """If all classes with images are removed before training, the first step says so."""
    task = check_task(n_classes=8)
    adapter = crg.create("coop", task, epochs=2)
    for k in range(5):
        adapter.remove_class(f"class {k}")
    with refused_in_one_sentence("labelled images"):
        adapter.step(make_stream(task, 1)[0])


def test_words_that_are_none_are_refused() -> None:
    """A start from words needs words."""
    with refused_in_one_sentence("no words"):
        crg.create("coop", night_task(), context_words="...")


def test_what_does_not_fit_is_refused_before_any_work() -> None:
    """A text encoder of another width, and a context too long for it, are refused at once."""
    narrow = make_task(width=8).with_resources(check_task().resources)
    few = FewShot(np.eye(2, 8), (0, 1))
    with refused_in_one_sentence("width 16", "8 wide"):
        crg.create("coop", narrow.with_resources({FEW: few}))
    with refused_in_one_sentence("no room"):
        crg.create("coop", night_task(), context_length=24)


def test_learns_where_gradients_are_switched_off() -> None:
    """Code around that has no use for gradients does not keep coop from learning."""
    import torch

    task, stream = night_task(1), seen_at_night(7, 320)[0][:4]
    options = {"epochs": 3, "lr": 0.1, "context_length": 2}
    expected = logits_of(crg.create("coop", task, **options), stream)
    context.forget()
    with torch.inference_mode():
        inside = logits_of(crg.create("coop", task, **options), stream)
    np.testing.assert_array_equal(inside, expected)
