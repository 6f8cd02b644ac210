"""Tracebacks of failures: the code of the user first, of limited size, without variables."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.result import Result
from nerve.core.tracebacks import MAX_CHARS, MAX_FRAMES, NO_TRACE, FailureTrace
from nerve.core.validation import require_mapping
from nerve.errors import NodeFailed

FLOW = """
import json

def charge(card):
    secret = "s3cret"
    json.loads(card)

def recur(depth):
    return recur(depth + 1)

def wrap(card):
    try:
        charge(card)
    except ValueError as error:
        raise LookupError("no card") from error

def call(function):
    return function()
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of a project that is the working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "flows" / "flow.py"
    file.parent.mkdir()
    file.write_text(FLOW)
    spec = importlib.util.spec_from_file_location("flow_of_a_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(function: Callable[..., Any], *arguments: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function(*arguments)
    return caught.value


def trace_of(function: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    location, text = FailureTrace.of(error_of(function, *arguments))
    assert location is not None
    assert text is not None
    return location, text


def test_the_location_is_the_last_frame_of_the_users_code(flow: ModuleType) -> None:
    location, text = trace_of(flow.charge, "{bad")
    assert location == "flows/flow.py:6 in charge"
    assert '  File "flows/flow.py", line 6, in charge\n    json.loads(card)\n' in text
    assert 'File "json/decoder.py"' in text
    assert text.splitlines()[-1].startswith("JSONDecodeError: Expecting property name")


def test_paths_of_files_do_not_name_the_directories_of_the_machine(flow: ModuleType, tmp_path: Path) -> None:
    _, text = trace_of(flow.charge, "{bad")
    assert str(tmp_path) not in text
    assert sys.prefix not in text
    assert sys.base_prefix not in text


def test_variables_are_not_recorded(flow: ModuleType) -> None:
    _, text = trace_of(flow.wrap, "{bad")
    assert "{bad" not in text
    assert text.count("s3cret") == 0


def test_an_exception_is_shown_after_its_cause(flow: ModuleType) -> None:
    location, text = trace_of(flow.wrap, "{bad")
    assert location == "flows/flow.py:15 in wrap"
    assert "This exception was the direct cause of the next one:" in text
    assert text.index("JSONDecodeError") < text.index("LookupError: no card")


def raised_by_nerve(function: Callable[..., Any], *arguments: Any) -> BaseException:
    """Return an error as it is if no function of the user is on the stack."""
    error = error_of(function, *arguments)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)


def test_frames_of_nerve_are_left_out(flow: ModuleType) -> None:
    location, text = trace_of(flow.call, lambda: require_mapping("attributes", 3))
    assert "test_tracebacks.py:" in location
    assert "validation.py" not in text


def test_an_unexpected_error_inside_nerve_keeps_its_frames() -> None:
    location, text = FailureTrace.of(raised_by_nerve(require_mapping, "attributes", 3))
    assert "nerve/core/validation.py:" in str(location)
    assert "in require_mapping" in str(text)


def test_an_error_that_nerve_raises_on_purpose_has_no_traceback() -> None:
    error = raised_by_nerve(Result.failed("bad").__getitem__, "output")
    assert isinstance(error, NodeFailed)
    assert error.__traceback__ is not None
    assert FailureTrace.of(error) is NO_TRACE


def test_an_error_that_was_not_raised_has_no_traceback() -> None:
    assert FailureTrace.of(None) is NO_TRACE
    assert FailureTrace.of(ValueError("not raised")) is NO_TRACE


def test_a_failed_step_is_not_repeated_in_the_traceback_of_the_run(flow: ModuleType) -> None:
    cause = error_of(flow.charge, "{bad")

    def read_output() -> None:
        raise NodeFailed("/charge", "JSONDecodeError", "bad") from cause

    location, text = trace_of(read_output)
    assert location.endswith("in read_output")
    assert "flow.py" not in text
    assert text.endswith("NodeFailed: /charge: JSONDecodeError: bad")


def test_a_deep_recursion_keeps_its_start_and_its_end(flow: ModuleType) -> None:
    location, text = trace_of(flow.recur, 0)
    assert location == "flows/flow.py:9 in recur"
    assert text.count("  File ") == MAX_FRAMES
    assert "frames left out" in text
    assert "RecursionError" in text
    assert len(text) <= MAX_CHARS


def test_a_long_message_does_not_push_out_the_frames(flow: ModuleType) -> None:
    def fail() -> None:
        raise ValueError("x" * 1_000_000)

    _, text = trace_of(flow.call, fail)
    assert len(text) < 1500
    assert "in fail" in text
    assert "ValueError: xxx" in text


def test_the_parts_of_a_group_are_shown() -> None:
    async def fail(text: str) -> None:
        raise ValueError(text)

    async def fail_together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("first"))
            group.create_task(fail("second"))

    location, text = trace_of(lambda: asyncio.run(fail_together()))
    assert location.endswith("in fail_together")
    assert "1 of 2:" in text
    assert "ValueError: first" in text
    assert "ValueError: second" in text
    assert "in fail\n" in text


def test_the_place_of_a_cancelled_wait_is_the_location_of_a_timeout() -> None:
    async def hang() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    location, text = trace_of(lambda: asyncio.run(hang()))
    assert location.endswith("in hang")
    assert "asyncio/" not in text


def test_an_exception_whose_text_cannot_be_read_is_shown() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail() -> None:
        raise Broken

    _, text = trace_of(fail)
    assert "Broken, whose __str__ raised RuntimeError" in text


def test_a_loader_without_source_text_does_not_hide_the_failure() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise ImportError("the archive is gone")

    code = compile("def fail():\n    raise ValueError('x')", "gone.zip/gone.py", "exec").co_consts[0]
    location, text = trace_of(FunctionType(code, {"__name__": "gone", "__loader__": Loader()}))
    assert location == "gone.zip/gone.py:2 in fail"
    assert text.endswith("in fail\nValueError: x")


@given(st.text(max_size=2000), st.integers(1, 60))
def test_a_traceback_is_limited_and_can_be_stored(message: str, depth: int) -> None:
    def fail(left: int) -> None:
        if left:
            try:
                fail(left - 1)
            except ValueError as error:
                raise ValueError(message) from error
        raise ValueError(message)

    location, text = trace_of(fail, depth)
    assert len(text) <= MAX_CHARS
    assert json.loads(json.dumps([location, text])) == [location, text]
    assert text.encode()
