"""Lisp: state machines with roles, signals and prompts, or the spec itself as literals."""

from nerve.notations.lisp.expressions import write_document
from nerve.notations.lisp.workflow import read_document

__all__ = ["STARTER_TEXT", "read_document", "write_document"]

STARTER_TEXT = """(workflow NAME
  (state start
    (action (log "hello"))))
"""
