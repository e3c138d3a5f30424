"""DiffTPT against a plain form by autograd, its filter by hand, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import crg
from sentences import refused_in_one_sentence

torch = pytest.importorskip("torch")
K, D, E = 5, 12, 4  # classes, feature width, context width
NAMES = [f"class {k}" for k in range(K)]
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


def task(**resources: Any) -> crg.Task:
    """Classes with the features of the encoder and these resources."""
    encoder = BentText()
    text = encoder.encode(encoder.context_of("a photo of a"), NAMES).numpy()
    return crg.Task(NAMES, text, SCALE, {"text_encoder": encoder, **resources})


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
    before = encoder.encode(context, NAMES).detach()
    mixture.sort(key=lambda view: float(entropy_of((SCALE * before @ view).softmax(0))))
    kept = torch.stack(mixture[: max(1, int(0.3 * len(mixture) + 1e-9))])
    optimiser = torch.optim.AdamW([context], lr=5e-3)
    for _ in range(4):
        optimiser.zero_grad()
        probs = (SCALE * kept @ encoder.encode(context, NAMES).T).softmax(dim=1).mean(dim=0)
        entropy_of(probs).backward()
        optimiser.step()
    return (SCALE * encoder.encode(context, NAMES) @ f[0]).detach().numpy()


@pytest.mark.parametrize(("n_views", "n_generated"), [(12, 5), (9, 8), (2, 1), (20, 10)])
def test_difftpt_equals_its_plain_form(n_views: int, n_generated: int) -> None:
    """Filters and four steps of AdamW give what autograd gives, starting over for every image."""
    adapter = crg.create("difftpt", task(generated=n_generated))
    for views in some_views(10, n_views):
        expected = plain_difftpt(views, n_generated)
        np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-9)
        assert np.abs(expected - SCALE * task().text_features @ views[0]).max() > 1e-3


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
    adapter = crg.create("difftpt", task(generated=generated), similar_share=share)
    method: Any = adapter._method
    mixed = method._mixed(at_angles([0, 170, 90, 50, 120, -20, 80, 100]))
    np.testing.assert_array_equal(mixed, at_angles(kept))


def test_a_single_view_is_tuned_as_tpt_does_it() -> None:
    """Without generated views nothing is left but TPT with more steps."""
    ours = crg.create("difftpt", task(generated=3))
    theirs = crg.create("tpt", task(), steps=4, view_share=0.3)
    for views in some_views(5, 1):
        np.testing.assert_array_equal(ours.step(views).logits, theirs.step(views).logits)


def test_generated_views_take_part() -> None:
    """The same views give another answer when they count as generated."""
    views = some_views(1, 12)[0]
    answers = [crg.create("difftpt", task(generated=n)).step(views).logits for n in (1, 8)]
    assert np.abs(answers[0] - answers[1]).max() > 1e-4


def test_no_step_is_zero_shot() -> None:
    """With zero steps the prompt stays at the words that it starts from."""
    given, views = task(generated=2), some_views(1, 6)[0]
    logits = crg.create("difftpt", given, steps=0).step(views).logits
    np.testing.assert_allclose(logits, SCALE * given.text_features @ views[0], rtol=1e-6)


def test_what_is_missing_is_told_before_any_work() -> None:
    """Without generated views or a text encoder the method refuses and names the remedy."""
    with refused_in_one_sentence("'difftpt' needs views that a generator made", "--variations"):
        crg.create("difftpt", task())
    bare = crg.Task(NAMES, np.eye(K, D), SCALE, {"generated": 2})
    with refused_in_one_sentence("'difftpt' needs a text encoder"):
        crg.create("difftpt", bare)


def test_the_number_of_generated_views_is_saved(tmp_path: Any) -> None:
    """A saved adapter continues with the same filter."""
    adapter = crg.create("difftpt", task(generated=5))
    views = some_views(2, 9)
    adapter.step(views[0])
    adapter.save(tmp_path / "state")
    again = crg.load(tmp_path / "state", {"text_encoder": BentText()})
    np.testing.assert_array_equal(again.step(views[1]).logits, adapter.step(views[1]).logits)
