"""Text encoders that take context vectors in place of words."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import test_tokenizer
from crg.encoders import load_encoder
from crg.encoders.openclip import OpenClipPrompts, with_part
from sentences import check_refused
from small_models import MODELS, make_model, open_clip, saved

torch = pytest.importorskip("torch")

ENDINGS = ["red star.", "polka-dot Café & zzyzx", "...", "", "word " * 100, "a red_star."]


@pytest.fixture(scope="module", params=["mini", *MODELS])
def encoder(request: pytest.FixtureRequest) -> Any:
    """The bundled model and one of each kind of open_clip."""
    if request.param == "mini":
        return load_encoder("mini")
    open_clip()
    return load_encoder(saved(request.param), device="cpu")


@pytest.fixture(scope="module")
def text(encoder: Any) -> Any:
    """Its text half."""
    return encoder.promptable()


@pytest.mark.parametrize("words", ["a photo of a", "itap of the smallest", "x", ""])
def test_words_as_context_give_the_features_of_the_sentence(
    encoder: Any, text: Any, words: str
) -> None:
    """The embeddings of real words, or of none, give the same features as the words."""
    found = text.encode(text.context_of(words), ENDINGS)
    expected = encoder.encode_texts([f"{words} {ending}".removeprefix(" ") for ending in ENDINGS])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    assert text.name == encoder.name


def test_short_endings_alone_give_the_same_as_beside_long_ones(text: Any) -> None:
    """A batch equals each ending alone, and another context gives other features."""
    context = text.context_of("a photo of a")
    together = text.encode(context, ENDINGS)
    alone = torch.cat([text.encode(context, [ending]) for ending in ENDINGS])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    other = text.encode(text.context_of("a photo of the"), ENDINGS)
    assert float((together[0] - other[0]).abs().max()) > 1e-4


def test_gradients_reach_the_context_and_nothing_else(text: Any) -> None:
    """Every context vector gets a gradient, and the weights stay frozen."""
    context = text.context_of("a photo of a").requires_grad_()
    text.encode(context, ENDINGS[:2])[:, 0].sum().backward()
    assert bool((context.grad.abs().amax(dim=1) > 0).all())
    weights = text.weights.values() if text.name == "mini" else text.model.parameters()
    assert not any(weight.requires_grad for weight in weights)


def test_gradients_equal_finite_differences(text: Any) -> None:
    """The gradient is that of the difference quotient, in double precision."""
    double = in_double(text)
    context = double.context_of("a photo of a").double().requires_grad_()
    aim = torch.linspace(-1, 1, double.encode(context, ["cat"]).shape[1], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((double.encode(context, ENDINGS[:2]) @ aim).sum(), context)
    for place in [(0, 0), (1, 5), (3, 17)]:
        nudge = torch.zeros_like(context)
        nudge[place] = 1e-5
        ahead, behind = (
            (double.encode(context.detach() + sign * nudge, ENDINGS[:2]) @ aim).sum()
            for sign in (1, -1)
        )
        assert float(gradient[place]) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-5)


def test_copies_give_the_same_and_leave_the_model_alone(encoder: Any, text: Any) -> None:
    """A copy gives the same features, the encoder's own do not change, and no tower comes along."""
    if text.name != "mini":
        assert not hasattr(text.model, "visual") and hasattr(encoder.model, "visual")
    before = encoder.encode_texts(ENDINGS)
    context = text.context_of("a photo of a")
    expected = text.encode(context, ENDINGS)
    for again in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
        assert torch.equal(again.encode(context, ENDINGS), expected)
    assert np.array_equal(encoder.encode_texts(ENDINGS), before)


def test_contexts_that_leave_no_room_are_refused(text: Any) -> None:
    """A context as long as what the model reads is refused; the longest that fits is not."""
    limit = {"mini": 23, "small-sigmoid": 13}.get(text.name.split(":")[0], 74)
    vector = text.context_of("a")
    assert text.encode(vector.expand(limit, -1), ["cat"]).shape[0] == 1
    check_refused(("room", f"at most {limit}"), text.encode, vector.expand(limit + 1, -1), ["cat"])


def test_models_that_cannot_take_a_context_are_refused() -> None:
    """A table of embeddings that cannot be found, or a tokenizer that moves words, has a name."""
    strange = torch.nn.Module()
    strange.text = torch.nn.Linear(2, 2)
    check_refused(("strange", "open_clip"), OpenClipPrompts, "strange", strange, None)
    model = make_model("small-vit")  # makes the name of its tokenizer known
    words = open_clip().get_tokenizer("small-vit")
    text = OpenClipPrompts("odd", model, words)
    text.tokenizer = Mock(wraps=words, side_effect=lambda texts: words(texts).flip(1))
    text.tokenizer.bpe_ranks = words.bpe_ranks
    check_refused(("odd", "places"), text.encode, text.context_of("a photo"), ["cat"])


def test_exchanged_parts_are_those_of_the_copy_alone() -> None:
    """A part is exchanged in the copy, at any depth, and the weights are shared."""
    layer = torch.nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, batch_first=True)
    outer = torch.nn.Sequential(layer, torch.nn.Linear(2, 1))
    other = with_part(outer, "0.norm2", lambda x: 0 * x)
    x = torch.ones(1, 1, 2)
    assert other(x).item() == outer[1].bias.item() and other[1] is outer[1]
    assert outer(x).item() != other(x).item()


def test_hugging_face_towers_take_context_too(tmp_path: Path) -> None:
    """A text tower of transformers gives the features of the sentence from its embeddings."""
    transformers = pytest.importorskip("transformers")
    tokenizer = test_tokenizer._hugging_face_tokenizer(tmp_path, strip=False)
    module = open_clip()
    sizes = {"vocab_size": 10, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    config = transformers.BertConfig(num_attention_heads=2, pad_token_id=0, **sizes)
    tower = module.hf_model.HFTextEncoder("", 24, config=config, proj_type="linear")
    model = make_model("small-sigmoid")
    model.text = tower.eval()
    text = OpenClipPrompts("tower", model, tokenizer)
    endings = ["cat", "dog !", "a dog cat"]
    found = text.encode(text.context_of("a photo of a"), endings)
    with torch.no_grad():
        ids = tokenizer([f"a photo of a {ending}" for ending in endings])
        expected = model.encode_text(ids, normalize=True)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def in_double(text: Any) -> Any:
    """A copy that computes in double precision."""
    double = copy.deepcopy(text)
    if text.name == "mini":
        double.weights = {name: weight.double() for name, weight in text.weights.items()}
        double._embedded.clear()
    else:
        double.model.double()
    return double
