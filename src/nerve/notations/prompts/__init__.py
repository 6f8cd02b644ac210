"""YAML with Markdown prompts: `steps:` is a chain, `nodes:` a graph, `body:` the spec itself."""

from __future__ import annotations

from nerve.notations.prompts.attach import attach_prompts, prompt_texts
from nerve.notations.prompts.full import write
from nerve.notations.prompts.nodes import read_nodes
from nerve.notations.prompts.shape import WORKFLOW_KEYS, Reading, shown
from nerve.notations.prompts.steps import read_steps
from nerve.notations.yaml_text import load
from nerve.spec.source import Document, Map, Unreadable

__all__ = ["BEGINNING", "attach_prompts", "prompt_texts", "read", "write"]

BEGINNING = """name: NAME
description: What it does, and when to use it.
body:
  kind: sequence
  steps:
    - {kind: bash, id: first, command: "echo hello"}
"""
FORMS = {"steps": read_steps, "nodes": read_nodes}


def read(text: str, file: str = "<text>") -> Document:
    """A workflow written in YAML; `Unreadable` says everything that is wrong with its shape."""
    source = load(text, file)
    reading = Reading(file)
    data = spec_of(reading, source)
    if reading.problems:
        raise Unreadable(sorted(reading.problems))
    return Document(data, "yaml", file, text)


def spec_of(reading: Reading, source: object) -> Map:
    if not isinstance(source, Map):
        what = "the file is empty" if source is None else f"a workflow must be a mapping, not {shown(source)}"
        reading.tell(getattr(source, "place", None), what, "Start with 'name: …'.")
        return Map()
    forms = forms_of(source)
    if forms != ["body"]:
        reading.keys(source, (*(forms or (*FORMS, "body")), *WORKFLOW_KEYS))
        forms = forms_of(source)
    if len(forms) > 1:
        said = f"a workflow has either {' or '.join(forms)}"
        reading.tell(source.keys_at.get(forms[1]), said, "Remove all but one.")
        return Map()
    if forms == ["body"]:
        return source
    return FORMS[forms[0] if forms else "steps"](reading, source)


def forms_of(source: Map) -> list[str]:
    return [form for form in (*FORMS, "body") if form in source]
