"""The in-memory store: for tests, and for runs that need not survive the process."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from nerve.errors import Conflict, OwnershipLost, StoreError
from nerve.store import refusal_messages
from nerve.store.input_search import input_contains, lower_ascii
from nerve.store.port import (
    CHAIN_KIND,
    EMPTIABLE_TYPE,
    EMPTIED_DATA,
    MAX_SEARCHED_RUNS,
    PATCH_KIND,
    TAG_KIND,
    Append,
    Definition,
    EventRow,
    FactRow,
    MessageRow,
    PersonRow,
    ReplyRow,
    RunRow,
    StepUsageRow,
    TagRow,
    UsageRow,
    WaitRow,
)


class MemoryStore:
    """A store without durability; see `Store` for its contract."""

    durable = False
    loss = None
    summarized_since = 0.0

    def __init__(self) -> None:
        self._journals: dict[str, list[EventRow]] = {}
        self._settled_paths: dict[tuple[str, str], int] = {}
        self._runs: dict[str, RunRow] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._definitions: dict[str, Definition] = {}
        self._facts: dict[str, dict[str, FactRow]] = {}
        self._versions: dict[str, int] = {}
        self._replies: dict[tuple[str, str], ReplyRow] = {}
        self._waits: dict[tuple[str, str], WaitRow] = {}
        self._usage: dict[tuple[str, str, str], dict[str, float]] = {}
        self._step_usage: dict[tuple[str, str, str, str, str], dict[str, float]] = {}
        self._messages: dict[str, list[MessageRow]] = {}
        self._people: dict[str, list[PersonRow]] = {}
        self._resumes: dict[str, int] = {}
        self._tags: dict[str, dict[tuple[str, str], str]] = {}
        self._patches: dict[tuple[str, str, str], float] = {}
        self._properties: dict[str, str] = {}
        self._message_lock = threading.Lock()

    @property
    def read_only(self) -> bool:
        return False

    @property
    def stream(self) -> None:
        return None

    def watch_ownership(self, on_lost: Callable[[OwnershipLost], None]) -> None:
        pass

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        for part in batch:
            _check_part(part)
        outcomes: list[StoreError | None] = []
        refused: set[str] = set()
        for part in batch:
            conflict = (
                refusal_messages.needed_part_conflict(part)
                if part.needs in refused
                else self._append_part(part)
            )
            if conflict is not None:
                refused.add(part.run)
            outcomes.append(conflict)
        return outcomes

    def _append_part(self, part: Append) -> Conflict | None:
        settling = {(part.run, row.settles): row.seq for row in part.rows if row.settles is not None}
        if conflict := self._find_conflict(part, settling):
            return conflict
        self._settled_paths.update(settling)
        self._journals.setdefault(part.run, []).extend(part.rows)
        if part.row is not None:
            self._store_run_row(part.row)
        if part.definition is not None:
            self._definitions[part.definition.hash] = part.definition
        for fact in part.facts:
            self._apply_fact(fact)
        for reply in part.replies:
            previous = self._replies.setdefault((reply.session, reply.key), reply)
            if previous.reply == "" and previous.asked == reply.asked:
                self._replies[reply.session, reply.key] = previous._replace(reply=reply.reply)
        for wait in part.waits:
            self._waits.pop((wait.run, wait.path), None)
            if wait.data is not None:
                self._waits[wait.run, wait.path] = wait
        if part.row is not None:
            self._store_tags(part.row, part.tags)
            if part.row.ended is not None:
                self._close_waits(part.row.run)
        for used in part.usage:
            _add_amounts(self._usage.setdefault(used[:3], {}), used.amounts)
        for used_by_step in part.step_usage:
            _add_amounts(self._step_usage.setdefault(used_by_step[:5], {}), used_by_step.amounts)
        return None

    def _store_tags(self, row: RunRow, tags: Sequence[TagRow]) -> None:
        for kind, name, value, at in tags:
            self._tags.setdefault(row.run, {})[kind, name] = value
            if kind == PATCH_KIND:
                self._patches.setdefault((row.session, name, row.workflow), at)

    def _close_waits(self, run: str) -> None:
        for wait in self.waits_of_run(run):
            del self._waits[run, wait.path]

    def _apply_fact(self, fact: FactRow) -> None:
        facts = self._facts.setdefault(fact.session, {})
        self._versions[fact.session] = max(fact.version, self._versions.get(fact.session, 0))
        if fact.record is None:
            facts.pop(fact.id, None)
        else:
            facts[fact.id] = fact

    def _find_conflict(self, part: Append, settling: dict[tuple[str, str], int]) -> Conflict | None:
        head = len(self._journals.get(part.run, ()))
        if head != part.after:
            return refusal_messages.sequence_conflict(part, head)
        for row in part.rows:
            if row.settles is not None:
                settled_key = part.run, row.settles
                seq = self._settled_paths.get(settled_key, settling[settled_key])
                if seq != row.seq:
                    return refusal_messages.settled_path_conflict(part.run, row.settles, min(seq, row.seq))
        if part.row is not None and part.row.key is not None:
            owner = self._keys.get((part.row.session, part.row.key), part.row.run)
            if owner != part.row.run:
                return refusal_messages.run_key_conflict(part.row, owner)
        return None

    def _store_run_row(self, row: RunRow) -> None:
        previous = self._runs.get(row.run)
        if previous is not None and previous.key is not None:
            del self._keys[previous.session, previous.key]
        if row.key is not None:
            self._keys[row.session, row.key] = row.run
        self._runs[row.run] = row

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        return self._journals.get(run, [])[after : None if limit is None else after + limit]

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        rows = reversed(self._journals.get(run, []))
        return next((row for row in rows if type in (None, row.type)), None)

    def run(self, run: str) -> RunRow | None:
        return self._runs.get(run)

    def runs(
        self,
        *,
        session: str | None = None,
        workflow: str | None = None,
        states: Collection[str] | None = None,
        prefix: str = "",
        conversation: str | None = None,
        label: str | None = None,
        since: float | None = None,
        tags: Mapping[str, str] | None = None,
        patch: str | None = None,
        chain: str | None = None,
        search: str | None = None,
        before: RunRow | None = None,
        newest: int | None = None,
    ) -> list[RunRow]:
        rows = [
            row
            for row in self._runs.values()
            if (session is None or row.session == session)
            and (workflow is None or row.workflow == workflow)
            and (states is None or row.state in states)
            and row.run.startswith(prefix)
            and (conversation is None or row.conversation == conversation)
            and (label is None or row.label == label)
            and (since is None or row.started >= since)
            and (not tags or self._has_tags(row.run, tags))
            and (patch is None or self._may_need_old_branch(row, patch))
            and (chain is None or self._tags.get(row.run, {}).get((CHAIN_KIND, CHAIN_KIND)) == chain)
            and (before is None or (row.started, row.run) < (before.started, before.run))
        ]
        rows.sort(key=lambda row: (row.started, row.run))
        if search is not None:
            rows = [row for row in rows[-MAX_SEARCHED_RUNS:] if self._contains_text(row, search)]
        return rows if newest is None else rows[max(0, len(rows) - newest) :]

    def _has_tags(self, run: str, tags: Mapping[str, str]) -> bool:
        own = self._tags.get(run, {})
        return all(own.get((TAG_KIND, name)) == value for name, value in tags.items())

    def _may_need_old_branch(self, row: RunRow, patch: str) -> bool:
        value = self._tags.get(row.run, {}).get((PATCH_KIND, patch))
        first_use = self._patches.get((row.session, patch, row.workflow), -math.inf)
        return value == "false" or (value is None and row.started < first_use)

    def _contains_text(self, row: RunRow, search: str) -> bool:
        first = self._journals.get(row.run, [])[:1]
        own = self._tags.get(row.run, {})
        texts = [
            row.workflow,
            row.label or "",
            *(f"{name}={value}" for (kind, name), value in own.items() if kind == TAG_KIND),
        ]
        return any(lower_ascii(search) in lower_ascii(text) for text in texts) or any(
            input_contains(event.data, search) for event in first
        )

    def tag_names(self, session: str, kind: str) -> list[str]:
        runs = (own for run, own in self._tags.items() if self._runs[run].session == session)
        return sorted({name for own in runs for each_kind, name in own if each_kind == kind})

    def last_written_runs(self, events: int) -> list[str]:
        written = [(row.at, run) for run, rows in self._journals.items() for row in rows[-events:]]
        return list(dict.fromkeys(run for _, run in sorted(written)[-events:]))

    def count_runs(self, session: str) -> dict[str, int]:
        return dict(Counter(row.state for row in self._runs.values() if row.session == session))

    def count_definitions(self, session: str) -> dict[str, int]:
        rows = self.runs(session=session)
        return dict(Counter(row.definition for row in rows if row.definition is not None))

    def sessions(self) -> list[str]:
        return list(dict.fromkeys(row.session for row in self.runs()))

    def labels(self, session: str, prefix: str, limit: int) -> list[str]:
        labels = {row.label for row in self._runs.values() if row.session == session and row.label}
        return sorted(label for label in labels if label.startswith(prefix))[:limit]

    def open_waits(
        self, session: str, kind: str, after: WaitRow | None = None, limit: int | None = None
    ) -> list[WaitRow]:
        waits = [wait for wait in self._waits.values() if (wait.session, wait.kind) == (session, kind)]
        waits.sort(key=_wait_order)
        return [wait for wait in waits if after is None or _wait_order(wait) > _wait_order(after)][:limit]

    def waits_of_run(self, run: str) -> list[WaitRow]:
        return sorted((wait for wait in self._waits.values() if wait.run == run), key=_wait_order)

    def count_waits(self, session: str) -> dict[str, int]:
        return dict(Counter(wait.kind for wait in self._waits.values() if wait.session == session))

    def daily_usage(self, session: str, first_day: str, last_day: str) -> list[UsageRow]:
        return [
            UsageRow(*key, dict(amounts))
            for key, amounts in sorted(self._usage.items())
            if key[0] == session and first_day <= key[1] <= last_day
        ]

    def daily_step_usage(self, session: str, first_day: str, last_day: str) -> list[StepUsageRow]:
        return [
            StepUsageRow(*key, dict(amounts))
            for key, amounts in sorted(self._step_usage.items())
            if key[0] == session and first_day <= key[1] <= last_day
        ]

    def run_by_key(self, session: str, key: str) -> RunRow | None:
        run = self._keys.get((session, key))
        return None if run is None else self._runs[run]

    def definition(self, hash: str) -> Definition | None:
        return self._definitions.get(hash)

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        facts = sorted(self._facts.get(session, {}).values(), key=lambda fact: fact.version)
        return facts if label is None else [fact for fact in facts if fact_label(fact) == label]

    def fact_version(self, session: str) -> int:
        return self._versions.get(session, 0)

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        return self._replies.get((session, key))

    def forget_replies(self, session: str, before: float) -> int:
        replies = self._replies.items()
        old = [reply_key for reply_key, reply in replies if reply.session == session and reply.at < before]
        for reply_key in old:
            del self._replies[reply_key]
        return len(old)

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        at = time.time() if at is None else at
        refusal_messages.check_value_size(text, "a message in", conversation)
        with self._message_lock:
            messages = self._messages.setdefault(conversation, [])
            messages.append(MessageRow(conversation, len(messages) + 1, at, role, text, run))
            return messages[-1]

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        return self._messages.get(conversation, [])[after:]

    def journal_size(self, run: str) -> tuple[int, int]:
        rows = self._journals.get(run, [])
        return len(rows), sum(len(row.data.encode()) for row in rows)

    def old_events(
        self, run: str, type: str, before: float, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, int]]:
        rows = [row for row in self.events(run, after) if row.type == type and row.at < before]
        return [(row.seq, len(row.data.encode())) for row in rows if row.data != EMPTIED_DATA][:limit]

    def delete_runs(self, runs: Sequence[str]) -> None:
        for run in runs:
            for row in self._journals.pop(run, []):
                self._settled_paths.pop((run, row.settles or ""), None)
            if (removed := self._runs.pop(run, None)) is not None and removed.key is not None:
                del self._keys[removed.session, removed.key]
            self._resumes.pop(run, None)
            self._tags.pop(run, None)
            self._close_waits(run)

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        rows = self._journals[run]
        for row in (rows[seq - 1] for seq in seqs):
            if row.type != EMPTIABLE_TYPE:
                raise refusal_messages.not_emptiable_error(run, row.seq, row.type)
        for seq in seqs:
            rows[seq - 1] = rows[seq - 1]._replace(data=EMPTIED_DATA)

    def mark_resuming(self, runs: Sequence[str]) -> None:
        for run in runs:
            self._resumes[run] = self._resumes.get(run, 0) + 1

    def clear_resuming(self, runs: Sequence[str]) -> None:
        for run in runs:
            self._resumes.pop(run, None)

    def resume_counts(self) -> dict[str, int]:
        return dict(self._resumes)

    def people_changes(self, session: str, after: int = 0) -> list[PersonRow]:
        return self._people.get(session, [])[after:]

    def add_people_change(self, change: PersonRow) -> bool:
        with self._message_lock:
            changes = self._people.setdefault(change.session, [])
            if change.number != len(changes) + 1:
                return False
            changes.append(change)
            return True

    def read_property(self, name: str) -> str | None:
        return self._properties.get(name)

    def write_property(self, name: str, value: str) -> None:
        self._properties[name] = value

    def close(self) -> None:
        pass


def _add_amounts(totals: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        totals[name] = totals.get(name, 0) + amount


def _wait_order(wait: WaitRow) -> tuple[float, str, str]:
    return wait.since, wait.run, wait.path


def fact_label(fact: FactRow) -> object:
    return json.loads(fact.record or "[null]")[0]


def _check_part(part: Append) -> None:
    for seq, row in enumerate(part.rows, part.after + 1):
        if row.seq != seq:
            raise refusal_messages.out_of_order_error(part.run, seq, row.seq)
        refusal_messages.check_value_size(row.data, "event", row.seq, "of run", part.run)
    for fact in part.facts:
        refusal_messages.check_value_size(fact.record or "", "fact", fact.id)
    for reply in part.replies:
        refusal_messages.check_value_size(reply.reply, "the reply to", reply.key)
    for wait in part.waits:
        refusal_messages.check_value_size(wait.data or "", "the wait at", wait.path, "of run", wait.run)
