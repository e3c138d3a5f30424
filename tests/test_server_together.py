"""Many at once: order, common batches, one key from many clients, watchers that do not read."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import crg
from colour_encoder import ColourEncoder
from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels
from crg.server.app import create_app
from crg.server.batching import Gatherer
from crg.server.limits import ServerConfig
from crg.server.routes import EventStream, Message, watch
from crg.server.service import Service
from crg.server.session import Learner
from served import HERE, NAMES, headers_of, png, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the service."""
    return "asyncio"


class HeldEncoder(ColourEncoder):
    """Encodes only when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let = threading.Event(), threading.Event()

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Encode once the test allows it."""
        self.begun.set()
        self.let.wait(30)
        return super().encode_images(pixels)


@asynccontextmanager
async def served(
    folder: Path, encoder: ColourEncoder, **limits: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that can have many requests under way."""
    app = create_app(folder, ServerConfig(**limits), encoder)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=HERE) as client,
    ):
        yield client


async def test_images_of_a_session_are_learnt_in_their_order(tmp_path: Path) -> None:
    """Requests at once are answered as one stream in the order of their acceptance."""
    async with served(tmp_path, ColourEncoder(), max_queue=1000) as client:
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


async def test_images_that_wait_share_batches_and_a_full_queue_refuses(tmp_path: Path) -> None:
    """While the encoder is busy images of all sessions gather; beyond the queue they get 429."""
    encoder = HeldEncoder()
    async with served(tmp_path, encoder, max_queue=6) as client:
        sessions = [await _start(client) for _ in range(6)]
        first = asyncio.create_task(_send(client, sessions[0]))
        await asyncio.to_thread(encoder.begun.wait, 30)
        others = [asyncio.create_task(_send(client, each)) for each in sessions[1:]]
        service = client._transport.app.state.service  # type: ignore[attr-defined]
        await _until(lambda: service.batcher._gatherer._waiting.qsize() == 5)
        too_many = await _send(client, sessions[0])
        refused(too_many, 429, "images are waiting")
        assert too_many.headers["retry-after"] == "1"
        encoder.let.set()
        answers = await asyncio.gather(first, *others)
        assert all(each.json()["answers"][0]["step"] == 1 for each in answers)
        assert (await _send(client, sessions[0])).json()["answers"][0]["step"] == 2
    assert encoder.calls == [1, 5, 1]


async def test_one_key_from_many_clients_is_learnt_once(tmp_path: Path) -> None:
    """Requests with the same key at the same time get one answer."""
    async with served(tmp_path, ColourEncoder()) as client:
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
    async with served(tmp_path, ColourEncoder(), max_sessions=4, max_memory=150_000) as client:
        service: Service = client._transport.app.state.service  # type: ignore[attr-defined]
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
    begun, let, plain = threading.Event(), threading.Event(), Learner.answer

    def answer(self: Learner, *given: Any) -> Any:
        begun.set()
        let.wait(30)
        return plain(self, *given)

    monkeypatch.setattr(Learner, "answer", answer)
    async with served(tmp_path, ColourEncoder()) as client:
        service = client._transport.app.state.service  # type: ignore[attr-defined]
        sending = asyncio.create_task(_send(client, await _start(client)))
        await asyncio.to_thread(begun.wait, 30)
        assert (await client.get("/healthz")).status_code == 200
        service._born -= 121  # seconds, one more than ``stall``
        refused(await client.get("/healthz"), 503, "restart the server")
        let.set()
        await sending
        assert (await client.get("/healthz")).status_code == 200


async def test_a_watcher_whose_line_is_stuck_gives_its_place_back(monkeypatch: Any) -> None:
    """A watcher that reads nothing for too long is disconnected, and no longer counts."""
    monkeypatch.setattr("crg.server.routes._STUCK", 0.01)
    stuck, ended = asyncio.Event(), []

    async def read(_: int) -> list[Message]:
        return []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await stuck.wait()

    stream = EventStream(watch(set(), 0, read), lambda: ended.append(1))
    await stream({"type": "http", "method": "GET"}, stuck.wait, send)  # type: ignore[arg-type]
    assert ended == [1]


async def test_a_failing_batch_fails_each_of_its_items() -> None:
    """An exception of the work is the result of every item; later items are done."""

    def work(items: list[int]) -> list[int]:
        if 0 in items:
            raise MemoryError
        return [item * 2 for item in items]

    gatherer: Gatherer[int, int] = Gatherer("test", work)
    results: list[Any] = []
    for item in (1, 0, 2):
        results += await asyncio.gather(gatherer.submit(item), return_exceptions=True)
    gatherer.close()
    one, failed, two = results
    assert (one, two) == (2, 4) and isinstance(failed, MemoryError)


async def _start(client: httpx.AsyncClient) -> str:
    made = await client.post("/v1/sessions", json={"classes": NAMES})
    return made.headers["location"]


async def _send(client: httpx.AsyncClient, session: str, key: str | None = None) -> httpx.Response:
    return await client.post(f"{session}/images", content=png(), headers=headers_of(key))


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")
