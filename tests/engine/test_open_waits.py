"""What a wait asks is compared on replay with what the journal has of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nerve.core.json_codec import encode_json
from nerve.core.runtime import GateWait, MessageWait, SignalWait, TimerWait, Wait
from nerve.engine.open_waits import comparable_wait, wait_opened
from nerve.journal.events import decode_event
from nerve.journal.replay import recorded_request
from nerve.store.port import EventRow

texts = st.text("ab", max_size=3)
names = st.none() | texts
lists = st.none() | st.lists(texts, max_size=2)
seconds = st.none() | st.floats(0, 9)
forms = st.none() | st.dictionaries(texts, texts, max_size=2)
patterns = st.none() | st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2)
gates = st.builds(
    GateWait,
    st.just("/gate"),
    texts,
    choices=lists,
    options=lists,
    timeout=seconds,
    note=names,
    input_preview=names,
    form=forms,
    typed=st.booleans(),
)
waits: st.SearchStrategy[Any] = st.one_of(
    gates,
    st.builds(TimerWait, st.just("/sleep"), st.floats(0, 9), st.booleans(), names),
    st.builds(SignalWait, st.just("/signal"), texts, names, seconds, patterns),
    st.builds(MessageWait, st.just("/message"), texts, seconds, st.booleans()),
)


@given(waits, texts, seconds, texts)
def test_a_wait_is_compared_as_its_event_is_after_a_restart(
    wait: Wait, gate_id: str, deadline: float | None, request_hash: str
) -> None:
    opened = wait_opened(wait, gate_id, deadline, request_hash)
    recorded = decode_event(EventRow(1, 0.0, opened.type, wait.path, None, opened.encode()))
    request = encode_json(comparable_wait(wait), canonical=True, max_depth=None)
    assert request == recorded_request(recorded)
