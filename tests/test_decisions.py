"""Decisions beside a method: images of no class are found and not learnt; sets hold the truth."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import crg
from colour_encoder import ColourEncoder, save_image, use_colours
from crg.adapter import create, load
from crg.parts.decisions import Calibration
from crg.types import InputError
from made_files import encoded
from processes import called
from served import NAMES, client, png, refused, send, start
from synthetic import unit


def mixture(seed: int, n: int = 300, foreign: float = 0.2) -> tuple[crg.Task, Any, Any]:
    """A task, images (n, D) and their classes: some images are of none, which is -1."""
    rng = np.random.default_rng(seed)
    centres = unit(rng.normal(size=(9, 48)))
    text = unit(centres[:6] + 0.05 * rng.normal(size=(6, 48)))
    labels = np.where(rng.random(n) < foreign, 6 + rng.integers(3, size=n), rng.integers(6, size=n))
    images = unit(centres[labels] + 0.06 * rng.normal(size=(n, 48)))
    task = crg.Task([f"class {k}" for k in range(6)], text.astype(np.float32), 20.0)
    return task, images.astype(np.float32), np.where(labels < 6, labels, -1)


def decided(adapter: crg.Adapter, images: Any) -> list[crg.Prediction]:
    """The answers to a stream, one by one, each image under its number as a name."""
    return [adapter.step(image, f"image {i}") for i, image in enumerate(images)]


def content(adapter: crg.Adapter) -> dict[str, str]:
    """Everything that the next step of the method depends on, comparable."""
    return {key: repr(np.asarray(value).tolist()) for key, value in adapter._method.state().items()}


def plain_scores(task: crg.Task, images: Any) -> list[float]:
    """The scores by their definition, each from all images up to its own."""
    cosines = images.astype(float) @ task.text_features.astype(float).T
    best = np.exp(cosines).max(axis=1) / np.exp(cosines).sum(axis=1)
    facts = -np.stack([cosines.max(axis=1), best])
    scores = [0.0]
    for n in range(2, len(images) + 1):
        seen = facts[:, :n]
        scores.append(float(((seen[:, -1] - seen.mean(axis=1)) / seen.std(axis=1)).sum()))
    return scores


def error(scores: Any, k: int) -> float:
    """What Gaussians for the k smallest scores and for the others get wrong, up to constants."""
    parts = (scores[:k], scores[k:])
    sizes = [len(part) / len(scores) for part in parts]
    return sum(
        p * (math.log(part.var()) - 2 * math.log(p)) for p, part in zip(sizes, parts, strict=True)
    )


def test_outside_is_the_standardised_score_of_the_stream() -> None:
    """It is Phi(s / 2), an Otsu split or the tail is the threshold, and it ranks foreign images."""
    task, images, labels = mixture(seed=1)
    adapter = create("zero_shot", task)
    adapter.decide("auto")
    found = [each.decision for each in decided(adapter, images)]
    scores = plain_scores(task, images)
    phi = [0.5 * math.erfc(-score / 2 / math.sqrt(2)) for score in scores]
    np.testing.assert_allclose([each.outside for each in found], phi, atol=1e-4)
    limit = math.inf
    for place, each in enumerate(found):
        if place >= 64 and place % 16 == 0:
            some = np.sort(scores[max(0, place - 512) : place])
            splits = [(k * (len(some) - k) * (some[k:].mean() - some[:k].mean()) ** 2, k)
                      for k in range(1, len(some))]  # fmt: skip
            between, k = max(splits)
            median, low = np.quantile(some, [0.5, 0.1587])
            limit = median + 3 * (median - low)
            if between / len(some) ** 2 >= 0.78 * some.var():
                k = min(range(k, max(k + 1, len(some) - 15)), key=lambda k: error(some, k))
                limit = min(limit, (some[k - 1] + some[k]) / 2)
        assert each.none_of_these == (scores[place] > limit)
    inside = np.asarray(scores)[labels >= 0]
    assert np.mean([np.mean(inside < score) for score in np.asarray(scores)[labels < 0]]) > 0.97
    flagged = np.array([each.none_of_these for each in found])
    assert flagged[64:][labels[64:] < 0].mean() > 0.8 and flagged[labels >= 0].mean() < 0.02


@pytest.mark.parametrize("method", ["zero_shot", "anchored", "crg", "tda"])
def test_what_is_none_of_these_is_answered_and_not_learnt(method: str) -> None:
    """The method ends as if it had never met those images, in one call or many, saved or copied."""
    task, images, _ = mixture(seed=2, n=160)
    adapter, without, together = (create(method, task) for _ in range(3))
    adapter.decide("auto")
    together.decide("auto")
    answers = decided(adapter, images)
    many = together.step_many(images, [f"image {i}" for i in range(len(images))])
    foreign = [bool(each.decision.none_of_these) for each in answers]
    assert sum(foreign) > 5 and [each.decision for each in many] == [e.decision for e in answers]
    for i, image in enumerate(images):
        if not foreign[i]:
            without.step(image, f"image {i}")
    assert content(adapter) == content(without) == content(together)
    assert adapter.n_steps == len(images)


def test_decisions_are_saved_copied_reset_and_shared_by_a_second_pass(tmp_path: Path) -> None:
    """A loaded adapter decides to the bit as the one that was saved; reset forgets the stream."""
    task, images, labels = mixture(seed=3)
    adapter = create("anchored", task)
    adapter.decide("auto", 0.9)
    decided(adapter, images[:200])
    for i in range(25):
        adapter.correct(images[i], f"class {max(0, labels[i])}", f"image {i}")
    adapter.save(tmp_path / "state.crg")
    loaded, twin = load(tmp_path / "state.crg"), copy.deepcopy(adapter)
    loaded.decide("auto", 0.9)
    expected = [each.decision for each in decided(adapter, images[200:])]
    assert [each.decision for each in decided(loaded, images[200:])] == expected
    assert [each.decision for each in decided(twin, images[200:])] == expected
    stream = [(f"image {i}", image) for i, image in enumerate(images)]
    second = [bool(each.decision.none_of_these) for each in adapter.second_pass(stream)]
    assert np.mean(np.array(second)[labels >= 0]) < 0.02
    assert not any(second[:25])  # a person has named them
    assert np.mean(np.array(second)[25:][labels[25:] < 0]) > 0.8
    adapter.reset()
    assert adapter.step(images[0]).decision.outside == 0.5


def test_sets_take_the_finite_sample_quantile_of_honest_scores() -> None:
    """The ceil((n + 1) level)-th smallest score decides; a label that was learnt gives none."""
    calibration = Calibration()
    for i in range(1, 21):
        calibration = calibration.labelled(i, "cat", 1 - i / 100)  # scores 0.01 to 0.20
    assert calibration.labelled(7, "cat", 0.99) is calibration
    other = calibration.labelled(7, "dog", 0.99)
    assert other.knows(7) and len(other.scores) == len(other.labelled(7, "cat", 1.0).scores) == 19
    assert calibration.set_of(np.array([0.85, 0.84]), 1e-12) == [0]
    probs = np.array([0.0, 0.805, 0.1, 0.815])
    assert calibration.set_of(probs, 0.9) == [3]  # ceil(18.9): 0.19
    assert calibration.set_of(probs, 0.95) == [3, 1]  # ceil(19.95): 0.20
    assert calibration.set_of(probs, 0.99) == [3, 1, 2, 0]
    assert calibration.set_of(np.array([0.5, 0.3, 0.2, 0.0]), 0.9) == [0]  # never empty
    for i in range(600):
        calibration = calibration.labelled(f"more {i}", "cat", i / 600)
    assert len(calibration.entries) == 512 and calibration.entries[0][0] == "more 88"


def test_sets_hold_the_true_class_as_often_as_asked() -> None:
    """Where labelled images are a random part of the stream, about nine times out of ten."""
    held, sizes = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centres = unit(rng.normal(size=(6, 16)))
        labels = rng.integers(6, size=400)
        images = unit(centres[labels] + 0.35 * rng.normal(size=(400, 16)))
        adapter = create("anchored", crg.Task([str(k) for k in range(6)], centres, 6.0))
        adapter.decide(sets=0.9)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            decision = adapter.step(image, f"image {i}").decision
            if decision.class_set:
                held.append(str(label) in decision.class_set)
                sizes.append(len(decision.class_set))
            if i % 5 == 0:
                adapter.correct(image, str(label), f"image {i}")
    assert 0.86 < np.mean(held) < 0.97 and 1.0 < np.mean(sizes) < 3.5


@pytest.mark.parametrize("given", [{"none_of_these": 1.0}, {"none_of_these": "often"},
                                   {"sets": 0}, {"sets": math.nan}, {"sets": True},
                                   {"sets": 10**400}, {"none_of_these": np.ones(2)}])  # fmt: skip
def test_levels_are_checked(given: dict[str, Any]) -> None:
    """A number beyond (0, 1), or no number, is refused by its name."""
    with pytest.raises(InputError, match=f"{next(iter(given))} is .*: give a number between 0"):
        crg.Classifier(ColourEncoder(), NAMES, **given)


GREY = encoded(Image.new("RGB", (24, 20), (120, 120, 120)), "PNG")  # an image of no colour


@pytest.fixture
def colours(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with 90 images of colours, every tenth of which is grey."""
    use_colours(monkeypatch)
    for i in range(90):
        path = save_image(Path(f"in/{i:03}.png"), NAMES[i % 3], noise=i)
        if i % 10 == 9:
            path.write_bytes(GREY)
    rows = [
        f'{{"path": "in/{i:03}.png", "label": "{NAMES[i % 3]}"}}' for i in range(25) if i % 10 != 9
    ]
    Path("some.jsonl").write_text("\n".join(rows[:12]))
    Path("many.jsonl").write_text("\n".join(rows))
    return here


def predicted(*words: str) -> Any:
    """``crg predict`` on the images, which must go well."""
    return called("predict", "in", "--classes", ",".join(NAMES), *words)


def test_predict_puts_images_of_no_class_apart(colours: Path) -> None:
    """They have no label, a folder and a count of their own, and a resumed file is the same."""
    words = ("--none-of-these", "--sets", "0.9", "--corrections", "many.jsonl")
    said = predicted(*words, "--out", "a.csv", "--sort-into", "sorted").stderr
    head, *rows = Path("a.csv").read_text().splitlines()
    assert "none_of_these,class_set,sorted_to" in head and ",outside," in head
    grey = {f"{i:03}.png" for i in range(9, 90, 10)}
    assert {each.name for each in Path("sorted/none of these").iterdir()} == grey
    assert f"{len(grey)} none of these" in said and "(none of these)" in said
    assert sum('"[""red""]"' in row for row in rows) > 10
    predicted(*words, "--passes", "1", "--out", "b.csv")
    whole = Path("b.csv").read_bytes()
    lines = Path("b.csv.resume/answers.jsonl")
    lines.write_bytes(b"".join(lines.read_bytes().splitlines(keepends=True)[:70]))
    Path("b.csv.resume/state").unlink()
    predicted(*words, "--passes", "1", "--out", "b.csv", "--resume")
    assert Path("b.csv").read_bytes() == whole
    called("review", "a.csv", "--out", "page.html")
    assert '"none_of_these": true' in Path("page.html").read_text()


def test_predict_says_how_many_labels_sets_lack(colours: Path) -> None:
    """Twenty are needed; until then answers have no set, and the summary has the number."""
    said = predicted("--sets", "0.9", "--corrections", "some.jsonl", "--out", "a.jsonl").stderr
    assert "Sets need 20 corrected images: correct 8 more." in said
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    assert all(line["class_set"] == [] for line in lines if not line.get("corrected"))
    swallowed = called("predict", "--none-of-these", "in", "--classes", "a,b", code=2)
    assert "--none-of-these is 'in': give a number between 0 and 1 or auto." in swallowed.output


def test_a_session_decides_and_comes_back_deciding(tmp_path: Path) -> None:
    """Its answers carry decisions, corrections work on them, and a replayed log gives the same."""
    with client(tmp_path) as served:
        session = start(served, none_of_these="auto", sets=0.9)
        for number in range(70):
            send(served, session, png(NAMES[number % 3], noise=number % 7))
        grey = send(served, session, GREY)
        assert grey["none_of_these"] and grey["label"] == "" and grey["outside"] > 0.9
        assert grey["missing_labels"] == 20 and grey["class_set"] == []
        for step in (71, *range(1, 20)):
            body = {"image": step, "label": NAMES[(step - 1) % 3]}
            assert served.post(f"{session}/corrections", json=body).status_code == 200
        known = served.get(session).json()
        assert known["decisions"] == {"none_of_these": "auto", "sets": 0.9}
        assert known["per_class"]["none of these"] == 1
        table = served.get(f"{session}/answers", params={"format": "csv"}).text
        assert "corrected,none_of_these,class_set\n" in table and ",True,True," not in table
        state = served.get(f"{session}/state").content
        refused(served.post("/v1/sessions", json={"classes": NAMES, "sets": 2.0}), 422, "sets is 2")
    for snapshot in list(tmp_path.rglob("*.crg")):
        snapshot.unlink()  # so that the log is replayed
    with client(tmp_path) as served:
        one = send(served, session, png("red", noise=3))
        assert one["class_set"] == ["red"] and "missing_labels" not in one
        assert "crg_replay_differences_total 0" in served.get("/metrics").text
        new = served.post("/v1/sessions?none_of_these=0.9&sets=0.8", content=state,
                          headers={"Content-Type": "application/octet-stream"})  # fmt: skip
        assert new.json()["decisions"] == {"none_of_these": 0.9, "sets": 0.8}
