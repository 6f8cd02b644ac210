"""The in-memory store: for tests, and for runs that need not survive the process."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence

from nerve.errors import Conflict, StoreError
from nerve.store import refusal_messages
from nerve.store.port import (
    EMPTIABLE_TYPE,
    EMPTIED_DATA,
    Append,
    Definition,
    EventRow,
    FactRow,
    MessageRow,
    ReplyRow,
    RunRow,
)


class MemoryStore:
    """A store without durability; see `Store` for its contract."""

    durable = False
    loss = None

    def __init__(self) -> None:
        self._journals: dict[str, list[EventRow]] = {}
        self._settled_paths: dict[tuple[str, str], int] = {}
        self._runs: dict[str, RunRow] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._definitions: dict[str, Definition] = {}
        self._facts: dict[str, dict[str, FactRow]] = {}
        self._versions: dict[str, int] = {}
        self._replies: dict[tuple[str, str], ReplyRow] = {}
        self._messages: dict[str, list[MessageRow]] = {}
        self._resumes: dict[str, int] = {}
        self._message_lock = threading.Lock()

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        for part in batch:
            _check_part(part)
        return [self._append_part(part) for part in batch]

    def _append_part(self, part: Append) -> Conflict | None:
        settling = {(part.run, row.settles): row.seq for row in part.rows if row.settles is not None}
        if conflict := self._find_conflict(part, settling):
            return conflict
        self._settled_paths.update(settling)
        self._journals.setdefault(part.run, []).extend(part.rows)
        if part.row is not None:
            self._store_run_row(part.row)
        if part.definition is not None:
            self._definitions.setdefault(part.definition.hash, part.definition)
        for fact in part.facts:
            self._apply_fact(fact)
        for reply in part.replies:
            previous = self._replies.setdefault((reply.session, reply.key), reply)
            if previous.reply == "" and previous.asked == reply.asked:
                self._replies[reply.session, reply.key] = previous._replace(reply=reply.reply)
        return None

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
            and (before is None or (row.started, row.run) < (before.started, before.run))
        ]
        rows.sort(key=lambda row: (row.started, row.run))
        return rows if newest is None else rows[max(0, len(rows) - newest) :]

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

    def close(self) -> None:
        pass


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
