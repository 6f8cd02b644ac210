"""Lisp: state machines of roles, signals and prompts, and the spec itself as literals."""

from nerve.notations.lisp.document import read
from nerve.notations.lisp.full_form import write

__all__ = ["BEGINNING", "read", "write"]

BEGINNING = """(workflow NAME
  (state start
    (action (log "hello"))))
"""
