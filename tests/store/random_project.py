"""Random content of a store: everything that sessions keep, in all the forms in which it is stored."""

import json
from random import Random

from nerve.store.port import (
    MAX_INLINE_BYTES,
    Append,
    Definition,
    EventRow,
    FactRow,
    ReplyRow,
    RunRow,
    StepUsageRow,
    Store,
    TagRow,
    UsageRow,
    WaitRow,
)

TYPES = ("workflow_started", "node_started", "node_completed", "output_chunk", "gate_waiting", "noted")
TEXTS = ('{"a":1}', "{}", '"Grüße, 世界 🙂\\u0000"', "enc:AES:abc", "\x01odd", "x" * (MAX_INLINE_BYTES + 1))
STATES = ("running", "waiting", "completed", "failed")


def fill_store(store: Store, random: Random) -> None:
    """Fill a store with up to a dozen runs of two sessions, and what surrounds them."""
    ends: dict[str, int] = {}
    settled: dict[str, set[str]] = {}
    for _ in range(random.randrange(1, 12)):
        batch = [random_part(random, ends, settled) for _ in range(random.randrange(1, 8))]
        assert store.append(batch) == [None] * len(batch)
    for run, count in ends.items():
        chunks = [row.seq for row in store.events(run) if row.type == "output_chunk"]
        if chunks and random.random() < 0.7:
            store.empty_events(run, random.sample(chunks, random.randrange(1, len(chunks) + 1)))
        if count and random.random() < 0.1:
            store.delete_runs([run])
    for number in range(random.randrange(4)):
        text = random.choice(("hello", "with a zero\0 byte", "世界"))
        run = random.choice((None, "a0"))
        store.add_message(random.choice("cd"), "user", f"{number} {text}", run, random.random() * 1e9)
    store.mark_resuming(random.sample(list(ends), min(2, len(ends))))
    store.write_property("codecs", json.dumps({"aes-2026": "abc"}))


def random_part(random: Random, ends: dict[str, int], settled: dict[str, set[str]]) -> Append:
    run = f"{random.choice('abc')}{random.randrange(4)}"
    session = "default" if run < "c" else "other"
    after = ends.get(run, 0)
    rows = [
        random_event(random, seq, settled.setdefault(run, set()))
        for seq in range(after + 1, after + 1 + random.randrange(6))
    ]
    ends[run] = after + len(rows)
    state = random.choice(STATES)
    started = float(sum(run.encode()))
    row = RunRow(
        run,
        session,
        "review",
        state,
        started,
        ended=started + 0.1 if state in ("completed", "failed") else None,
        key=f"key of {run}" if run.endswith("1") else None,
        wake=random.choice((None, 2e9)),
        definition=random.choice((None, "h1")),
        conversation=random.choice((None, "c")),
        label=random.choice((None, "v3")),
        summary=random.choice((None, '{"steps":2}')),
    )
    has_row = random.random() < 0.9
    return Append(
        run,
        after,
        rows,
        row if has_row else None,
        random.choice((None, Definition("h1", "review", "yaml", "name: review", '{"name":"review"}'))),
        facts=random_facts(random, session),
        replies=[ReplyRow(session, f"{random.randrange(9)}", 1.5, "asked", random.choice(("", "done")))],
        waits=[WaitRow(session, run, f"/{random.randrange(3)}", "gate", 2.5, random.choice((None, "{}")))],
        usage=[
            UsageRow(session, "2026-11-18", "m", {"tokens": random.randrange(9), "cost": random.random()})
        ],
        step_usage=[StepUsageRow(session, "2026-11-18", "review", "", "m", {"runs": 1})],
        tags=random_tags(random) if has_row else (),
    )


def random_event(random: Random, seq: int, settled: set[str]) -> EventRow:
    type, path = random.choice(TYPES), f"/{random.randrange(20)}"
    settles = random.choice((None, path, f"{path}~again"))
    if settles in settled:
        settles = None
    if settles is not None:
        settled.add(settles)
    data = random.choice(TEXTS)
    if type == "node_completed" and random.random() < 0.7:
        result = '{"success":true,"output":"o","attributes":{}}'
        data = f'{{"node_id":"n","success":true,"duration_ms":1.5,"result":{result}}}'
    return EventRow(seq, random.random() * 2e9, type, path, settles, data)


def random_facts(random: Random, session: str) -> list[FactRow]:
    id, version = f"f{random.randrange(4)}", random.randrange(1, 99)
    record = random.choice((None, '["note",{"a":"1"}]', '["note","enc:abc"]', "[[1],2]"))
    return [FactRow(session, id, version, 3.5, "user", record)]


def random_tags(random: Random) -> list[TagRow]:
    tags = [
        TagRow("tag", "customer", f"{random.randrange(3)}", 4.5),
        TagRow("patch", "fraud", "true", 5.5),
        TagRow("chain", "chain", "a0", 6.5),
    ]
    return random.sample(tags, random.randrange(4))
