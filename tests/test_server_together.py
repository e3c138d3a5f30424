"""Many at once: order, common batches, one key from many clients, watchers that do not read."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import crg
from colour_encoder import ColourEncoder
from crg.server.app import create_app
from crg.server.event_log import Learner
from crg.server.limits import ServerConfig
from crg.server.routes import EventStream, watch
from crg.server.service import Service
from processes import wait_until
from served import HERE, NAMES, headers_of, png, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the service."""
    return "asyncio"


def hold(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[threading.Event]:
    """Let a method wait for the second of two events; the first says that it was called."""
    plain, events = getattr(owner, name), [threading.Event(), threading.Event()]

    def held(*given: Any) -> Any:
        events[0].set()
        events[1].wait(30)
        return plain(*given)

    patch.setattr(owner, name, held)
    return events


@asynccontextmanager
async def served(
    folder: Path, encoder: ColourEncoder, **limits: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """A client that can have many requests under way, and the service."""
    app = create_app(folder, ServerConfig(**limits), encoder)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=HERE) as client,
    ):
        yield client, app.state.service


async def test_images_of_a_session_are_learnt_in_their_order(tmp_path: Path) -> None:
    """Requests at once are answered as one stream in the order of their acceptance."""
    async with served(tmp_path, ColourEncoder(), max_queue=1000) as (client, _):
        images = f"{await _start(client)}/images"
        forms = [[("i", (f"{n}.{i}", png(NAMES[i]))) for i in range(3)] for n in range(30)]
        sent = await asyncio.gather(*[client.post(images, files=form) for form in forms])
    answers = [answer for each in sent for answer in each.json()["answers"]]
    stream = sorted(answers, key=lambda each: each["step"])
    assert [each["step"] for each in stream] == list(range(1, 91))
    assert [each["name"] for each in stream] == [f"{n}.{i}" for n in range(30) for i in range(3)]
    classifier = crg.Classifier(ColourEncoder(), NAMES)
    for each in stream:
        colour = NAMES[int(each["name"].rpartition(".")[2])]
        assert classifier.predict(png(colour)).probability == each["probability"]


async def test_images_that_wait_share_batches_and_a_full_queue_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the encoder is busy images of all sessions gather; beyond the queue they get 429."""
    encoder = ColourEncoder()
    begun, let = hold(monkeypatch, ColourEncoder, "encode_images")
    async with served(tmp_path, encoder, max_queue=6) as (client, service):
        sessions = [await _start(client) for _ in range(6)]
        first = asyncio.create_task(_send(client, sessions[0]))
        await asyncio.to_thread(begun.wait, 30)
        others = [asyncio.create_task(_send(client, each)) for each in sessions[1:]]
        await asyncio.to_thread(wait_until, lambda: service.batcher._gatherer._waiting.qsize() == 5)
        too_many = await _send(client, sessions[0])
        refused(too_many, 429, "images are waiting")
        assert too_many.headers["retry-after"] == "1"
        let.set()
        answers = await asyncio.gather(first, *others)
        assert all(each.json()["answers"][0]["step"] == 1 for each in answers)
        assert (await _send(client, sessions[0])).json()["answers"][0]["step"] == 2
    assert encoder.calls == [1, 5, 1]


async def test_one_key_from_many_clients_is_learnt_once(tmp_path: Path) -> None:
    """Requests with the same key at the same time get one answer."""
    async with served(tmp_path, ColourEncoder()) as (client, _):
        session = await _start(client)
        answers = await asyncio.gather(*[_send(client, session, "k") for _ in range(20)])
        assert len({each.content for each in answers}) == 1
        assert sum("idempotent-replay" in each.headers for each in answers) == 19
        assert (await client.get(session)).json()["images"] == 1


async def test_sessions_are_counted_whatever_happens_at_once(tmp_path: Path) -> None:
    """Simultaneous creations, deletions, broken-off requests and sends never exceed a limit.

    No session is in memory twice, and every answer is kept.
    """
    dice = random.Random(5)
    async with served(tmp_path, ColourEncoder(), max_sessions=4, max_memory=150_000) as (
        client,
        service,
    ):
        loading: list[str] = []
        plain = service.states.load

        def load(row: Any, beat: Any) -> Any:
            loading.append(row.id)
            assert loading.count(row.id) == 1 and row.id not in service._live
            try:
                return plain(row, beat)
            finally:
                loading.remove(row.id)

        service.states.load = load  # type: ignore[method-assign]
        known: dict[str, int] = {}

        async def act() -> None:
            session = dice.choice([*known, None])
            if session is None or dice.random() < 0.2:
                work = client.post("/v1/sessions", json={"classes": NAMES})
                made = await asyncio.wait_for(work, dice.choice((None, 0.002)))
                assert made.status_code in (201, 429)
                if made.status_code == 201:
                    known.setdefault(made.headers["location"], 0)
            elif dice.random() < 0.3:
                several = [client.delete(session) for _ in range(3)]
                codes = sorted(each.status_code for each in await asyncio.gather(*several))
                assert codes in ([204, 404, 404], [404, 404, 404])
                known.pop(session, None)
            else:
                answer = await _send(client, session)
                if answer.status_code == 200 and session in known:
                    known[session] += 1

        for _ in range(30):
            done = await asyncio.gather(*[act() for _ in range(8)], return_exceptions=True)
            assert all(each is None or isinstance(each, TimeoutError) for each in done), done
            there = (await client.get("/v1/sessions")).json()["sessions"]
            assert len(there) <= 4
        for session, images in known.items():
            assert (await client.get(session)).json()["images"] == images


async def test_healthz_fails_while_a_step_does_not_end(tmp_path: Path, monkeypatch: Any) -> None:
    """A thread without progress for too long fails the health check until it continues."""
    begun, let = hold(monkeypatch, Learner, "answer")
    monkeypatch.setattr("crg.server.service._PATIENCE", 1)
    async with served(tmp_path, ColourEncoder(), max_memory=150_000) as (client, service):
        sending = asyncio.create_task(_send(client, await _start(client)))
        await asyncio.to_thread(begun.wait, 30)
        assert (await client.get("/healthz")).status_code == 200
        service._born -= 121  # seconds, one more than ``stall``
        refused(await client.get("/healthz"), 503, "restart the server")
        new = [await client.post("/v1/sessions", json={"classes": NAMES}) for _ in range(5)]
        refused(new[-1], 503, "memory for sessions is in use")
        there = (await client.get("/v1/sessions")).json()["sessions"]
        assert len(there) == 1 + sum(each.status_code == 201 for each in new)  # not counted
        let.set()
        await sending
        assert (await client.get("/healthz")).status_code == 200


async def test_a_watcher_whose_line_is_stuck_gives_its_place_back(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A watcher that reads nothing for too long is disconnected, and no longer counts."""
    monkeypatch.setattr("crg.server.routes._STUCK", 0.01)
    stuck, ended = asyncio.Event(), []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await stuck.wait()

    async with served(tmp_path, ColourEncoder()) as (client, service):
        row = await service.row((await _start(client))[-32:])
        stream = EventStream(watch(service, row, 0), lambda: ended.append(1))
        await stream({"type": "http", "method": "GET"}, stuck.wait, send)  # type: ignore[arg-type]
    assert ended == [1]


async def _start(client: httpx.AsyncClient) -> str:
    made = await client.post("/v1/sessions", json={"classes": NAMES})
    return made.headers["location"]


async def _send(client: httpx.AsyncClient, session: str, key: str | None = None) -> httpx.Response:
    return await client.post(f"{session}/images", content=png(), headers=headers_of(key))
