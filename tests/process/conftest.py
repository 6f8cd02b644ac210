from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def tag() -> str:
    """A mark for the environment of a test's processes, by which their descendants are found."""
    return uuid.uuid4().hex
