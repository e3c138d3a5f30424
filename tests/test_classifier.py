"""Images and class names in, predictions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import crg
from colour_encoder import COLOURS, ColourEncoder, save_image, save_stream
from crg import InputError
from crg.classifier import Answer, Classifier
from sentences import refused_in_one_sentence

NAMES = tuple(COLOURS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text features are kept beside the test."""
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "cache"))


def classifier(**settings: Any) -> Classifier:
    """A classifier of colours."""
    return Classifier(ColourEncoder(), NAMES, **settings)


def facts(answer: Answer | InputError) -> tuple[Any, ...]:
    """What two answers have to share to be the same."""
    assert isinstance(answer, Answer)
    return answer.label, answer.step, np.asarray(answer.prediction.logits).tobytes()


def test_every_kind_of_image_is_taken(tmp_path: Path) -> None:
    """A path, its text, a Pillow image, bytes and an array of one image get one answer."""
    path = save_image(tmp_path / "green.png", "green")
    image = Image.open(path)
    kinds: list[Any] = [path, str(path), image, path.read_bytes(), np.asarray(image)]
    answers = [classifier().predict(kind) for kind in kinds]
    assert {answer.label for answer in answers} == {"green"}
    assert len({np.asarray(a.prediction.logits).tobytes() for a in answers}) == 1


def test_answers_name_both_sides(tmp_path: Path) -> None:
    """An answer holds the adapted and the zero-shot label with their probabilities."""
    answer = classifier(method="zero_shot").predict(save_image(tmp_path / "a.png", "blue"))
    assert (answer.label, answer.zero_shot_label, answer.changed) == ("blue", "blue", False)
    assert answer.probability == pytest.approx(answer.zero_shot_probability, abs=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("views", [1, 5])
def test_many_give_what_single_ones_give(tmp_path: Path, views: int, workers: int) -> None:
    """A stream in batches gives the answers of one image at a time."""
    paths = save_stream(tmp_path)
    single, many = classifier(views=views), classifier(views=views)
    expected = [facts(single.predict(path)) for path in paths]
    assert [facts(each) for each in many.predict_many(paths, workers=workers)] == expected


def test_images_are_encoded_in_batches(tmp_path: Path) -> None:
    """The encoder is called for many views at once, and with whole images."""
    shared = classifier(views=4)
    list(shared.predict_many(save_stream(tmp_path, 20)))
    assert shared.encoder.calls == [64, 16]  # type: ignore[attr-defined]


def test_a_broken_image_does_not_end_a_stream(tmp_path: Path) -> None:
    """An image that cannot be read yields its error and leaves the adapter as it was."""
    paths = save_stream(tmp_path, 5)
    paths[2].write_bytes(b"no image")
    answers = list((shared := classifier()).predict_many(paths))
    assert isinstance(answers[2], InputError) and "002.png" in str(answers[2])
    assert shared.adapter.n_steps == 4


def test_a_saved_state_continues(tmp_path: Path) -> None:
    """A classifier that was saved and loaded answers as one that never stopped."""
    paths = save_stream(tmp_path)
    whole = [facts(each) for each in classifier().predict_many(paths)]
    first = classifier()
    halves = [facts(each) for each in first.predict_many(paths[:6])]
    first.save(tmp_path / "state")
    second = Classifier(ColourEncoder(), state=tmp_path / "state")
    assert halves + [facts(each) for each in second.predict_many(paths[6:])] == whole


def test_a_state_must_fit(tmp_path: Path) -> None:
    """A state of another method, option, class list or prompt is refused by name."""
    state = tmp_path / "state"
    classifier().save(state)
    encoder = ColourEncoder()
    with refused_in_one_sentence("'anchored'", "'tda'"):
        Classifier(encoder, NAMES, method="tda", state=state)
    with refused_in_one_sentence("memory=1000"):
        Classifier(encoder, NAMES, options={"memory": "3"}, state=state)
    with refused_in_one_sentence("3 other classes"):
        Classifier(encoder, [*NAMES, "grey"], state=state)
    with refused_in_one_sentence("other prompts"):
        Classifier(encoder, NAMES, templates=["a blue thing that is {}."], state=state)


def test_a_state_takes_classes_in_any_order(tmp_path: Path) -> None:
    """The classes of a state may be named in another order; its own order counts."""
    classifier().save(tmp_path / "state")
    again = Classifier(ColourEncoder(), NAMES[::-1], state=tmp_path / "state")
    assert tuple(again.task.class_names) == NAMES


def test_class_names_are_checked() -> None:
    """No names, one text, and a name twice are refused."""
    with refused_in_one_sentence("no class names"):
        Classifier(ColourEncoder())
    with refused_in_one_sentence("list of names"):
        Classifier(ColourEncoder(), "red, green")
    with refused_in_one_sentence("'red'", "more than once"):
        Classifier(ColourEncoder(), ["red", "blue", "red"])


def test_views_depend_on_the_name_only(tmp_path: Path) -> None:
    """The same image under the same name has the same views, whatever came before."""
    paths = save_stream(tmp_path)
    alone = classifier(views=6, method="zero_shot").predict(paths[7])
    after = list(classifier(views=6, method="zero_shot").predict_many(paths))[7]
    assert isinstance(after, Answer)
    assert np.array_equal(alone.prediction.logits, after.prediction.logits)


def test_labelled_images_serve_few_shot_methods(tmp_path: Path) -> None:
    """A method that needs labelled images gets them from a feature file."""
    encoder = ColourEncoder()
    paths = save_stream(tmp_path, 9)
    pixels = np.stack([np.asarray(Image.open(path).resize((16, 16))) for path in paths])
    task = crg.Task(NAMES, encoder.encode_texts(NAMES), encoder.logit_scale)
    labels = np.arange(9) % 3
    crg.write_features(
        tmp_path / "few.npz", crg.Features(encoder.encode_images(pixels), task, labels)
    )
    few = Classifier(encoder, NAMES, few=tmp_path / "few.npz").task.resources["few"]
    assert few.labels == tuple(labels.tolist()) and few.features.shape == (9, 4)
