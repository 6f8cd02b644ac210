"""The server does what it is described to do, with all that the description allows and does not allow."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, Config, GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from nerve.api.operations import OPERATIONS
from nerve.server.openapi import openapi_document
from server.conftest import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
REFUSED = ["4xx", "5xx"]
"""How what is not allowed may be refused; that it is no server error is another check."""
CONFIG = Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}})
SCHEMA: BaseSchema = openapi.from_dict(openapi_document(), config=CONFIG)
FEW, MANY = 10, 300


@dataclass
class Reached:
    """A server in a thread of its own, and how it is asked."""

    url: str
    token: str
    asked: requests.Session


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    folder = tmp_path_factory.mktemp("served")
    found: list[Reached] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(folder) as served:
            run = await served.api.start(workflow="ask", wait=True, label="known")
            assert run.state == "waiting"
            found.append(Reached(served.url, served.tokens["admin"], requests.Session()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(30)
    with found[0].asked:
        yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def ask(reached: Reached, case: Case, queries: bool) -> None:
    """In an address a list of one text is that text, so that it may well be taken."""
    headers = {"Authorization": f"Bearer {reached.token}"}
    checks = CHECKS if not queries else [each for each in CHECKS if each is not negative_data_rejection]
    case.call_and_validate(reached.url, session=reached.asked, headers=headers, checks=checks, timeout=30)


def point(case: Case) -> None:
    """Let a case mean something that is there: names that are drawn never do."""
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            part |= {name: known for name, known in KNOWN.items() if name in part}


KNOWN = {"run": "known", "workflow": "ask", "before": "known"}


def tried(name: str, mode: GenerationMode, examples: int, reached: Reached) -> None:
    operation = SCHEMA[OPERATIONS[name].path][OPERATIONS[name].method]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples == FEW,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), meant=st.booleans())
    def each(case: Case, meant: bool) -> None:
        if meant and mode is GenerationMode.POSITIVE:
            point(case)
        ask(reached, case, not OPERATIONS[name].is_command)

    each()


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_server_conforms_to_its_openapi_document(
    reached: Reached, name: str, mode: GenerationMode, examples: int
) -> None:
    tried(name, mode, examples, reached)
