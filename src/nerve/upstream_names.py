"""Names that scripts of upstream Nerve import: what they are here, or an error that says what to use."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

PAGE = "docs/coming-from/upstream.md"
AGENT = "Use nerve.agents.AgentNode"
CLIENT = "Use nerve.client.Client, which talks to `nerve serve`"
ALIASES = {
    "nerve.core.nodes.base": {"FunctionNode": "nerve.core.nodes.function"},
    "nerve.server.events": {"EventSink": "nerve.core.events:Sink"},
    "nerve.server.session_registry": {"SessionRegistry": "nerve.server.handlers.workflow_handler"},
}
"""The modules of names that mean the same here, and their other name if they have one."""
REPLACEMENTS = {
    "nerve.core": {"ParserType": f"{AGENT}: its providers read the output of an agent"},
    "nerve.core.nodes": {
        "PTYNode": f"{AGENT} for an agent, or BashNode for a command",
        "WezTermNode": f"{AGENT} for an agent, or BashNode for a command",
        "ClaudeWezTermNode": f'{AGENT}(provider="claude")',
        "tools_from_nodes": f"{AGENT} with tools=[function]",
    },
    "nerve.core.nodes.terminal": {
        "PTYNode": f"{AGENT} for an agent, or BashNode for a command",
        "WezTermNode": f"{AGENT} for an agent, or BashNode for a command",
        "ClaudeWezTermNode": f'{AGENT}(provider="claude")',
    },
    "nerve.server": {
        "build_nerve_engine": "Use `nerve serve`, or nerve.Session in your program",
        "NerveEngine": "Use `nerve serve`, or nerve.Session in your program",
        "Command": CLIENT,
        "CommandType": CLIENT,
    },
    "nerve.server.handlers.base": {
        "BaseHandler": "Use nerve.server.handlers.WorkflowHandler, which needs no base class"
    },
}
"""What to use instead of names that do not exist here, by module."""
MISSING_MODULES = {
    "nerve.core.nodes.llm": f'{AGENT}(provider="llm")',
    "nerve.frontends": CLIENT,
    "nerve.gateway": "Set base_url of the provider 'llm' in .nerve/config.json",
    "nerve.server.protocols": CLIENT,
    "nerve.transport": CLIENT,
}
"""What to use instead of modules, and the modules in them, that do not exist here."""


def find_upstream_name(module: str, name: str) -> Any:
    """Return what a name of a module of upstream Nerve is here.

    ImportError with the replacement if it has one, AttributeError for any other name.
    """
    if (place := ALIASES.get(module, {}).get(name)) is not None:
        own_module, _, own_name = place.partition(":")
        return getattr(import_module(own_module), own_name or name)
    if (replacement := REPLACEMENTS.get(module, {}).get(name)) is not None:
        raise ImportError(f"{module} has no '{name}'. {replacement}; see {PAGE}.")
    raise AttributeError(f"module '{module}' has no attribute '{name}'")


def refuse_module(module: str) -> NoReturn:
    """Raise the ImportError of a module of upstream Nerve that does not exist here."""
    raise ImportError(f"Nerve has no module '{module}'. {MISSING_MODULES[module]}; see {PAGE}.")
