"""Who is let in, and how much: token, Host, Origin, headers and limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from crg.server.app import check_address, is_loopback
from crg.server.limits import ServerConfig, read_config
from documents import ROOT
from made_files import claiming
from sentences import check_refused
from served import NAMES, client, png, refused, send, start

TOKEN = "correct horse battery staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OPEN = ("/", "/docs", "/static/index.html", "/openapi.json", "/healthz", "/readyz")
CLOSED = ("/v1", "/v1/sessions", "/metrics", "/v1/sessions/x/events", "/nope")


def test_other_addresses_need_a_token() -> None:
    """Only this machine's own addresses are listened on without a token, and no short one."""
    for host in ("127.0.0.1", "localhost", "::1", "127.8.9.10"):
        check_address(host, None)
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org", "", "127.0.0.1.example.org"):
        check_refused("CRG_TOKEN", check_address, host, None)
        check_address(host, TOKEN)
    check_refused("at least 16", check_address, "127.0.0.1", "short")


def test_with_a_token_nothing_is_answered_without_it_or_its_cookie(tmp_path: Path) -> None:
    """All but the page and the health checks ask for the token, or the cookie that /login gives."""
    with client(tmp_path, token=TOKEN) as served:
        for path in CLOSED:
            for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN},
                           {"Cookie": "crg_token=wrong"}, {"Cookie": "\x01"},
                           {"Authorization": "Bearer \xff"}):  # fmt: skip
                raw = {name.encode(): value.encode("latin-1") for name, value in header.items()}
                answer = served.get(path, headers=raw)
                refused(answer, 401, "Bearer")
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in OPEN:
            assert served.get(path).status_code == 200
        assert served.get("/v1", headers=BEARER).status_code == 200
        refused(served.post("/v1/sessions", json={"classes": NAMES}), 401)
        refused(served.post("/login", json={"token": "wrong"}), 401)
        answer = served.post("/login", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"]
        assert answer.status_code == 204 and TOKEN not in cookie
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert served.get("/v1").status_code == 200
        served.delete("/login")
        assert served.get("/v1").status_code == 401


def test_names_that_lead_here_from_elsewhere_are_refused(tmp_path: Path) -> None:
    """Without a token only loopback names and those that were allowed are answered."""
    with client(tmp_path, allow_hosts=("crg.example.org",)) as served:
        for host in ("localhost:8000", "127.0.0.1", "[::1]:80", "crg.example.org"):
            assert served.get("/v1", headers={"Host": host}).status_code == 200
        for host in ("evil.example.org", "127.0.0.1.nip.io", "", "localhost@evil.org", "[::1"):
            refused(served.get("/v1", headers={"Host": host}), 403, "allow_hosts")


def test_pages_of_other_origins_change_nothing(tmp_path: Path) -> None:
    """A request that changes something is refused from another origin; CORS only if set."""
    new: dict[str, Any] = {"json": {"classes": NAMES}}
    with client(tmp_path / "a") as served:
        for origin in ("https://evil.example.org", "null", "http://127.0.0.1:9999", "http://["):
            refused(served.post("/v1/sessions", **new, headers={"Origin": origin}), 403)
        same = served.post("/v1/sessions", **new, headers={"Origin": "http://127.0.0.1"})
        assert same.status_code == 201 and "access-control-allow-origin" not in same.headers
    friend = {"Origin": "https://friend.example.org"}
    with client(tmp_path / "b", allow_origins=(friend["Origin"],)) as served:
        answer = served.post("/v1/sessions", **new, headers=friend)
        assert answer.headers["access-control-allow-origin"] == friend["Origin"]
        asked = {**friend, "Access-Control-Request-Method": "DELETE"}
        assert served.options("/v1/sessions", headers=asked).status_code == 200


def test_every_answer_has_security_headers(tmp_path: Path) -> None:
    """Pages, answers and problems alike allow no script from elsewhere, no frame, no sniffing."""
    with client(tmp_path) as served:
        session = start(served)
        for path in (*OPEN, *CLOSED, session, f"{session}/answers"):
            headers = served.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["cache-control"] and headers["referrer-policy"] == "no-referrer"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"


def test_too_much_is_refused(tmp_path: Path) -> None:
    """Bytes, pixels, images, views, classes and sessions beyond the limits are refused."""
    limits: Any = {"max_bytes": 3000, "max_request_bytes": 5000, "max_pixels": 10_000,
              "max_images": 2, "max_views": 3, "max_classes": 4, "max_sessions": 2,
              "max_queue_bytes": 4000}  # fmt: skip
    with client(tmp_path, **limits) as served:
        session = start(served)
        images = f"{session}/images"
        kind = {"Content-Type": "image/png"}
        refused(served.post(images, content=b"x" * 3001, headers=kind), 413, "3,000")
        refused(served.post(images, content=iter([b"x" * 1000] * 9), headers=kind), 413)
        refused(served.post(images, files=[("i", ("a", b"x" * 4001))]), 429, "bytes are waiting")
        parts = [("i", ("a", png())), ("i", ("b", b"x" * 3001))]
        assert refused(served.post(images, files=parts), 413)["image"] == 2
        refused(served.post(images, files=[("i", ("a", png()))] * 3), 413, "files is 2")
        fields = {f"f{n}": "" for n in range(20)}
        refused(served.post(images, data=fields, files=[("i", ("a", b"x"))]), 413, "fields is 10")
        refused(served.post(images, content=png(size=(101, 100)), headers=kind), 422, "10,000")
        refused(served.post(images, content=claiming(40_000, 40_000), headers=kind), 422, "pixels")
        refused(served.post("/v1/sessions", json={"classes": NAMES, "views": 4}), 422, "to 3")
        refused(served.post("/v1/sessions", json={"classes": list("abcde")}), 422, "have 4")
        served.post(f"{session}/classes", json={"name": "x"})
        refused(served.post(f"{session}/classes", json={"name": "y"}), 422, "have 4")
        start(served)
        answer = served.post("/v1/sessions", json={"classes": NAMES})
        refused(answer, 429, "delete one")
        assert int(answer.headers["retry-after"]) > 0
        assert send(served, session, png())["step"] == 1
        assert "crg_waiting_bytes 0.0" in served.get("/metrics").text


def test_memory_is_bounded_before_it_is_taken(tmp_path: Path) -> None:
    """Options, states and classes beyond the limits are refused; at the limit they are learnt."""

    def bytes_of(served: TestClient) -> float:
        [given] = re.findall(r"(?m)^crg_session_bytes (\S+)", served.get("/metrics").text)
        return float(given)

    many, kind = {"memory": 50_000}, {"Content-Type": "application/octet-stream"}
    with client(tmp_path / "a") as served:
        session = start(served, options=many)
        size, state = int(bytes_of(served)), served.get(f"{session}/state").content
        assert size > 2 * 50_000 * 7 * 4  # a copy, too; features of 4 numbers, counts of 3
    with client(tmp_path / "b", max_session_memory=size, max_memory=3 * size) as served:
        queues = {"positive_size": 10_000, "negative_size": 10_000}
        for method, options in (("anchored", {"memory": 50_001}), ("tda", queues)):
            body = {"classes": NAMES, "method": method, "options": options}
            limit = refused(served.post("/v1/sessions", json=body), 422, "smaller options")
            assert f"{size:,}" in limit["detail"]
        first = served.post("/v1/sessions", content=state, headers=kind).headers["location"]
        refused(served.post(f"{first}/classes", json={"name": "x"}), 422, "bytes of memory")
        for session in [first, *(start(served, options=many) for _ in range(5))] * 2:
            send(served, session, png())
            assert 0 < bytes_of(served) <= 3 * size  # others make room
    with client(tmp_path / "b", max_session_memory=size - 1) as served:
        refused(served.post("/v1/sessions", content=state, headers=kind), 422, "bytes of memory")


def test_the_documented_settings_are_the_settings() -> None:
    """docs/service.md lists every setting with its default."""
    text = (ROOT / "docs" / "service.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| `?([^|`]+)`? \|", text, re.MULTILINE)
    listed = {name: value.replace(",", "") for name, value in rows}
    defaults = msgspec.structs.asdict(ServerConfig())
    assert listed == {name: json.dumps(value).replace(",", "") for name, value in defaults.items()}


@pytest.mark.parametrize(
    ("text", "word"),
    [("max_bytes = 0", "max_bytes"), ("max_bytes = '9'", "max_bytes"), ("max_byte = 9", "max_byte"),
     ("max_bytes = ", "value"), ("templates = ['no place']", "no place"), (None, "check the path")],
)  # fmt: skip
def test_a_config_sets_what_it_names(tmp_path: Path, text: str | None, word: str) -> None:
    """A TOML file replaces defaults; unknown or impossible settings are refused in a sentence."""
    path = tmp_path / "serve.toml"
    path.write_text("max_images = 3\nallow_hosts = ['crg.example.org']\n")
    assert read_config(path) == ServerConfig(max_images=3, allow_hosts=("crg.example.org",))
    path.unlink() if text is None else path.write_text(text)
    check_refused(word, read_config, path)
