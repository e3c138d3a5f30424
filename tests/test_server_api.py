"""The API of the service, in process: what each address takes and gives."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import crg
from colour_encoder import ColourEncoder
from crg.answer import COLUMNS
from crg.encoders import load_encoder
from served import NAMES, client, png, refused, send, start

OCTETS, JSON = {"Content-Type": "application/octet-stream"}, "application/json"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[TestClient]:
    """A service in this process."""
    with client(tmp_path) as one:
        yield one


@pytest.fixture
def session(served: TestClient) -> str:
    """The address of a session of three colours."""
    return start(served)


def test_an_image_is_answered_as_the_library_answers_it(served: TestClient, session: str) -> None:
    """Label, probability, top classes, zero-shot and step are those of crg.Classifier."""
    classifier = crg.Classifier(ColourEncoder(), NAMES)
    for step, colour in enumerate(["red", "green", "red", "blue"], 1):
        answer = send(served, session, png(colour, noise=step))
        same = classifier.predict(png(colour, noise=step))
        expected = {
            "step": step, "event": step, "name": None, "label": same.label,
            "probability": same.probability, "zero_shot_label": same.zero_shot_label,
            "zero_shot_probability": pytest.approx(same.zero_shot_probability),
            "changed": same.changed, "outside": round(same.outside, 4),
            "thumbnail": True, "at": answer["at"],
            "top": [{"label": label, "probability": p} for label, p in same.top(5)],
        }  # fmt: skip
        assert answer == expected


def test_images_come_in_three_forms(served: TestClient, session: str) -> None:
    """A form of several images, one body and a feature vector are all learnt, in their order."""
    parts = [("image", ("a.png", png("red"))), ("image", ("b.png", png("blue")))]
    form = served.post(f"{session}/images", files=parts)
    assert [each["name"] for each in form.json()["answers"]] == ["a.png", "b.png"]
    body = served.post(f"{session}/images?name=c.png", content=png(), headers=OCTETS)
    assert body.json()["answers"][0]["name"] == "c.png"
    [feature] = ColourEncoder().encode_texts(["green"])
    features = served.post(f"{session}/images", json={"features": feature.tolist(), "name": "d"})
    [answer] = features.json()["answers"]
    assert answer["label"] == "green" and answer["step"] == 4 and not answer["thumbnail"]
    rows = {"features": [feature.tolist(), feature.tolist()]}
    assert served.post(f"{session}/images", json=rows).json()["answers"][0]["step"] == 5


def test_views_are_made_of_each_image(tmp_path: Path) -> None:
    """A session with views encodes as many rows per image, the same for the same bytes."""
    encoder, content = ColourEncoder(), png("red", (90, 60))
    with client(tmp_path, encoder) as served:
        first, again = (send(served, start(served, views=5), content) for _ in range(2))
    assert encoder.calls == [5, 5] and first["probability"] == again["probability"]


def test_a_correction_is_learnt_and_reported(served: TestClient) -> None:
    """A corrected image changes the state, and its line says what it was corrected to."""
    session = start(served, method="crg")
    assert send(served, session, png("red"))["label"] == "red"
    before = served.get(f"{session}/state").content
    given = served.post(f"{session}/corrections", json={"image": 1, "label": "blue"}).json()
    assert (given["event"], given["step"], given["label"], given["was"]) == (2, 1, "blue", "red")
    assert served.get(f"{session}/state").content != before
    [line] = served.get(f"{session}/answers").text.splitlines()
    assert json.loads(line)["corrected"] == "blue" and json.loads(line)["label"] == "red"
    refused(served.post(f"{session}/corrections", json={"image": 9, "label": "blue"}), 422, "9")
    refused(served.post(f"{session}/corrections", json={"image": 1, "label": "x"}), 422, "'x'")


def test_classes_come_and_go(served: TestClient) -> None:
    """A class that is added can be answered at once; one that is removed cannot."""
    session = served.post("/v1/sessions", json={"classes": ["red", "blue"]}).headers["location"]
    given = served.post(f"{session}/classes", json={"name": "green"}).json()
    assert (given["event"], given["name"]) == (1, "green")
    assert served.get(session).json()["classes"] == ["red", "blue", "green"]
    assert send(served, session, png("green"))["label"] == "green"
    gone = served.delete(f"{session}/classes", params={"name": "green"}).json()
    assert gone == {"event": 3, "at": gone["at"], "name": "green"}
    assert send(served, session, png("green"))["label"] != "green"
    assert served.get(session).json()["classes"] == ["red", "blue"]
    refused(served.post(f"{session}/classes", json={"name": "red"}), 422, "more than once")
    refused(served.delete(f"{session}/classes", params={"name": "red"}), 422, "at least two")
    refused(served.delete(f"{session}/classes", params={"name": "x"}), 422, "no class 'x'")


def test_a_session_reports_its_figures(served: TestClient, session: str) -> None:
    """Counts, classes and curves agree with the answers; a list has each session, newest first."""
    labels = [send(served, session, png(c))["label"] for c in ["red", "red", "blue"] * 50]
    served.post(f"{session}/corrections", json={"image": 1, "label": "blue"})
    given = served.get(session).json()
    assert (given["images"], given["corrections"], given["event"]) == (150, 1, 151)
    assert given["per_class"] == {name: labels.count(name) for name in set(labels)}
    curves = given["curves"]
    assert len(curves["step"]) <= 100 and curves["step"][-1] == 150
    assert {name: counts[-1] for name, counts in curves["per_class"].items()} == given["per_class"]
    assert len(curves["probability"]) == len(curves["changed"]) == len(curves["step"])
    addresses = [session, *[start(served) for _ in range(4)]]
    first = served.get("/v1/sessions?limit=3").json()
    rest = served.get(f"/v1/sessions?limit=3&before={first['next']}").json()
    listed = [f"/v1/sessions/{each['id']}" for each in first["sessions"] + rest["sessions"]]
    assert listed == addresses[::-1] and rest["next"] is None
    assert (rest["sessions"][-1]["images"], rest["sessions"][-1]["n_classes"]) == (150, 3)


def test_answers_are_downloaded_as_lines(served: TestClient, session: str) -> None:
    """Answers come as JSON Lines or CSV, in which no cell is taken for a formula."""
    parts = [("image", ("=1+1.png", png("red"))), ("image", ("b,c.png", png("blue")))]
    sent = served.post(f"{session}/images", files=parts).json()["answers"]
    lines = [json.loads(line) for line in served.get(f"{session}/answers").text.splitlines()]
    for line, answer in zip(lines, sent, strict=True):
        assert "corrected" not in line
        assert line == {key: answer[key] for key in line}
    table = served.get(f"{session}/answers?format=csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["path"] for row in rows] == ["'=1+1.png", "b,c.png"]
    assert tuple(rows[0]) == COLUMNS and [row["step"] for row in rows] == ["1", "2"]
    served.post(f"{session}/corrections", json={"image": 2, "label": "red"})
    table = served.get(f"{session}/answers?format=csv")
    _, row = csv.DictReader(io.StringIO(table.text))
    assert (row["label"], row["probability"], row["corrected"]) == ("red", "1.0", "True")
    assert "attachment" in table.headers["content-disposition"]


def test_a_state_goes_out_and_comes_back(served: TestClient, session: str, tmp_path: Path) -> None:
    """crg.load reads the state, and a session that is started with it continues to the bit."""
    for colour in NAMES * 3:
        send(served, session, png(colour))
    content = served.get(f"{session}/state").content
    (tmp_path / "state.crg").write_bytes(content)
    assert crg.load(tmp_path / "state.crg").n_steps == 9
    other = served.post("/v1/sessions", content=content, headers=OCTETS).headers["location"]
    one, two = (send(served, each, png("blue", noise=5)) for each in (session, other))
    assert one["step"] == two["step"] == 10
    assert {**one, "event": 0, "at": 0} == {**two, "event": 0, "at": 0}
    assert served.get(other).json()["images"] == 1
    for broken in (content[:-9], b"", b"x" * 100):
        refused(served.post("/v1/sessions", content=broken, headers=OCTETS), 422, "The state")
    stranger = crg.create("anchored", crg.Task(NAMES, np.eye(3, 4)))
    stranger.save(tmp_path / "other.crg")
    foreign = (tmp_path / "other.crg").read_bytes()
    refused(served.post("/v1/sessions", content=foreign, headers=OCTETS), 422, "another model")


def test_a_repeated_key_is_answered_and_not_learnt_twice(served: TestClient, session: str) -> None:
    """The same key with the same body gets the stored answer; with another body it is refused."""
    first = send(served, session, png("red"), "k1")
    same = {"Content-Type": "image/png", "Idempotency-Key": "k1"}
    again = served.post(f"{session}/images", content=png("red"), headers=same)
    assert again.json()["answers"] == [first] and again.headers["idempotent-replay"] == "true"
    parts = [("image", ("a.png", png("red")))]
    keyed = {"Idempotency-Key": "k2"}
    forms = [served.post(f"{session}/images", files=parts, headers=keyed) for _ in range(2)]
    assert forms[0].content == forms[1].content  # though their boundaries differ
    refused(served.post(f"{session}/images", content=png("blue"), headers=same), 409, "new one")
    for path, body in (("corrections", {"image": 1, "label": "blue"}), ("classes", {"name": "x"})):
        key = {"Idempotency-Key": path}
        given = [served.post(f"{session}/{path}", json=body, headers=key) for _ in range(2)]
        assert given[0].content == given[1].content
    assert served.get(session).json()["event"] == 4
    bad = {**same, "Idempotency-Key": "a b"}
    refused(served.post(f"{session}/images", content=png(), headers=bad), 400, "visible")


def test_a_deleted_session_is_gone(served: TestClient, session: str, tmp_path: Path) -> None:
    """Nothing of a deleted session can be had, and none of its rows stay."""
    send(served, session, png())
    assert served.delete(session).status_code == 204
    for path in ("", "/answers", "/state", "/events", "/images/1/thumbnail"):
        refused(served.get(f"{session}{path}"), 404)
    refused(served.delete(session), 404)
    log = served.app.state.service.log  # type: ignore[attr-defined]
    for table in ("sessions", "events", "features", "keys", "thumbnails"):
        assert log.rows(f"SELECT count(*) FROM {table}") == [(0,)]


def test_bad_input_is_refused_in_a_sentence(served: TestClient, session: str) -> None:
    """A refused request changes nothing, and gets the sentence of the command line."""
    new: list[tuple[Any, str]] = [
        ({"classes": ["a"]}, "The number of classes is 1: give at least two."),
        ({"classes": ["a", "a"]}, "more than once"),
        ({"classes": ["a", " "]}, "empty"),
        ({"classes": ["a", 1]}, "classes[1]"),
        ({"classes": NAMES, "method": "nope"}, "nope"),
        ({"classes": NAMES, "options": {"nope": 1}}, "no option 'nope'"),
        ({"classes": NAMES, "method": "tip_adapter"}, "labelled images"),
        ({"classes": NAMES, "views": 0}, "give a whole number from 1 to 64"),
        ({"classes": NAMES, "more": 1}, "more"),
    ]
    for body, word in new:
        refused(served.post("/v1/sessions", json=body), 422, word)
    images = f"{session}/images"
    for features in ([1.0], [0.0] * 4, [[1.0] * 4] * 65, [[1.0, 2.0], [1.0]]):
        refused(served.post(images, json={"features": features}), 422)
    for content in (b"", b"no image", png()[:50]):
        assert refused(served.post(images, content=content, headers=OCTETS), 422)["image"] == 1
    parts = [("image", ("a.png", png())), ("image", ("b.png", b"no image"))]
    assert refused(served.post(images, files=parts), 422, "not an image")["image"] == 2
    for text in (b"", b"{", b'{"options": {', b"\xff", b'{"options": ' + b'{"a":' * 100_000):
        sent = served.post("/v1/sessions", content=text, headers={"Content-Type": JSON})
        refused(sent, 400, "not JSON")
    refused(served.post(images, content=b"x", headers={"Content-Type": "text/plain"}), 415)
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    cut = b"--x\r\ncontent-disposition: form-data\r\n\r\n1\r\n"
    for body in (b"", b"--x\r\n", b"nothing", cut):
        refused(served.post(images, content=body, headers=form), 400)
    refused(served.post(images, data={"a": "b"}, files={"c": (None, "d")}), 422, "no image")
    given = served.get(session).json()
    assert (given["event"], given["images"]) == (0, 0)


def test_unknown_addresses_are_problems_too(served: TestClient) -> None:
    """404 and 405 are problem documents; HEAD gives the headers of GET."""
    for path in ("nope", "static/../app.py", "static/%2e%2e/app.py", "v1/sessions/..%2f..%2fetc"):
        refused(served.get(f"/{path}"), 404)
    refused(served.get("/v1/sessions/" + "0" * 32), 404, "no such session")
    refused(answer := served.put("/v1/sessions"), 405)
    assert answer.headers["allow"] in ("GET", "POST")
    head, got = served.head("/v1"), served.get("/v1")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_the_server_says_what_it_is(served: TestClient) -> None:
    """Health, readiness, metrics, facts and OpenAPI with examples are there."""
    send(served, start(served), png())
    assert served.get("/healthz").status_code == served.get("/readyz").status_code == 200
    metrics = served.get("/metrics").text
    assert "crg_images_total 1.0" in metrics and 'route="/v1/sessions/{id}/images"' in metrics
    facts = served.get("/v1").json()
    assert facts["model"] == "colours" and facts["limits"]["max_images"] == 32
    assert facts["examples"] is None  # which the bundled model has
    refused(served.get("/v1/examples/1"), 404, "no such example")
    document = served.get("/openapi.json").json()
    assert "/v1/sessions/{id}/images" in document["paths"]
    operations = [each for path in document["paths"].values() for each in path.values()]
    given = [each["content"] for operation in operations
             for each in operation["responses"].values() if "content" in each]  # fmt: skip
    contents = [each for some in given for kind, each in some.items() if kind.endswith("json")]
    assert len(contents) > 30 and all("example" in each for each in contents)
    assert {tag for each in operations for tag in each["tags"]} == {
        "sessions", "images", "classes", "server"}  # fmt: skip
    assert "<html" in served.get("/").text


def test_a_session_has_a_name(tmp_path: Path) -> None:
    """It is given with classes, with a state or later; a list has it, and a restart keeps it."""
    with client(tmp_path) as served:
        session = start(served, name="kitchen")
        state = served.get(f"{session}/state").content
        assert served.post("/v1/sessions?name=copy", content=state, headers=OCTETS).is_success
        send(served, session, png())
        renamed = served.patch(session, json={"name": "cellar"}).json()
        assert renamed == {"event": 2, "at": renamed["at"], "name": "cellar"}
        refused(served.patch(session, json={"name": "x" * 101}), 422, "name")
    with client(tmp_path) as served:
        listed = served.get("/v1/sessions").json()["sessions"]
        assert [each["name"] for each in listed] == ["copy", "cellar"]
        assert send(served, session, png())["step"] == 2
        assert "crg_replay_differences_total 0.0" in served.get("/metrics").text
        served.patch(session, json={"name": ""})
        assert served.get(session).json()["name"] is None


@pytest.mark.parametrize(
    "encoder", [ColourEncoder(), load_encoder("mini")], ids=["colours", "mini"]
)
def test_every_method_that_is_offered_runs(tmp_path: Path, encoder: Any) -> None:
    """And only those: one that needs labelled images or gradients is refused where they lack."""
    with client(tmp_path, encoder) as served:
        offered = served.get("/v1").json()["methods"]
        for method in crg.list_methods():
            answer = served.post("/v1/sessions", json={"classes": NAMES, "method": method})
            assert answer.is_success == (method in offered)
            if method in offered:
                send(served, answer.headers["location"], png())
    assert ("tpt" in offered) == (encoder.name == "mini") and "anchored" in offered
