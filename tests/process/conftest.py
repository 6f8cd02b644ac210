from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def tag() -> str:
    """A value in the environment of a test's processes that identifies their descendants."""
    return uuid.uuid4().hex
