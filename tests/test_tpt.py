"""TPT and DiffTPT: the steps against torch alone, the filter, chunks, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from crg.checks.base import furnished, make_stream
from crg.checks.base import make_task as checked_task
from crg.parts.prompting import prompt_features
from crg.resources import TEXT_ENCODER
from processes import called
from sentences import check_refused, refused_in_one_sentence

torch = pytest.importorskip("torch")
from oracle import entropy_of  # noqa: E402  (needs torch)

CLASSES = [f"class {k}." for k in range(5)]
SCALE = 20.0


def make_task(**resources: Any) -> crg.Task:
    """Five classes of the checks, with their text encoder and these resources."""
    return furnished(checked_task(), [TEXT_ENCODER]).with_resources(resources)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_step_is_that_of_torch_alone(steps: int) -> None:
    """The logits are those of autograd and AdamW applied to the paper's loss as it stands."""
    task = make_task()
    encoder = task.resources[TEXT_ENCODER]
    views = torch.tensor(make_stream(task, 2, 40)[1])
    context = encoder.context_of("a photo of a").requires_grad_()
    optimiser, keep = torch.optim.AdamW([context], 5e-3), None
    for _ in range(steps):
        logits = task.logit_scale * views @ encoder.encode(context, CLASSES).T
        if keep is None:
            each = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
            keep = each.argsort()[:4]
        mean = logits[keep].softmax(1).mean(0)
        optimiser.zero_grad()
        (-(mean * mean.log()).sum()).backward()
        optimiser.step()
    expected = task.logit_scale * encoder.encode(context, CLASSES).detach() @ views[0]
    found = crg.create("tpt", task, steps=steps).step(views.numpy()).logits
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("chunk", [2, 99])
def test_chunks_change_nothing(chunk: int) -> None:
    """However many classes go through the encoder at a time, logits are the same."""
    task = make_task()
    stream = make_stream(task, 6, 12)
    expected = crg.create("tpt", task, chunk=0).step_many(stream)
    found = crg.create("tpt", task, chunk=chunk).step_many(stream)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left.logits, right.logits, rtol=1e-6)


def test_recomputed_chunks_have_the_same_gradient() -> None:
    """Features and gradients with recomputation are those without."""
    task = make_task()
    encoder = task.resources[TEXT_ENCODER]
    start = encoder.context_of("a photo of a")
    gradients, features = [], []
    for chunk in (0, 2):
        context = start.clone().requires_grad_()
        features.append(prompt_features(encoder, context, CLASSES, chunk))
        (features[-1] ** 3).sum().backward()
        gradients.append(context.grad)
    torch.testing.assert_close(*features, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_where_they_are_switched_off(mode: Any) -> None:
    """A program that has switched gradients off gets the same logits."""
    task, views = make_task(), make_stream(make_task(), 1, 12)[0]
    expected = crg.create("tpt", task).step(views).logits
    with mode():
        np.testing.assert_array_equal(crg.create("tpt", task).step(views).logits, expected)


def test_what_is_missing_is_told_before_any_work(tmp_path: Path) -> None:
    """A lack of model, of words or of width is refused in one sentence, and nothing is run."""
    task = make_task()
    bare = crg.Task(CLASSES, task.text_features)
    check_refused(("'tpt'", "open_clip"), crg.create, "tpt", bare)
    check_refused("no words", crg.create, "tpt", task, context="")
    with refused_in_one_sentence("width 16", "5 wide"):
        crg.create("tpt", crg.Task(CLASSES, np.eye(5), resources=task.resources))
    images = make_stream(task, 6)
    labelled = crg.Features(images, bare, np.zeros(len(images), dtype=int))
    crg.write_features(tmp_path / "x.npz", labelled)
    refused = called("compare", str(tmp_path / "x.npz"), "--methods", "tpt", code=2)
    assert "needs a text encoder" in refused.stderr
    with refused_in_one_sentence("'difftpt' needs views that a generator made", "--variations"):
        crg.create("difftpt", task)


def plain_difftpt(encoder: Any, views: Any, n_generated: int, share: float) -> tuple[Any, Any]:
    """Logits of one image before and after tuning, by lists, autograd and torch's AdamW.

    Ordinary views stay however far they are; of generated ones the nearest share stays.
    """
    f, n_generated = torch.from_numpy(views), min(n_generated, len(views) - 1)
    ordinary, generated = f[: len(f) - n_generated], f[len(f) - n_generated :]
    by_likeness = sorted(generated, key=lambda view: -float(view @ f[0]))
    mixture = [*ordinary, *by_likeness[: max(1, int(share * n_generated))]]
    context = encoder.context_of("a photo of a").requires_grad_()
    before = encoder.encode(context, CLASSES).detach()
    mixture.sort(key=lambda view: float(entropy_of((SCALE * before @ view).softmax(0))))
    kept = torch.stack(mixture[: max(1, int(0.3 * len(mixture) + 1e-9))])
    optimiser = torch.optim.AdamW([context], lr=5e-3)
    for _ in range(4):
        optimiser.zero_grad()
        probs = (SCALE * kept @ encoder.encode(context, CLASSES).T).softmax(dim=1).mean(dim=0)
        entropy_of(probs).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    after = encoder.encode(context, CLASSES).detach()
    return (SCALE * before @ f[0]).numpy(), (SCALE * after @ f[0]).numpy()


@pytest.mark.parametrize("share", [0.01, 0.4, 0.8, 1.0])
@pytest.mark.parametrize(("n_views", "n_generated"), [(12, 5), (9, 8), (2, 1), (20, 10), (1, 3)])
def test_difftpt_equals_its_plain_form(n_views: int, n_generated: int, share: float) -> None:
    """Filters and four steps of AdamW give what autograd gives, starting over for every image."""
    task = make_task(generated=n_generated)
    adapter = crg.create("difftpt", task, similar_share=share)
    for views in make_stream(task, 10, n_views):
        before, after = plain_difftpt(task.resources[TEXT_ENCODER], views, n_generated, share)
        np.testing.assert_allclose(adapter.step(views).logits, after, rtol=1e-9)
        assert np.abs(after - before).max() > 1e-3
