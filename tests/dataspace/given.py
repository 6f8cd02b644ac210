"""Hypothesis strategies for records, values and patterns."""

from typing import Any

from hypothesis import strategies as st

from nerve.dataspace import Record
from nerve.dataspace.matchers import escape_pattern_key, literal

awkward = st.sampled_from(
    [
        "",
        "_",
        "...",
        "?",
        "?x",
        "\\",
        "\\?x",
        "\\\\",
        "true",
        "nil",
        "12",
        ":a",
        "a b",
        "key",
        "scope",
        '"',
        "é\n",
    ]
)
texts = awkward | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
labels = st.sampled_from(
    ["signal", "note", "workflow-instance", "workflow/definition", "agent-response"]
) | texts.filter(bool)
names = st.sampled_from(["key", "value", "label", "request-id", "run", "..."]) | texts
records = st.builds(
    Record, labels, st.lists(values, max_size=3).map(tuple), st.dictionaries(names, values, max_size=3)
)
few = st.sampled_from(["a", "b"])
small = st.booleans() | st.integers(0, 1) | few
"""So few that equal ones meet."""
small_records = st.builds(
    Record,
    st.sampled_from(["signal", "note", "workflow/log", "workflow-instance"]),
    st.lists(few, max_size=2).map(tuple),
    st.dictionaries(
        st.sampled_from(["key", "value", "run", "seq", "definition", "label"]), small, max_size=3
    ),
)


@st.composite
def holed(draw: Any, source: st.SearchStrategy[Record] = small_records) -> list[Any]:
    """A pattern made from a record with wildcards, captures or omitted fields."""
    record = draw(source)
    hole = st.sampled_from(["_", "?x", "?y"])

    def mostly(value: Any) -> Any:
        return draw(hole) if draw(st.booleans()) else literal(value)

    kept = draw(st.integers(0, len(record.fields)))
    fields = [mostly(value) for value in record.fields[:kept]]
    more = ["..."] if kept < len(record.fields) or draw(st.booleans()) else []
    named = {
        escape_pattern_key(name): mostly(value) for name, value in record.named.items() if draw(st.booleans())
    }
    return [mostly(record.label), *fields, *more, named]
