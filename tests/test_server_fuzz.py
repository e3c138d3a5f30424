"""Whatever the OpenAPI document allows, and what it does not, is answered as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sentences import check_sentence
from served import Process, png, send

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance,
          status_code_conformance]  # fmt: skip
STREAMS = "/v1/sessions/{id}/events"  # it has no end to wait for


def test_nothing_fails_whatever_is_sent(tmp_path: Path) -> None:
    """Generated requests, valid or not, get documented answers and never a 500."""
    with Process(tmp_path) as server, server.client() as client:
        made = client.post("/v1/sessions", json={"classes": ["red circle", "blue square"]})
        session = made.headers["location"]
        send(client, session, png())
        schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        operations: list[Any] = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
        assert len(operations) > 12
        for operation in operations:
            if operation.path != STREAMS:
                _fuzz(operation, session.rpartition("/")[2])
        assert client.get("/readyz").status_code == 200
        code, said = server.stop()
        assert code == 0 and "Traceback" not in said


def _fuzz(operation: Any, session: str) -> None:
    @seed(16)
    @settings(max_examples=8, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        if "id" in case.path_parameters and case.method != "DELETE":
            case.path_parameters["id"] = session
        answer = case.call_and_validate(checks=CHECKS)
        if answer.headers.get("content-type") == ["application/problem+json"]:
            check_sentence(answer.json()["detail"])

    check()
