"""Interfaces that people know: Hugging Face's, Label Studio's and cleanlab's; known labels."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from PIL import Image

import crg
from colour_encoder import COLOURS, ColourEncoder, save_image, use_colours
from crg.predict.answers import AnswerFile, Line, read_answers
from crg.predict.corrections import compared, label_studio_files, read_corrections
from crg.predict.pipeline import TASK
from processes import called
from sentences import check_refused
from served import NAMES, client, png, refused, start

RED, BLUE = (Image.new("RGB", (24, 20), COLOURS[name]) for name in ("red", "blue"))


def asked(**parameters: Any) -> dict[str, Any]:
    """A request as clients of Hugging Face's inference API send it."""
    image = base64.b64encode(png()).decode()
    return {"inputs": image, "parameters": {"candidate_labels": NAMES, **parameters}}


def test_a_pipeline_keeps_what_it_learnt_while_labels_stay() -> None:
    """Labels may come and go; another template or list starts over; a refusal changes nothing."""
    pipe = crg.pipeline(TASK, model=ColourEncoder())
    one, several = pipe(RED, candidate_labels=NAMES), pipe([RED, BLUE], candidate_labels=NAMES)
    assert [each["label"] for each in one] == [each["label"] for each in several[0]]
    assert one[0]["label"] == "red" and several[1][0]["label"] == "blue"
    assert abs(sum(each["score"] for each in one) - 1) < 1e-6
    pipe(RED, candidate_labels=["red", "blue", "pink"])
    before = pipe.classifier
    assert before is not None and before.task.class_names == ("red", "blue", "pink")
    assert pipe([], candidate_labels=NAMES) == [] and before.adapter.n_steps == 4
    wrong: list[Any] = [("none.png", NAMES), ([RED, b"?"], NAMES), (RED, "red"), (RED, ["red"])]
    wrong += [(RED, None), (RED, iter(NAMES))]
    for images, labels in wrong:
        check_refused((), pipe, images, candidate_labels=labels)
    check_refused((), pipe, RED, candidate_labels=NAMES, hypothesis_template=None)
    assert pipe.classifier is before and before.adapter.n_steps == 4
    pipe(RED, candidate_labels=["pink", "grey"])
    assert pipe.classifier is not before
    pipe(RED, candidate_labels=["pink", "grey"], hypothesis_template="art of {}.")
    assert pipe.classifier.adapter.n_steps == 1


def test_a_pipeline_that_does_not_adapt_scores_as_the_model_does() -> None:
    """Nothing is learnt, and every call gives the same."""
    pipe = crg.pipeline(model=ColourEncoder(), adapt=False, method="crg")
    first = pipe(RED, candidate_labels=NAMES)
    assert pipe([RED, BLUE], candidate_labels=NAMES)[0] == first and pipe.classifier is None
    assert pipe(RED, candidate_labels=NAMES, adapt=True)
    assert "method='crg'" in repr(pipe.classifier)
    check_refused(TASK, crg.pipeline, "image-classification")


@pytest.mark.filterwarnings("ignore:You should not use the 'timeout'")
def test_the_service_answers_clients_of_hugging_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real client gets scores; in a session they adapt, and survive a restart."""
    hub: Any = pytest.importorskip("huggingface_hub.inference._client")
    with client(tmp_path) as served:
        monkeypatch.setattr(hub, "get_session", lambda: served)
        session = start(served)
        ask, learn = (
            hub.InferenceClient(f"{served.base_url}/v1/zero-shot{more}", token="a token")
            .zero_shot_image_classification for more in ("", f"?session={session[-32:]}")
        )  # fmt: skip
        plain = ask(png("red"), candidate_labels=NAMES, hypothesis_template="art of {}.")
        many = learn(png("blue"), candidate_labels=[*NAMES, *"abcdefgh"])
        last = learn(png("blue"), candidate_labels=["pink", "blue"])
        assert plain[0].label == "red" and len(plain) == 3 and len(many) == 11
        assert [each.label for each in last] == ["blue", "pink"]
        assert served.get(session).json()["classes"] == ["blue", "pink"]
        state = served.get(f"{session}/state").content
    with client(tmp_path) as served:
        assert served.get(f"{session}/state").content == state
        assert "differences_total 0.0" in served.get("/metrics").text


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"inputs": "?"}, 422, "base64"),
        ({"inputs": base64.b64encode(b"text").decode()}, 422, "image"),
        ({"inputs": "A" * 4000}, 413, "scale it down"),
        ({"parameters": {"candidate_labels": ["red"]}}, 422, "at least two"),
        ({"parameters": {"candidate_labels": ["red"] * 9}}, 422, "may have 8"),
        (asked(hypothesis_template="art"), 422, "{}"),
        ({"parameters": {}}, 422, "candidate_labels"),
    ],
)
def test_requests_that_cannot_be_scored_are_refused(
    tmp_path: Path, change: dict[str, Any], status: int, words: str
) -> None:
    """Whatever is wrong with the image, the labels or the template."""
    with client(tmp_path, max_bytes=2000, max_classes=8) as served:
        refused(served.post("/v1/zero-shot", json=asked() | change), status, words)
        given = asked(hypothesis_template="art of {}.")
        here = f"/v1/zero-shot?session={start(served)[-32:]}"
        refused(served.post(here, json=given), 422, "leave hypothesis_template out")
        refused(served.post("/v1/zero-shot?session=none", json=given), 404)


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images of three colours in the folders of their names, four of them in a wrong one."""
    for number in range(48):
        place = NAMES[(number + (number < 4)) % 3].upper()
        save_image(here / "in" / place / f"{number}.png", NAMES[number % 3], number)
    use_colours(monkeypatch)
    return here


def predict(*words: str, code: int = 0) -> Result:
    """The command in this process."""
    return called("predict", "in", "--classes", ",".join(NAMES), *words, code=code)


def test_known_labels_are_compared_and_not_learnt(folder: Path) -> None:
    """By folders or a file, at once or later; answers are the same byte for byte."""
    plain, measured = predict("--out", "a.csv"), predict("--out", "b.csv", "--truth", "folders")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    said = measured.stderr.removeprefix(plain.stderr).splitlines()
    assert said[0] == (
        "Adaptation makes no significant difference: 91.7% of 48 images correct, "
        "zero-shot 91.7%, gain +0.0 points (95% interval +0.0 to +0.0)."
    )
    assert said[1].split() == ["class", "images", "correct", "zero-shot"]
    assert sum(int(line.split()[1]) for line in said[2:5]) == 48
    assert (
        said[5].endswith("answered as red") and sum(int(line.split()[0]) for line in said[5:]) == 4
    )
    lines = [
        f'{{"path": "{Path(line["path"]).relative_to("in")}", "label": "Red"}}\n'
        for line in read_answers(Path("a.csv"))
    ]
    Path("in/truth.jsonl").write_text("".join(lines))
    later = predict("--out", "a.csv", "--resume", "--truth", "in/truth.jsonl")
    assert "33.3% of 48 images correct" in later.stderr


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(30, 20, "Adaptation helps: 75.0%"), (20, 30, "Adaptation hurts"), (0, 20, "Label right"),
     (30, 29, "Adaptation makes no")],
)  # fmt: skip
def test_the_verdict_follows_from_the_interval(
    tmp_path: Path, ours: int, theirs: int, verdict: str
) -> None:
    """Better, worse or neither; labels of wrong answers alone say nothing."""
    lines = [{"path": f"a/{n}", "step": n, "label": "ab"[n >= ours],
              "zero_shot_label": "ab"[n >= theirs]} for n in range(40)]  # fmt: skip
    more: list[dict[str, Any]]
    more = [{"path": "a/x", "corrected": True}, {"path": "a/y", "label": ""}, {"path": "c/z"}]
    extra = [*({**lines[0], **each} for each in more), {"path": "a/u", "error": "broken"}]
    said = list(compared([*lines, *extra], "folders", ["a", "b"]))
    assert said[0].startswith(verdict)
    assert [line.split()[0] for line in said[-3:]] == ["1", "1", "1"]
    assert next(compared(lines[:29], "folders", ["a", "b"])).startswith("30 labels are needed")


def test_label_studio_takes_the_tasks_and_gives_corrections_back(folder: Path) -> None:
    """Its SDK finds every prediction valid; JSON, JSON-MIN and CSV are read as corrections."""
    predict("--out", "a.jsonl", "--export", "label-studio", "--unsure-below", "0.99")
    tasks, configuration = (file.read_text() for file in label_studio_files(Path("a.jsonl")))
    labels = {
        line["path"]: line["label"] for line in read_answers(Path("a.jsonl")) if line["label"]
    }
    done = [{**task, "id": 1, "annotations": [{"id": 1, "completed_by": 1, **predicted[0]}]}
            for task in json.loads(tasks) if (predicted := task.get("predictions"))]  # fmt: skip
    Path("done.json").write_text(json.dumps(done))
    assert read_corrections(Path("done.json")) == labels
    Path("two.json").write_text(
        json.dumps(done).replace('"result": [', '"result": [{"value": {}}, ')
    )
    assert read_corrections(Path("two.json")) == labels  # remarks beside a label are no labels
    Path("two.json").write_text(json.dumps(done).replace('["red"]', '["red", "blue"]'))
    check_refused("two.json", read_corrections, Path("two.json"))
    predict("--out", "b.jsonl", "--corrections", "done.json", "--export", "label-studio")
    assert read_corrections(label_studio_files(Path("b.jsonl"))[0]) == labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk: Any = pytest.importorskip("label_studio_sdk.label_interface")
        converters: Any = pytest.importorskip("label_studio_sdk.converter")
    interface = sdk.LabelInterface(configuration)
    assert all(interface.validate_prediction(task["predictions"][0]) for task in done)
    assert interface.validate_task({"data": done[0]["data"]})
    done[0]["predictions"][0]["result"][0]["value"]["choices"] = ["grey"]
    assert not interface.validate_prediction(done[0]["predictions"][0])
    converter = converters.Converter(configuration, str(folder), download_resources=False)
    converter.convert_to_json_min("done.json", "min", is_dir=False)
    converter.convert_to_csv("done.json", "csv", is_dir=False, sep=",", header=True)
    for file in ("min/result.json", "csv/result.csv"):
        assert read_corrections(Path(file)) == labels


@pytest.mark.parametrize("passes", ["1", "2"])
def test_probabilities_are_what_cleanlab_reads(
    folder: Path, passes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row per answer, columns as in --classes, also after a stop; cleanlab finds wrong labels."""
    left, add = 20, AnswerFile.add

    def stopping(self: AnswerFile, line: Line) -> None:
        nonlocal left
        left -= self.rows is not None  # the first pass has none
        if left == 0:  # the row is written, its line is not
            raise KeyboardInterrupt
        add(self, line)

    monkeypatch.setattr(AnswerFile, "add", stopping)
    given = ("--passes", passes, "--out", "a.jsonl", "--probabilities", "p.npy")
    predict(*given, code=130)
    assert not Path("p.npy").exists()
    turned = ("--classes", ",".join(NAMES[::-1]), *given, "--resume")
    other = predict(*turned, code=2)  # with a state or without one
    assert f"another value of {'columns' if passes == '2' else 'classes'}" in other.stderr
    predict(*given, "--resume")
    probs, answers = np.load("p.npy"), read_answers(Path("a.jsonl"))
    assert probs.shape == (48, 3) and probs.dtype == np.float32
    assert [NAMES[k] for k in probs.argmax(axis=1)] == [line["label"] for line in answers]
    assert np.allclose(probs.max(axis=1), [line["probability"] for line in answers], atol=1e-6)
    filters: Any = pytest.importorskip("cleanlab.filter")
    given_labels = np.array(
        [NAMES.index(Path(line["path"]).parent.name.lower()) for line in answers]
    )
    found = filters.find_label_issues(given_labels, probs)
    assert {Path(answers[k]["path"]).stem for k in np.flatnonzero(found)} == set("0123")


@pytest.mark.parametrize(
    ("words", "said"),
    [("empty --classes red,blue", "found in empty:"), ("in", "(in commands: --classes)")],
)
def test_missing_images_and_names_are_named(folder: Path, words: str, said: str) -> None:
    """The sentence names an empty folder, and the option that takes class names."""
    Path("empty").mkdir()
    assert said in called("predict", *words.split(), code=2).stderr
