"""The audit: everything that was decided in a session, verified against the hash chains of its store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.commands import WORKFLOW_DEFINED
from nerve.api.delete_runs import RUNS_DELETED
from nerve.api.errors import ApiError
from nerve.api.lookup import find_run_row
from nerve.core.people import PERSON_IDENTITY, UNIX_CONTACT, Person
from nerve.errors import JournalBroken
from nerve.journal.decisions import Decision, DecisionReader, who_of
from nerve.lazy_dataclass import dataclass
from nerve.session.run_filters import InvalidFilter, parse_since
from nerve.store.port import PersonRow, RunRow

if TYPE_CHECKING:
    from nerve.session import Session

RUNS_PER_PAGE = 500
EVENTS_PER_PAGE = 20_000
"""Events after which a page ends with the run that it is at."""
EVENTS_PER_READ = 500
"""Events to verify per iteration of the event loop."""
PERSON_ACTIONS = {"added": "add person", "changed": "change person", "removed": "remove person"}
SESSION_ACTIONS = {RUNS_DELETED: "delete", WORKFLOW_DEFINED: "define"}


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which decisions are exported."""

    since: float | None
    until: float | None
    run: str | None
    person: str | None
    identities: frozenset[str]
    """The identities of the person."""

    @classmethod
    def of(cls, session: Session, request: models.AuditRequest) -> AuditFilter:
        now, person = session.engine.clock.time(), request.person
        since, until = (
            None if text is None else read_time(name, text, now)
            for name, text in (("since", request.since), ("until", request.until))
        )
        identities = set()
        if person is not None:
            known = session.people.current().get(person)
            user = None if known is None else (known.contacts or {}).get(UNIX_CONTACT)
            identities = {f"{PERSON_IDENTITY}{person}", *([f"unix:{user}"] if user else ())}
        run = None if request.run is None else find_run_row(session, request.run).run
        return cls(since, until, run, person, frozenset(identities))

    def accepts(self, entry: models.AuditEntry) -> bool:
        at = entry.at.timestamp()
        is_in_time = (self.since is None or at >= self.since) and (self.until is None or at <= self.until)
        is_of_run = self.run is None or entry.run == self.run or self.run in entry.details.get("runs", ())
        names = (entry.person, entry.details.get("to"), entry.details.get("person"))
        is_of_person = self.person is None or self.person in names or entry.by in self.identities
        return is_in_time and is_of_run and is_of_person

    def may_have(self, row: RunRow) -> bool:
        """Whether a run may have a decision in the time of the filter."""
        is_later = self.until is not None and row.started > self.until
        return not is_later and (self.since is None or row.ended is None or row.ended >= self.since)


async def audit(session: Session, request: models.AuditRequest) -> models.AuditPage:
    """Return what was decided; ApiError names the run and the event at which a hash chain is broken."""
    accepted = AuditFilter.of(session, request)
    page = models.AuditPage()
    if request.after is None:
        changes = session.people.read_verified()
        page.entries = [entry for entry in read_changes(changes) if accepted.accepts(entry)]
        page.changes = len(changes)
        page.last_change = changes[-1].hash if changes else None
    store = session.engine.store
    before = None if request.after is None else parse_cursor(request.after)
    if accepted.run is not None:
        row = store.run(accepted.run)
        rows = [] if row is None else [row]
    else:
        rows = store.runs(session=session.name, before=before, newest=RUNS_PER_PAGE + 1)[::-1]
    for row in rows[:RUNS_PER_PAGE]:
        if accepted.may_have(row):
            page.entries += [entry for entry in await read_run(session, row, page) if accepted.accepts(entry)]
        page.next = None if row is rows[-1] else f"{row.started!r} {row.run}"
        if page.events > EVENTS_PER_PAGE:
            break
    return page


async def read_run(session: Session, row: RunRow, page: models.AuditPage) -> list[models.AuditEntry]:
    """Return the decisions about a run, whose journal is verified; count it in the page."""
    store, reader, after = session.engine.store, DecisionReader(), 0
    decisions: list[Decision] = []
    while True:
        try:
            events = store.events(row.run, after, EVENTS_PER_READ)
            decisions += reader.read(events)
        except JournalBroken as error:
            raise ApiError(
                "internal",
                f"The hash chain of run '{error.run}' is broken at event {error.seq}",
                "The event is not what was written: restore the store from a backup.",
                {"run": error.run, "event": error.seq},
            ) from None
        after += len(events)
        await asyncio.sleep(0)
        if len(events) < EVENTS_PER_READ:
            break
    if not after and store.run(row.run) is None:
        return []  # deleted meanwhile
    page.runs, page.events = page.runs + 1, page.events + after
    return [run_entry(row, decision) for decision in decisions]


def run_entry(row: RunRow, decision: Decision) -> models.AuditEntry:
    who = dict(decision.who)
    who.setdefault("person", person_of_identity(who.get("by")))
    return models.AuditEntry(
        at=datetime.fromtimestamp(decision.at, UTC),
        action=decision.action,
        **who,
        run=row.run,
        workflow=row.workflow,
        seq=decision.seq,
        gate=decision.gate,
        path=decision.path,
        answer=decision.answer,
        hash=decision.hash,
        reason=decision.reason,
        details=dict(decision.details),
    )


def read_changes(changes: list[PersonRow]) -> Iterator[models.AuditEntry]:
    """Yield what was changed of people, and what was done to the session as a whole."""
    people: dict[str, Any] = {}
    for change in changes:
        data = json.loads(change.data)
        who, what, person = who_of(data), data["change"], data["person"]
        if change.name:
            action = PERSON_ACTIONS.get(what, what)
            details = {"person": change.name, **describe_change(people.get(change.name), person)}
            people[change.name] = person
        else:
            action = SESSION_ACTIONS.get(what, what)
            details = {name: value for name, value in data.items() if name not in (*who, "change", "person")}
        yield models.AuditEntry(
            at=datetime.fromtimestamp(change.at, UTC),
            action=action,
            **who,
            person=person_of_identity(who.get("by")),
            workflow=details.get("workflow"),
            seq=change.number,
            details=details,
        )


def describe_change(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a change has set; of the token and the contacts only that, and which."""
    if new is None:
        return {}
    before = Person("").to_data() if old is None else old
    changed: dict[str, Any] = {
        name: new[name] for name in ("roles", "scope", "disabled") if old is None or new[name] != before[name]
    }
    kinds = {*new["contacts"], *before["contacts"]}
    if contacts := sorted(
        kind for kind in kinds if new["contacts"].get(kind) != before["contacts"].get(kind)
    ):
        changed["contacts"] = contacts
    if new["token_hash"] != before["token_hash"]:
        changed["token"] = "new"
    return changed


def person_of_identity(identity: str | None) -> str | None:
    """Return the person who has proved who they are, if an identity is one of them."""
    kind, _, name = (identity or "").partition(PERSON_IDENTITY)
    return name if name and not kind else None


def read_time(name: str, text: str, now: float) -> float:
    try:
        return parse_since(text, now)
    except InvalidFilter as error:
        problem = error.problem.replace("since", name, 1)
        raise ApiError("bad_request", problem, error.fix) from None


def parse_cursor(text: str) -> RunRow:
    """Return what stands for the last run of a page, which may be deleted by now."""
    started, _, run = text.partition(" ")
    try:
        return RunRow(run, "", "", "", float(started))
    except ValueError:
        raise ApiError(
            "bad_request", f"Invalid after '{text}'", "Use the field next of the previous page."
        ) from None
