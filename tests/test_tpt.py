"""TPT and DiffTPT: gradients through the text encoder, the steps, the filter, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import crg
from crg.cli import main
from crg.encoders.mini import Mini
from crg.methods.tpt import TPT
from crg.ops import entropy, softmax
from crg.parts.prompting import PromptTuning, prompt_features
from crg.resources import TEXT_ENCODER
from sentences import refused_in_one_sentence
from test_promptable import in_double

torch = pytest.importorskip("torch")

NAMES = ("red_star", "blue circle", "green ring", "striped heart", "yellow cross")
RULE = TPT.Config(chunk=0)


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
    """The gradient through the text encoder is the slope of the entropy, entry by entry."""
    task = make_task()
    tuning = PromptTuning(task, RULE)
    tuning.start = tuning.start.double()
    views = make_stream(task)[0, :3]
    (gradient,) = tuning.pull_back(tuning.start, [tuning.gradient(views, tuning.text)])
    for place in [(0, 0), (1, 64), (2, 100), (3, 127)]:
        nudge = torch.zeros_like(tuning.start)
        nudge[place] = 1e-5
        rise = loss(tuning, tuning.start + nudge, views) - loss(tuning, tuning.start - nudge, views)
        assert float(gradient[place]) == pytest.approx(rise / 2e-5, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("steps", [0, 1, 3])
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


@pytest.mark.parametrize("chunk", [2, 99])
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


def test_what_is_missing_is_told_before_any_work(tmp_path: Path) -> None:
    """A lack of model, of words or of width is refused in one sentence, and nothing is run."""
    task = make_task()
    bare = crg.Task(NAMES, task.text_features)
    with refused_in_one_sentence("'tpt'", "open_clip"):
        crg.create("tpt", bare)
    with refused_in_one_sentence("no words"):
        crg.create("tpt", task, context="!")
    with refused_in_one_sentence("width 256", "5 wide"):
        crg.create("tpt", crg.Task(NAMES, np.eye(5), resources=task.resources))
    images = make_stream(task)
    labelled = crg.Features(images, bare, np.zeros(len(images), dtype=int))
    crg.write_features(tmp_path / "x.npz", labelled)
    refused = CliRunner().invoke(main, ["compare", str(tmp_path / "x.npz"), "--methods", "tpt"])
    assert refused.exit_code == 2 and "needs a text encoder" in refused.stderr
    with refused_in_one_sentence("'difftpt' needs views that a generator made", "--variations"):
        crg.create("difftpt", task)


K, D, E = 5, 12, 4  # classes, feature width, context width
CLASSES = [f"class {k}" for k in range(K)]
SCALE = 15.0


class BentText:
    """A small text encoder that is smooth and knows its endings by their number."""

    name = "bent"

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.ends = torch.from_numpy(rng.standard_normal((K, D)))
        self.bends = torch.from_numpy(rng.standard_normal((K, E, D)))

    def context_of(self, words: str) -> Any:
        """One vector per word, (M, E)."""
        rows = [[len(word), i, 1.0, -1.0] for i, word in enumerate(words.split())]
        return torch.tensor(rows, dtype=torch.float64) / 4

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Unit features (K, D)."""
        rows = [int(end.split()[1].rstrip(".")) for end in endings]
        mean = context.to(self.ends).sum(dim=0)
        bent = self.ends[rows] + torch.einsum("e,ked->kd", mean, self.bends[rows]).sin()
        return torch.nn.functional.normalize(bent, dim=-1)


def bent_task(**resources: Any) -> crg.Task:
    """Classes with the features of the encoder and these resources."""
    encoder = BentText()
    text = encoder.encode(encoder.context_of("a photo of a"), CLASSES).numpy()
    return crg.Task(CLASSES, text, SCALE, {"text_encoder": encoder, **resources})


def some_views(n: int, n_views: int, seed: int = 1) -> Any:
    """Unit features (N, V, D) whose views resemble each other."""
    rng = np.random.default_rng(seed)
    views = rng.standard_normal((n, 1, D)) + 0.8 * rng.standard_normal((n, n_views, D))
    return views / np.linalg.norm(views, axis=-1, keepdims=True)


def entropy_of(probs: Any) -> Any:
    """H(p) in nats."""
    return -(probs * probs.log()).sum(dim=-1)


def plain_difftpt(views: Any, n_generated: int) -> Any:
    """The logits for one image, by lists, autograd and torch's AdamW."""
    encoder, f = BentText(), torch.from_numpy(views)
    ordinary, generated = f[: len(f) - n_generated], f[len(f) - n_generated :]
    by_likeness = sorted(generated, key=lambda view: -float(view @ f[0]))
    mixture = [*ordinary, *by_likeness[: max(1, int(0.8 * n_generated))]]
    context = encoder.context_of("a photo of a").requires_grad_()
    before = encoder.encode(context, CLASSES).detach()
    mixture.sort(key=lambda view: float(entropy_of((SCALE * before @ view).softmax(0))))
    kept = torch.stack(mixture[: max(1, int(0.3 * len(mixture) + 1e-9))])
    optimiser = torch.optim.AdamW([context], lr=5e-3)
    for _ in range(4):
        optimiser.zero_grad()
        probs = (SCALE * kept @ encoder.encode(context, CLASSES).T).softmax(dim=1).mean(dim=0)
        entropy_of(probs).backward()
        optimiser.step()
    return (SCALE * encoder.encode(context, CLASSES) @ f[0]).detach().numpy()


@pytest.mark.parametrize(("n_views", "n_generated"), [(12, 5), (9, 8), (2, 1), (20, 10)])
def test_difftpt_equals_its_plain_form(n_views: int, n_generated: int) -> None:
    """Filters and four steps of AdamW give what autograd gives, starting over for every image."""
    adapter = crg.create("difftpt", bent_task(generated=n_generated))
    for views in some_views(10, n_views):
        expected = plain_difftpt(views, n_generated)
        np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-9)
        assert np.abs(expected - SCALE * bent_task().text_features @ views[0]).max() > 1e-3


def at_angles(degrees: Sequence[float]) -> Any:
    """Views in the plane of the first two features at these angles."""
    radians = np.deg2rad(degrees)
    rows = np.zeros((len(degrees), D))
    rows[:, 0], rows[:, 1] = np.cos(radians), np.sin(radians)
    return rows


@pytest.mark.parametrize(
    ("generated", "share", "kept"),
    [
        (5, 0.8, [0, 170, 90, 50, -20, 80, 100]),  # of 50, 120, -20, 80, 100 the furthest goes
        (5, 0.4, [0, 170, 90, 50, -20]),
        (5, 0.01, [0, 170, 90, -20]),  # at least one stays
        (5, 1.0, [0, 170, 90, 50, 120, -20, 80, 100]),
        (2, 0.5, [0, 170, 90, 50, 120, -20, 80]),
    ],
)
def test_the_generated_views_that_are_least_like_the_original_go(
    generated: int, share: float, kept: list[float]
) -> None:
    """Ordinary views stay however far they are; of generated ones the nearest share stays."""
    adapter = crg.create("difftpt", bent_task(generated=generated), similar_share=share)
    method: Any = adapter._method
    mixed = method._mixed(at_angles([0, 170, 90, 50, 120, -20, 80, 100]))
    np.testing.assert_array_equal(mixed, at_angles(kept))


def test_a_single_view_is_tuned_as_tpt_does_it() -> None:
    """Without generated views nothing is left but TPT with more steps."""
    ours = crg.create("difftpt", bent_task(generated=3))
    theirs = crg.create("tpt", bent_task(), steps=4, view_share=0.3)
    for views in some_views(5, 1):
        np.testing.assert_array_equal(ours.step(views).logits, theirs.step(views).logits)
