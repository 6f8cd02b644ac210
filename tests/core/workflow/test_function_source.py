"""The source of a function is what `inspect.getsource` returns, to which stored runs are pinned."""

from __future__ import annotations

import argparse
import asyncio.base_events
import dataclasses
import importlib.util
import inspect
import json.decoder
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from nerve import Session
from nerve.core.workflow import context, workflow
from nerve.core.workflow.function_source import read_function_source, read_source
from nerve.engine import local_engine

MODULES = [argparse, asyncio.base_events, dataclasses, inspect, json.decoder, typing, context, local_engine]
UNUSUAL = '''
import functools

def plain(x):
    return (
x)
    # in the block

  # not in the block
# outside

def one_line(): return 1
    # of no block

async def with_text(
    x,
):
    """Text
without a margin.
"""
# without a margin, but inside
    return """
# not a comment
"""

    # at the end
        # deeper
def with_continuation(x): \\
    return x

class Holder:
    def method(self):
        if self:
            return 1
        pass

    @staticmethod
    def decorated(
        x=(1,
2),
    ):
        def inner():
            return x
            # of inner
        return inner
      # of nothing
    @functools.lru_cache(maxsize=(1))
    # between
    def cached(self): return 1  # same line
    def unreachable(self):
        return 1
        x: int

def with_lambda_in_decorator(*args):
    return lambda function: function

@with_lambda_in_decorator(len(""), lambda:
    1)
def after_lambda():
    return 1

several = lambda: (
    1
)
	
def with_tabs():
	x = 1
	# of the block
	return x
 # outside
@plain
def last():
    texts = """
a
b
c
d
e
f
"""
    return texts'''


def list_functions(owner: Any, module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods that a module defines."""
    for value in vars(owner).values():
        value = inspect.unwrap(getattr(value, "__func__", value))
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from list_functions(value, module)


def source_or_error(read: Any, function: FunctionType) -> Any:
    try:
        return read(function)
    except (OSError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_source_of_each_function_is_that_of_inspect(module: ModuleType) -> None:
    functions = list(list_functions(module, module))
    assert len(functions) > 5
    for function in functions:
        source = source_or_error(read_source, function)
        assert source == source_or_error(inspect.getsource, function), function


def test_unusual_functions_have_the_source_of_inspect(tmp_path: Path) -> None:
    file = tmp_path / "unusual.py"
    file.write_text(UNUSUAL)
    spec = importlib.util.spec_from_file_location("unusual", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    functions = {each.__name__: each for each in list_functions(module, module)}
    assert len(functions) == 13
    for function in functions.values():
        assert read_source(function) == inspect.getsource(function), function
    # These are left to inspect: its result differs, or the end is hard to find.
    left = {name for name, function in functions.items() if read_function_source(function) is None}
    assert left == {"after_lambda", "<lambda>", "last"}


def test_a_function_without_a_file_has_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def made(): return 1", namespace)  # noqa: S102
    with pytest.raises(OSError, match="could not get source"):
        read_source(namespace["made"])


def test_the_definition_of_a_workflow_has_the_source_without_its_margin() -> None:
    async def body(ctx: context.WorkflowContext) -> None:
        pass

    _, source, _ = workflow.Workflow("flow", Session("test"), body).definition()
    assert source == "async def body(ctx: context.WorkflowContext) -> None:\n    pass\n"
