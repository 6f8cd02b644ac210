"""YAML with Markdown prompts: `steps:` is a chain, `nodes:` is a graph, `body:` is the spec itself."""

from __future__ import annotations

from nerve.notations.yaml_prompts.chain_form import read_steps
from nerve.notations.yaml_prompts.graph_form import read_nodes
from nerve.notations.yaml_prompts.parsing import WORKFLOW_KEYS, YamlDiagnostics, describe_yaml_value
from nerve.notations.yaml_prompts.prompt_files import attach_prompts, prompt_texts
from nerve.notations.yaml_prompts.writer import write_document
from nerve.text.source import Document, InvalidDefinition, LocatedMap
from nerve.text.yaml_reader import load_yaml

__all__ = ["STARTER_TEXT", "attach_prompts", "prompt_texts", "read_document", "write_document"]

STARTER_TEXT = """name: NAME
description: What it does, and when to use it.
body:
  kind: sequence
  steps:
    - {kind: bash, id: first, command: "echo hello"}
"""
FORM_READERS = {"steps": read_steps, "nodes": read_nodes}


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a workflow in YAML; raises `InvalidDefinition` with every structural problem."""
    source = load_yaml(text, file)
    diagnostics = YamlDiagnostics(file)
    data = read_yaml_spec(diagnostics, source)
    if diagnostics.problems:
        raise InvalidDefinition(sorted(diagnostics.problems))
    return Document(data, "yaml", file, text)


def read_yaml_spec(diagnostics: YamlDiagnostics, source: object) -> LocatedMap:
    if not isinstance(source, LocatedMap):
        what = (
            "The file is empty"
            if source is None
            else f"A workflow must be a mapping, got {describe_yaml_value(source)}"
        )
        diagnostics.add(getattr(source, "position", None), what, "Start with 'name: …'.")
        return LocatedMap()
    forms = present_forms(source)
    if forms != ["body"]:
        diagnostics.check_keys(source, (*(forms or (*FORM_READERS, "body")), *WORKFLOW_KEYS))
        forms = present_forms(source)
    if len(forms) > 1:
        message = f"A workflow must have only one of {', '.join(forms)}"
        diagnostics.add(source.key_positions.get(forms[1]), message, "Remove all but one.")
        return LocatedMap()
    if forms == ["body"]:
        return source
    return FORM_READERS[forms[0] if forms else "steps"](diagnostics, source)


def present_forms(source: LocatedMap) -> list[str]:
    return [form for form in (*FORM_READERS, "body") if form in source]
