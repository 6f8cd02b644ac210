"""Names that scripts of upstream Nerve import: they work, or the error says what to use instead."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from nerve.core.events import Sink
from nerve.core.nodes.function import FunctionNode
from nerve.server.handlers.workflow_handler import SessionRegistry
from nerve.upstream_names import ALIASES, MISSING_MODULES, PAGE, REPLACEMENTS

ROOT = Path(__file__).parents[1]
WORKING = """
from nerve.client import Client
from nerve.core.nodes import BashNode, ExecutionContext, FunctionNode, Graph
from nerve.core.nodes.base import FunctionNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.nodes.graph import Graph
from nerve.core.session import Session
from nerve.core.workflow import Workflow, WorkflowContext, WorkflowRun, WorkflowState
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.events import WorkflowEvent, WorkflowEventType
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow, WorkflowState
from nerve.server.events import EventSink
from nerve.server.session_registry import SessionRegistry
"""
"""What the design of Nerve and the scripts of upstream Nerve import, and is here."""
REFUSED = [
    ("from nerve.core import ParserType", "AgentNode"),
    ("from nerve.core.nodes import ExecutionContext, PTYNode", "BashNode"),
    ("from nerve.core.nodes import tools_from_nodes", "tools=[function]"),
    ("from nerve.core.nodes.llm import OpenRouterNode, StatefulLLMNode", 'provider="llm"'),
    ("from nerve.core.nodes.llm.suggestion import SuggestionNode", 'provider="llm"'),
    ("from nerve.core.nodes.terminal import ClaudeWezTermNode", 'provider="claude"'),
    ("from nerve.frontends.sdk import NerveClient", "nerve.client.Client"),
    ("from nerve.gateway.clients.llm_client import LLMClient", "base_url"),
    ("from nerve.gateway.openai_proxy import OpenAIProxyServer", "base_url"),
    ("from nerve.server import build_nerve_engine", "nerve serve"),
    ("from nerve.server import Command, CommandType", "nerve.client.Client"),
    ("from nerve.server.handlers.base import BaseHandler", "WorkflowHandler"),
    ("from nerve.server.protocols import Command, CommandType", "nerve.client.Client"),
    ("from nerve.transport import UnixSocketClient", "nerve.client.Client"),
]


@pytest.mark.parametrize("line", WORKING.strip().splitlines())
def test_a_name_that_means_the_same_can_be_imported(line: str) -> None:
    import_names(line)


def import_names(line: str) -> None:
    """Do what an import statement does."""
    statement = ast.parse(line).body[0]
    assert isinstance(statement, ast.ImportFrom)
    module = importlib.import_module(str(statement.module))
    for alias in statement.names:
        getattr(module, alias.name)


@pytest.mark.parametrize(("line", "replacement"), REFUSED)
def test_another_name_is_an_import_error_that_names_its_replacement(line: str, replacement: str) -> None:
    with pytest.raises(ImportError) as caught:
        import_names(line)
    assert replacement in str(caught.value)
    assert str(caught.value).endswith(f"see {PAGE}.")


def test_aliases_are_the_things_themselves() -> None:
    for module, names in ALIASES.items():
        for name in names:
            assert getattr(importlib.import_module(module), name) in (FunctionNode, Sink, SessionRegistry)


@pytest.mark.parametrize("module", [*REPLACEMENTS, *ALIASES])
def test_a_name_that_no_module_has_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Nothing'"):
        importlib.import_module(module).Nothing  # noqa: B018


def test_the_page_lists_every_name() -> None:
    listed = set(re.findall(r"`([\w.]+)`", (ROOT / PAGE).read_text()))
    names = {name for table in (ALIASES, REPLACEMENTS) for found in table.values() for name in found}
    assert names | MISSING_MODULES.keys() <= listed
