"""The service over a real socket: starting, watching, requests of all kinds, bad clients."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from colour_encoder import ColourEncoder
from crg.server.app import serve
from crg.server.limits import ServerConfig
from sentences import check_sentence, refused_in_one_sentence
from served import Process, png, send, start

CHUNKED = "Transfer-Encoding: chunked"
STREAMS = "/v1/sessions/{id}/events"  # it has no end to wait for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One server for all tests; it stops as it should, and nothing in it failed."""
    folder = tmp_path_factory.mktemp("served")
    with Process(folder, body_timeout=1, max_watchers=8) as process:
        yield process
        code, said = process.stop()
        assert code == 0 and "Traceback" not in said


def events(lines: Iterator[str], count: int) -> list[tuple[int, str, Any]]:
    """The next events of a stream: number, kind and data."""
    found: list[tuple[int, str, Any]] = []
    while len(found) < count:
        block = iter(lambda: next(lines), "")  # up to an empty line
        fields = dict(line.split(": ", 1) for line in block if not line.startswith(":"))
        if fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def test_events_reach_every_watcher_and_resume(server: Process) -> None:
    """Watchers see all events in order; Last-Event-ID sends what was missed, then what is new."""
    with server.client() as client, server.client() as watching:
        session = start(client)
        with watching.stream("GET", f"{session}/events") as stream:
            lines = stream.iter_lines()
            next(lines)  # it is open
            sent = [send(client, session, png(noise=seed)) for seed in range(3)]
            body = {"image": 1, "label": "blue"}
            correction = client.post(f"{session}/corrections", json=body).json()
            seen = events(lines, 4)
        answers = [(number, "answer", each) for number, each in enumerate(sent, 1)]
        assert seen == [*answers, (4, "correction", correction)]
        headers = {"Last-Event-ID": "2"}
        with watching.stream("GET", f"{session}/events?after=0", headers=headers) as stream:
            lines = stream.iter_lines()
            assert events(lines, 2) == seen[2:]
            later = send(client, session, png(noise=9))
            assert events(lines, 1) == [(5, "answer", later)]
            client.delete(session)
            assert events(lines, 1) == [(0, "deleted", {})]
            assert list(lines) in ([], [""])


def test_too_many_watchers_are_refused_and_places_come_back(server: Process) -> None:
    """Streams beyond the limit get 429; one that is closed makes room."""
    with server.client() as client:
        session = start(client)
        sockets = [server.request(f"GET {session}/events HTTP/1.1") for _ in range(8)]
        assert all(b" 200 " in each.recv(4096) for each in sockets)
        assert client.get(f"{session}/events").status_code == 429
        for each in sockets:
            each.close()
        for _ in range(200):
            with client.stream("GET", f"{session}/events") as stream:
                if stream.status_code == 200:
                    return
        raise AssertionError("the places never came back")


def test_slow_and_broken_clients_harm_nobody(server: Process) -> None:
    """Half-sent and slow bodies end in 408 or a closed socket; a chunked body is read."""
    with server.client() as client:
        session = start(client)
        head = f"POST {session}/images HTTP/1.1"
        kind = "Content-Type: image/png\r\nContent-Length: 1000\r\n"
        slow = [server.request(head, kind) for _ in range(5)]
        for each in slow[:2]:
            each.sendall(b"x" * 500)
            each.close()
        answer = send(client, session, png())
        assert answer["step"] == 1
        assert b" 408 " in slow[2].recv(4096)
        large = "Content-Type: image/png\r\nContent-Length: 99999999999\r\n"
        with server.request(head, large) as refused:
            assert b" 413 " in refused.recv(4096)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as garbage:
            garbage.sendall(b"\x16\x03\x01\x02\x00" * 50 + b"\r\n\r\n")
            assert b" 400 " in garbage.recv(4096)
        for each in slow:
            each.close()
        content, headers = png("red", (400, 300)), {"Content-Type": "image/png"}
        chunks = (content[place : place + 100] for place in range(0, len(content), 100))
        chunked = client.post(f"{session}/images", content=chunks, headers=headers)
        assert chunked.json()["answers"][0]["step"] == 2 == client.get(session).json()["images"]


def hostile(session: str) -> list[tuple[str, str, str, bytes]]:
    """Requests that are long to parse: address, media type, further headers, body."""
    json_type, form = "application/json", "multipart/form-data; boundary=b"
    fields = ", ".join(f'"f{n}": 0' for n in range(300_000))
    part = b'--b\r\nContent-Disposition: form-data; name="i"; filename="a"\r\n\r\n'
    near, images = b"\r\n--" * 5_000_000, f"POST {session}/images"
    named = b'{"classes": ["a", "b"], "%b": %b}'
    return [
        ("GET /v1", "", "Cookie: crg_token=" + '\\"' * 30_000, b""),
        ("GET /v1", "", "Cookie: " + "a=b;" * 16_000, b""),
        ("GET /v1", "", "Cookie: " + "x" * 3_000_000, b""),
        ("POST /login", json_type, "", f"{{{fields}}}".encode()),
        (images, json_type, "", b'{"features": [' + b'"",' * 1_300_000 + b'""]}'),
        (images, json_type, "", b'{"features": [' + b"0," * 1_900_000 + b"0]}"),
        (images, json_type, "", b'{"features": [' + b"[]," * 1_300_000 + b"[]]}"),
        ("POST /v1/sessions", json_type, "", b'{"classes": [' + b"1," * 1_900_000 + b"1]}"),
        ("POST /v1/sessions", json_type, "", b'{"classes": [' + b'"a",' * 900_000 + b'"b"]}'),
        ("POST /v1/sessions", json_type, "", named % (b"method", b'"%b"' % (b"tda" * 1_300_000))),
        ("POST /v1/sessions", json_type, "", named % (b"name" * 900_000, b"1")),
        ("POST /v1/zero-shot", json_type, "", b'{"parameters": ["' + b'", "' * 5_000_000 + b'"]}'),
        (images, form, "", part + near + b"\r\n--b--\r\n"),
        (images, form, "", b"--b\r\na: " * 2_000_000 + b"\r\n--b--\r\n"),
        (images, "image/png", CHUNKED, b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n"),
    ]


def test_no_request_keeps_others_waiting(server: Process) -> None:
    """While hostile heads and bodies are refused, another client is answered as if idle."""

    def worst(work: Callable[[], object]) -> float:
        """The longest time in which another client was answered during some work."""
        with server.client() as client, ThreadPoolExecutor(1) as pool:
            times: list[float] = []
            done = pool.submit(work)
            while not done.done() or len(times) < 50:
                begun = time.perf_counter()
                assert client.get("/readyz").status_code == 200
                times.append(time.perf_counter() - begun)
            done.result()
        return max(times)

    def send_all() -> None:
        for line, kind, more, body in hostile(session):
            head = f"Content-Type: {kind}\r\n" * bool(kind) + f"{more}\r\n" * bool(more)
            size = "" if more == CHUNKED else f"Content-Length: {len(body)}\r\n"
            given = f"{line} HTTP/1.1", head + size, body
            # A connection may be closed before all was sent.
            with contextlib.suppress(ConnectionError), server.request(*given) as answer:
                status = int(answer.recv(4096).split()[1])
                assert status in (200, 400, 408, 413, 422), (line, kind, status)

    with server.client() as client:
        session = start(client)
        idle = max(worst(lambda: time.sleep(0.3)) for _ in range(3))
        assert worst(send_all) < max(1.0, 100 * idle)
        assert send(client, session, png())["step"] == 1


def test_nothing_fails_whatever_is_sent(server: Process) -> None:
    """Generated requests, valid or not, get the answers that OpenAPI documents, never a 500."""
    import schemathesis  # which takes a second, and no other test needs

    with server.client() as client:
        session = start(client)
        send(client, session, png())
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        operations: list[Any] = [each.ok() for each in schema.get_all_operations()]
        assert len(operations) > 12
        for operation in operations:
            if operation.path != STREAMS:
                _fuzz(operation, session.rpartition("/")[2])
        assert client.get("/readyz").status_code == 200


def _fuzz(operation: Any, session: str) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [not_a_server_error, checks.content_type_conformance,
              checks.response_schema_conformance, checks.status_code_conformance]  # fmt: skip

    @seed(16)
    @settings(max_examples=8, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        if "id" in case.path_parameters and case.method != "DELETE":
            case.path_parameters["id"] = session
        answer = case.call_and_validate(checks=wanted)
        if answer.headers.get("content-type") == ["application/problem+json"]:
            check_sentence(answer.json()["detail"])

    check()


REFUSED: list[tuple[str, str, dict[str, Any]]] = [  # sentence, token, options
    ("CRG_TOKEN", "", {"host": "0.0.0.0"}),
    ("add --engine ray", "", {"address": "127.0.0.1:1"}),
    ("cannot be listened on", "x" * 16, {"host": "192.0.2.1"}),
    ("--data", "", {"data": Path("/dev/null/x")}),
]


def test_a_server_that_must_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses and folders that cannot be used are refused in one sentence."""
    for words, token, options in REFUSED:
        monkeypatch.setenv("CRG_TOKEN", token)
        given = {"data": tmp_path, "host": "127.0.0.1", "port": 0, "on_ready": print, **options}
        with refused_in_one_sentence(words):
            serve(ColourEncoder, config=ServerConfig(), **given)
