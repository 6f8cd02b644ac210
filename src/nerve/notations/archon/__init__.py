"""Workflows of Archon: YAML whose `nodes` have Archon's meaning, read into the spec."""

from __future__ import annotations

from nerve.notations.archon.detection import is_archon_source
from nerve.notations.archon.dialect import read_archon_document

__all__ = ["is_archon_source", "read_archon_document"]
