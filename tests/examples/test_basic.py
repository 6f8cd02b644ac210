"""The smallest example gives its value."""

import pytest

from nerve.session import Session


@pytest.mark.requirement("S0-68")
async def test_it_greets_in_two_languages(example, person) -> None:
    session = Session()
    example("basic_workflow").register(session)
    reader = person(session)
    assert await reader.sees("basic_workflow", " grace ") == "Hello, Grace! Bonjour, Grace !"
    assert reader.told("greeted") == [("greeted", {"languages": 2})]
