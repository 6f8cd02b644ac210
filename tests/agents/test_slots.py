"""Slots: how many agents of a provider work at once."""

import pytest

from nerve import Session


@pytest.mark.parametrize("number", [0, -1, True, 1.5])
def test_slots_are_a_whole_number_from_1_on(number: int) -> None:
    with pytest.raises(ValueError, match="the slots of 'x' must be a whole number from 1 on"):
        Session(slots={"x": number})
