"""Decide whether a YAML workflow is one of Archon or one of Nerve; it is never half of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from nerve.notations.archon.workflow import KNOWN_NODE_KEYS, KNOWN_WORKFLOW_KEYS, texts_of
from nerve.notations.yaml_keys import BASH_KEYS, GATE_KEYS, MERGE_KEYS, STEP_KEYS, WORKFLOW_KEYS
from nerve.text.source import LocatedMap

OUTPUT_REFERENCE = re.compile(r"(?<!\\)\$[A-Za-z_][\w-]*\.output\b")
EXPRESSION_NAME = re.compile(
    r"\{\{\s*(?:steps|results|outputs|fields|inputs?|run|given|context|args|roles)\b|"
    r"\b(?:steps|results|outputs|fields|context|inputs|run)\.[\w-]+"
)
OWN_NODE_KEYS = frozenset(
    {*STEP_KEYS, *BASH_KEYS, *MERGE_KEYS, "depends_on", "context", "on_reject"}
    | {"prompt", "command", "bash", "gate", "approval", "merge"}
)
KEYS_OF_BOTH = frozenset({"trigger_rule", "workflow", "clearContext"})
"""Keys that both know, one of them only in its full or its older form."""
ARCHON_NODE_KEYS = KNOWN_NODE_KEYS - OWN_NODE_KEYS - KEYS_OF_BOTH
ARCHON_WORKFLOW_KEYS = KNOWN_WORKFLOW_KEYS - OWN_NODE_KEYS - {*WORKFLOW_KEYS, "nodes", "steps"}
OWN_NODE_MARKS = OWN_NODE_KEYS - KNOWN_NODE_KEYS - KEYS_OF_BOTH
OWN_APPROVAL_KEYS = frozenset(GATE_KEYS) - {"message"}
OWN_RETRY_KEYS = frozenset({"attempts", "delay", "factor", "cap", "jitter", "on", "on_text", "not_on_text"})
OWN_WORKFLOW_MARKS = {*WORKFLOW_KEYS, "workspace"} - KNOWN_WORKFLOW_KEYS


def is_archon_source(source: LocatedMap, file: str) -> bool:
    """Return whether a document has the meaning of Archon.

    What only one of the two knows decides; a file with neither or both belongs to the folder it is in.
    """
    if "body" in source:
        return False
    archon_marks, own_marks = any(find_archon_marks(source)), any(find_own_marks(source))
    if archon_marks != own_marks:
        return archon_marks
    return ".archon" in PurePath(file).parts and "nodes" in source and isinstance(source["nodes"], list)


def find_archon_marks(source: LocatedMap) -> Iterator[str]:
    """Yield what only Archon knows."""
    yield from sorted(ARCHON_WORKFLOW_KEYS & source.keys())
    for node in items_of(source):
        yield from sorted(ARCHON_NODE_KEYS & node.keys())
        if (
            isinstance(approval := node.get("approval"), dict)
            and {"capture_response", "on_reject"} & approval.keys()
        ):
            yield "approval"
        if (
            isinstance(retry := node.get("retry"), dict)
            and {"max_attempts", "delay_ms", "on_error"} & retry.keys()
        ):
            yield "retry"
        if isinstance(node.get("mcp"), str):
            yield "mcp"
        if "step" not in node and "parallel" in node:
            yield "parallel"
        if "steps" in source and "command" in node:
            yield "command"
        for text in texts_of(node):
            yield from OUTPUT_REFERENCE.findall(text)


def find_own_marks(source: LocatedMap) -> Iterator[str]:
    """Yield what only Nerve knows."""
    yield from sorted(OWN_WORKFLOW_MARKS & source.keys())
    for node in items_of(source):
        yield from sorted(OWN_NODE_MARKS & node.keys())
        approval, retry = node.get("approval"), node.get("retry")
        if isinstance(approval, str) or (isinstance(approval, dict) and OWN_APPROVAL_KEYS & approval.keys()):
            yield "approval"
        if isinstance(retry, int) or (isinstance(retry, dict) and OWN_RETRY_KEYS & retry.keys()):
            yield "retry"
        if isinstance(node.get("mcp"), dict | list):
            yield "mcp"
        if isinstance(when := node.get("when"), str) and EXPRESSION_NAME.search(when):
            yield "when"
        for key in ("prompt", "bash"):
            if isinstance(text := node.get(key), str) and "{{" in text and EXPRESSION_NAME.search(text):
                yield key


def items_of(source: LocatedMap) -> Iterator[LocatedMap]:
    """Yield the nodes or steps of a document."""
    for key in ("nodes", "steps"):
        items = source.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, LocatedMap):
                yield item
