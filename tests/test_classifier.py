"""Images and class names in, predictions out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import crg
from colour_encoder import COLOURS, ColourEncoder, save_image, save_stream
from crg import InputError
from crg.classifier import Answer, Classifier
from sentences import check_refused, refused_in_one_sentence

NAMES = tuple(COLOURS)


def classifier(**settings: Any) -> Classifier:
    """A classifier of colours."""
    return Classifier(ColourEncoder(), NAMES, **settings)


def facts(answer: Answer | InputError) -> tuple[Any, ...]:
    """What two answers have to share to be the same."""
    assert isinstance(answer, Answer)
    return answer.label, answer.step, np.asarray(answer.prediction.logits).tobytes()


def test_every_kind_of_image_is_taken(tmp_path: Path) -> None:
    """A path, its text, a Pillow image, bytes and an array get one answer beside zero-shot."""
    path = save_image(tmp_path / "green.png", "green")
    image = Image.open(path)
    kinds: list[Any] = [path, str(path), image, path.read_bytes(), np.asarray(image)]
    answers = [classifier(method="zero_shot").predict(kind) for kind in kinds]
    assert {(a.label, a.zero_shot_label, a.changed) for a in answers} == {("green", "green", False)}
    assert len({np.asarray(a.prediction.logits).tobytes() for a in answers}) == 1
    assert answers[0].probability == pytest.approx(answers[0].zero_shot_probability, abs=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("views", [1, 5])
def test_many_give_what_single_ones_give(tmp_path: Path, views: int, workers: int) -> None:
    """A stream in batches gives the answers of one image at a time, whatever came before."""
    paths = save_stream(tmp_path)
    single, many = classifier(views=views), classifier(views=views)
    expected = [facts(single.predict(path)) for path in paths]
    answers = list(many.predict_many(paths, workers=workers))
    assert [facts(each) for each in answers] == expected
    alone = classifier(views=views).encode(paths[7], str(paths[7]))  # by the name only
    assert np.array_equal(alone, answers[7].features)  # type: ignore[union-attr]


def test_images_are_encoded_in_batches(tmp_path: Path) -> None:
    """The encoder gets many views at once; an image that cannot be read yields its error."""
    paths, shared = save_stream(tmp_path, 21), classifier(views=4)
    paths[2].write_bytes(b"no image")
    answers = list(shared.predict_many(paths))
    assert shared.encoder.calls == [60, 20]  # type: ignore[attr-defined]
    assert isinstance(answers[2], InputError) and "002.png" in str(answers[2])
    assert shared.adapter.n_steps == 20
    single: list[Any] = [paths[0], str(paths[0]), Image.new("RGB", (8, 8))]
    for image in single:  # which is no list of images
        check_refused(("a single one", "predict"), list, shared.predict_many(image))


def test_two_passes_answer_with_what_all_images_taught(tmp_path: Path) -> None:
    """The answers of ``Adapter.second_pass``, with errors in their places."""
    paths = save_stream(tmp_path, 8)
    paths[2].write_bytes(b"no image")
    twice, once = classifier(), classifier()
    answers = list(twice.predict_many(paths, passes=2))
    first = [each for each in once.predict_many(paths) if isinstance(each, Answer)]
    expected = list(once.adapter.second_pass([(a.sample_id, a.features) for a in first]))
    assert [n for n, each in enumerate(answers) if isinstance(each, InputError)] == [2]
    final = [each for each in answers if isinstance(each, Answer)]
    assert [a.prediction.probs.tolist() for a in final] == [p.probs.tolist() for p in expected]
    assert final[0].probability != first[0].probability and final[0].pixels is not None
    assert [a.step for a in final] == list(range(1, 8))
    corrected = classifier()
    corrected.correct(paths[0], "red")
    for learnt in (once, corrected):  # two passes begin with nothing learnt
        check_refused("passes=1", list, learnt.predict_many(paths, passes=2))
    check_refused("1 or 2", list, classifier().predict_many(paths, passes=3))


def test_a_state_must_fit(tmp_path: Path) -> None:
    """A state of another method, option or prompt, or without a common class, is refused."""
    state = tmp_path / "state"
    classifier().save(state)
    encoder = ColourEncoder()
    check_refused(("'anchored'", "'tda'"), Classifier, encoder, NAMES, method="tda", state=state)
    check_refused("memory=1000", Classifier, encoder, NAMES, options={"memory": "3"}, state=state)
    check_refused("3 other classes", Classifier, encoder, ["black", "white"], state=state)
    with refused_in_one_sentence("other prompts"):
        Classifier(encoder, NAMES, templates=["a blue thing that is {}."], state=state)


def test_classes_of_a_state_come_and_go(tmp_path: Path) -> None:
    """A state takes more or fewer classes, says which, and answers as if they had changed live."""
    paths, notes = save_stream(tmp_path), []  # type: list[Path], list[str]
    live = classifier()
    list(live.predict_many(paths[:6]))
    live.save(tmp_path / "state")
    live.add_class("grey")
    live.remove_class("green")
    names, state = ["red", "grey", "blue"], tmp_path / "state"
    again = Classifier(ColourEncoder(), names, state=state, on_note=notes.append)
    assert list(again.task.class_names) == ["red", "blue", "grey"]
    answers, expected = ([facts(a) for a in each.predict_many(paths)] for each in (again, live))
    assert answers == expected
    assert len(notes) == 1 and "added grey; removed green" in notes[0]


def test_a_class_is_added_by_the_same_prompts() -> None:
    """An added class has the text features that it would have had from the start."""
    sentences = {name: [f"{name} all over"] for name in NAMES}
    given: dict[str, Any] = {"descriptions": sentences, "templates": ["a photo of a {}."]}
    early, late = classifier(**given), Classifier(ColourEncoder(), NAMES[:2], **given)
    late.add_class(NAMES[2])
    assert np.array_equal(early.task.text_features, late.task.text_features)
    check_refused(("'blue'", "more than once"), late.add_class, "blue")
    check_refused("lack 1 class", late.add_class, "grey")
    check_refused("no text", late.add_class, 3)


def test_a_correction_is_learnt(tmp_path: Path) -> None:
    """A corrected image is answered by its new label, whether it is given as a path or not."""
    *before, path = save_stream(tmp_path)
    for image in (path, path.read_bytes()):
        shared = classifier()
        list(shared.predict_many(before))
        answer = shared.predict(image)
        shared.correct(image, "red", answer.sample_id)
        assert (answer.label, shared.predict(image).label) == ("blue", "red")


def test_a_path_is_known_again_by_its_name(tmp_path: Path) -> None:
    """The earlier label of an image is undone; a correction that is refused changes nothing."""
    shared = classifier(method="tda")
    path = save_image(tmp_path / "a.png", "blue")
    shared.predict(path)
    shared.correct(str(path), "red")
    check_refused("no class 'grey'", shared.correct, path, "grey")
    check_refused("does not exist", shared.correct, tmp_path / "b.png", "red")
    held = {name: [e.sample_id for e in kept] for name, kept in shared.adapter.cache.items()}
    assert held == {"red": [str(path)], "green": [], "blue": []}


def test_load_needs_the_file_alone(tmp_path: Path) -> None:
    """A saved classifier comes back with its model, prompts and views by the name of the file."""
    state, image = tmp_path / "state", Image.new("RGB", (64, 64), "red")
    names = ["red circle", "blue square"]
    first = Classifier("mini", names, templates=["the {}."], views=3, seed=5)
    first.predict(image)
    first.save(state)
    again = Classifier.load(state)
    assert again.settings == first.settings and again.adapter.n_steps == 1
    assert facts(again.predict(image)) == facts(first.predict(image))


@pytest.mark.parametrize("name", ["onnx:some/folder", "hf:folder", "ViT-B-16:weights.pt"])
def test_a_state_never_names_a_file_to_load(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was read from a file of one's own has to be named again."""
    monkeypatch.chdir(tmp_path)
    Path(name.partition(":")[2]).mkdir(parents=True)
    encoder = ColourEncoder()
    encoder.name = name
    Classifier(encoder, NAMES).save(tmp_path / "state")
    check_refused((name, "name the model too"), Classifier.load, tmp_path / "state")
    assert tuple(Classifier.load(tmp_path / "state", encoder).task.class_names) == NAMES


def test_an_edited_state_is_refused(tmp_path: Path) -> None:
    """Settings in a state that are not of their kind are refused in a sentence."""
    shared, state = classifier(), tmp_path / "state"
    for name, value in (("views", "many"), ("workers", 3)):
        shared.adapter.about = {name: value}
        shared.save(state)
        check_refused(("damaged", name), Classifier.load, state, ColourEncoder())


def test_a_with_block_saves(tmp_path: Path) -> None:
    """A block saves to the file that it was loaded from, and an exception leaves that alone."""
    state, image = tmp_path / "state", save_image(tmp_path / "a.png", "red")
    with classifier() as shared:
        shared.save(state)
        shared.predict(image)
    with pytest.raises(KeyError), Classifier.load(state, ColourEncoder()) as again:
        again.predict(image)
        raise KeyError
    assert Classifier.load(state, ColourEncoder()).adapter.n_steps == 1


def test_threads_take_turns(tmp_path: Path) -> None:
    """Threads that predict, correct and change classes at once lose no image."""
    shared, paths = classifier(), save_stream(tmp_path, 30)

    def work(number: int) -> list[Answer]:
        for path in paths[number::10]:
            shared.correct(path, "red")
            shared.add_class(f"class {number}")
            shared.remove_class(f"class {number}")
        return [shared.predict(path.read_bytes()) for path in paths]

    with ThreadPoolExecutor(4) as pool:
        answers = [answer for some in pool.map(work, range(4)) for answer in some]
    assert sorted(answer.step for answer in answers) == list(range(1, 121))
    assert len({answer.sample_id for answer in answers}) == 120
    for answer in answers:
        assert len(answer.zero_shot_probs) == len(np.asarray(answer.prediction.logits))


def test_labelled_images_serve_few_shot_methods(tmp_path: Path) -> None:
    """A method that needs labelled images gets them from a feature file."""
    shared, labels = classifier(), np.arange(9) % 3
    rows = [shared.encode(path, "")[0] for path in save_stream(tmp_path, 9)]
    crg.write_features(tmp_path / "few.npz", crg.Features(np.stack(rows), shared.task, labels))
    few = classifier(few=tmp_path / "few.npz").task.resources["few"]
    assert few.labels == tuple(labels.tolist()) and few.features.shape == (9, 4)
