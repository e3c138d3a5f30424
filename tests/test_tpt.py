"""TPT: the gradient through the text encoder, the step, and that images do not meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import crg
from crg.cli import main
from crg.encoders import load_text_encoder
from crg.encoders.mini import Mini
from crg.ops import confident_views, entropy, softmax
from crg.parts.prompting import PromptTuning, TuningRule, as_tensor, prompt_features, pull_back
from crg.resources import TEXT_ENCODER
from sentences import refused_in_one_sentence
from test_promptable import in_double

torch = pytest.importorskip("torch")

NAMES = ("red_star", "blue circle", "green ring", "striped heart", "yellow cross")
RULE = TuningRule("a photo of a", lr=5e-3, steps=1, weight_decay=0.01, chunk=0)


def make_task(text: Any = None, dtype: Any = np.float64) -> crg.Task:
    """Five classes under the words of mini, which also tunes them."""
    encoder = Mini()
    rows = encoder.encode_texts([f"a photo of a {name.replace('_', ' ')}." for name in NAMES])
    resources = {TEXT_ENCODER: text or in_double(encoder.promptable())}
    return crg.Task(NAMES, rows.astype(dtype), encoder.logit_scale, resources)


def make_stream(task: crg.Task, n: int = 6, views: int = 12) -> Any:
    """Noisy images of every class in turn, (N, V, D)."""
    rng = np.random.default_rng(0)
    rows = np.asarray(task.text_features)[np.arange(n) % task.n_classes][:, None]
    noise = rng.standard_normal((n, views, task.width)) / np.sqrt(task.width)
    stream = rows + 0.8 * noise
    return stream / np.linalg.norm(stream, axis=-1, keepdims=True)


def loss(tuning: PromptTuning, context: Any, views: Any) -> float:
    """Entropy of the mean prediction of the views, in plain array code."""
    probs = softmax(tuning.scale * (views @ tuning.text_under(context).T))
    return float(entropy(probs.mean(axis=0)))


def test_the_gradient_equals_finite_differences_on_the_context() -> None:
    """What is carried through the text encoder is the slope of the entropy, entry by entry."""
    task = make_task()
    tuning = PromptTuning(task.resources[TEXT_ENCODER], task, RULE)
    tuning.start = tuning.start.double()
    views = make_stream(task)[0, :3]
    slope = as_tensor(tuning.gradient(views, tuning.text)[None], tuning.start)
    (gradient,) = pull_back(tuning.encoder, tuning.start, tuning.endings, slope)
    for place in [(0, 0), (1, 64), (2, 100), (3, 127)]:
        nudge = torch.zeros_like(tuning.start)
        nudge[place] = 1e-5
        rise = loss(tuning, tuning.start + nudge, views) - loss(tuning, tuning.start - nudge, views)
        assert float(gradient[place]) == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_step_is_that_of_torch_alone(steps: int) -> None:
    """The logits are those of autograd and AdamW applied to the paper's loss as it stands."""
    task = make_task()
    encoder, endings = task.resources[TEXT_ENCODER], [f"{n.replace('_', ' ')}." for n in NAMES]
    views = torch.tensor(make_stream(task, views=40)[1])
    context = encoder.context_of("a photo of a").requires_grad_()
    optimiser, keep = torch.optim.AdamW([context], 5e-3), None
    for _ in range(steps):
        logits = task.logit_scale * views @ encoder.encode(context, endings).double().T
        if keep is None:
            each = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
            keep = each.argsort()[:4]
        mean = logits[keep].softmax(1).mean(0)
        optimiser.zero_grad()
        (-(mean * mean.log()).sum()).backward()
        optimiser.step()
    expected = task.logit_scale * encoder.encode(context, endings).detach().double() @ views[0]
    found = crg.create("tpt", task, steps=steps).step(views.numpy()).logits
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)


def test_the_first_step_has_a_closed_form() -> None:
    """AdamW's first step is -lr (wd c + g / (|g| + eps)): the decay is part of it."""
    task = make_task()
    tuning = PromptTuning(task.resources[TEXT_ENCODER], task, RULE)
    views = make_stream(task)[2, :2]
    (moved,) = tuning.tuned_contexts([views])
    slope = as_tensor(tuning.gradient(views, tuning.text)[None], tuning.start)
    (g,) = pull_back(tuning.encoder, tuning.start, tuning.endings, slope)
    expected = tuning.start - 5e-3 * (0.01 * tuning.start + g / (g.abs() + 1e-8))
    torch.testing.assert_close(moved, expected, rtol=1e-5, atol=1e-7)


def test_a_small_step_lowers_the_entropy() -> None:
    """After a small step without decay the kept views agree more, for every image."""
    task = make_task()
    rule = TuningRule("a photo of a", lr=1e-4, steps=1, weight_decay=0.0, chunk=0)
    tuning = PromptTuning(task.resources[TEXT_ENCODER], task, rule)
    stream = make_stream(task)
    kept = [confident_views(views, tuning.text, task.logit_scale, 0.25).kept for views in stream]
    for context, views in zip(tuning.tuned_contexts(kept), kept, strict=True):
        assert loss(tuning, context, views) < loss(tuning, tuning.start, views)


def test_no_step_is_zero_shot_with_the_words() -> None:
    """Without steps the logits are those of zero-shot under "a photo of a"."""
    task, stream = make_task(), make_stream(make_task())
    tuned = crg.create("tpt", task, steps=0).step_many(stream)
    plain = crg.create("zero_shot", task).step_many(stream)
    for left, right in zip(tuned, plain, strict=True):
        np.testing.assert_allclose(left.logits, right.logits, atol=1e-4)


def test_images_do_not_meet() -> None:
    """In any order, at once or one by one, each image gets the same logits."""
    task = make_task()
    stream = make_stream(task, n=20)
    at_once = [p.logits for p in crg.create("tpt", task).step_many(stream)]
    adapter = crg.create("tpt", task)
    for place in np.random.default_rng(1).permutation(20):
        np.testing.assert_array_equal(adapter.step(stream[place]).logits, at_once[place])


@pytest.mark.parametrize("chunk", [1, 2, 5, 99])
def test_chunks_change_nothing(chunk: int) -> None:
    """However many classes go through the encoder at a time, logits are the same."""
    task = make_task()
    stream = make_stream(task)
    expected = crg.create("tpt", task, chunk=0).step_many(stream)
    found = crg.create("tpt", task, chunk=chunk).step_many(stream)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left.logits, right.logits, rtol=1e-6)


@pytest.mark.parametrize("shape", ["shared", "one per class"])
def test_recomputed_chunks_have_the_same_gradient(shape: str) -> None:
    """Features and gradients with recomputation are those without, for both kinds of context."""
    task = make_task()
    encoder = task.resources[TEXT_ENCODER]
    start = encoder.context_of("a photo of a").double()
    start = start if shape == "shared" else start.expand(5, -1, -1).clone()
    gradients, features = [], []
    for chunk in (0, 2):
        context = start.clone().requires_grad_()
        features.append(prompt_features(encoder, context, NAMES, chunk))
        (features[-1] ** 3).sum().backward()
        gradients.append(context.grad)
    torch.testing.assert_close(*features, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_taken_where_they_are_switched_off(mode: Any) -> None:
    """A program that has switched gradients off gets the same logits."""
    task, views = make_task(), make_stream(make_task())[0]
    expected = crg.create("tpt", task).step(views).logits
    with mode():
        np.testing.assert_array_equal(crg.create("tpt", task).step(views).logits, expected)


def test_a_single_view_is_made_surer_of_what_it_is() -> None:
    """With one view its own entropy is lowered, and the label stays."""
    task = make_task()
    for views in make_stream(task, views=1):
        tuned = crg.create("tpt", task).step(views)
        plain = crg.create("zero_shot", task).step(views)
        assert entropy(tuned.probs) < entropy(plain.probs) and tuned.label == plain.label


def test_what_is_missing_is_told_before_any_work(tmp_path: Path) -> None:
    """A task or a feature file without a model is refused in one sentence, and nothing is run."""
    task = make_task()
    bare = crg.Task(NAMES, task.text_features)
    with refused_in_one_sentence("'tpt'", "open_clip"):
        crg.create("tpt", bare)
    images = make_stream(task)
    labelled = crg.Features(images, bare, np.zeros(len(images), dtype=int))
    crg.write_features(tmp_path / "x.npz", labelled)
    refused = CliRunner().invoke(main, ["compare", str(tmp_path / "x.npz"), "--methods", "tpt"])
    assert refused.exit_code == 2 and "needs a text encoder" in refused.stderr


def test_models_without_embeddings_are_refused(tmp_path: Path) -> None:
    """A model exported to ONNX is refused by name."""
    pytest.importorskip("onnx")
    from crg.encoders.export import export
    from small_models import save_model
    from torchvision_operators import open_clip

    open_clip()
    made = export(f"small-vit:{save_model('small-vit', tmp_path / 'w.pt')}", tmp_path / "out")
    with refused_in_one_sentence("takes no embeddings", "mini"):
        load_text_encoder(made.name)


def test_unfit_words_and_encoders_are_refused() -> None:
    """Words that are none, and an encoder of another width, are refused."""
    task = make_task()
    with refused_in_one_sentence("no words"):
        crg.create("tpt", task, context="!")
    narrow = crg.Task(NAMES, np.eye(5), resources=task.resources)
    with refused_in_one_sentence("width 256", "5 wide"):
        crg.create("tpt", narrow)
