"""YAML with Markdown prompts: `steps:` is a chain, `nodes:` is a graph, `body:` is the spec itself."""

from __future__ import annotations

from nerve.notations.archon import is_archon_source, read_archon_document
from nerve.notations.yaml_prompts.forms import YamlForms
from nerve.notations.yaml_prompts.prompt_files import attach_prompts, prompt_texts
from nerve.notations.yaml_prompts.writer import write_document
from nerve.text.source import Document, LocatedMap
from nerve.text.yaml_reader import load_yaml

__all__ = ["STARTER_TEXT", "attach_prompts", "prompt_texts", "read_document", "write_document"]

STARTER_TEXT = """name: NAME
description: What it does, and when to use it.
body:
  kind: sequence
  steps:
    - {kind: bash, id: first, command: "echo hello"}
"""


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a workflow in YAML; raises `InvalidDefinition` with every structural problem."""
    source = load_yaml(text, file)
    if isinstance(source, LocatedMap) and is_archon_source(source, file):
        return read_archon_document(source, file, text)
    forms = YamlForms(file)
    data = forms.read_spec(source)
    forms.raise_if_any()
    return Document(data, "yaml", file, text)
