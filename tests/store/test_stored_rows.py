"""The data of a step is stored without the phrases that all steps share, and read back as it was."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.store.stored_rows import (
    FIRST_SEPARATOR,
    MARKS_BY_TYPE,
    SECOND_SEPARATOR,
    TEMPLATES,
    abbreviate_data,
    restore_data,
)

PHRASES = [phrase for template in TEMPLATES.values() for phrase in template]
pieces = st.sampled_from([*PHRASES, "echo", "1.250", '"', "{", "}", "\n", FIRST_SEPARATOR, SECOND_SEPARATOR])
texts = st.lists(pieces, max_size=9).map("".join)


def fits(mark: str, data: str) -> bool:
    """Return whether data has the phrases of a template, and values that cannot be taken for them."""
    start, second, third, end = map(re.escape, TEMPLATES[mark])
    has_phrases = re.fullmatch(f'{start}[^"]*{second}[^"]*{third}.*{end}', data, re.DOTALL)
    return has_phrases is not None and FIRST_SEPARATOR not in data and SECOND_SEPARATOR not in data


@given(st.sampled_from(list(MARKS_BY_TYPE)), st.tuples(texts, texts, texts), texts)
def test_data_that_fits_a_template_is_shorter_and_all_data_is_restored(
    type: str, values: tuple[str, str, str], other: str
) -> None:
    start, second, third, end = TEMPLATES[MARKS_BY_TYPE[type]]
    first_value, second_value, last_value = values
    for data in (f"{start}{first_value}{second}{second_value}{third}{last_value}{end}", other):
        stored = abbreviate_data(type, data)
        assert restore_data(stored) == data
        assert (len(stored) < len(data)) == fits(MARKS_BY_TYPE[type], data)


@pytest.mark.parametrize("type", ["step_completed", "output_chunk"])
def test_data_of_other_types_is_stored_as_it_is(type: str) -> None:
    start, second, third, end = TEMPLATES[MARKS_BY_TYPE["node_completed"]]
    data = f"{start}echo{second}1{third}2{end}"
    assert abbreviate_data(type, data) == data
