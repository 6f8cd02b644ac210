"""What the processes of the Temporal engine send each other: plain JSON with a version, and where it goes.

**One workflow for a family of runs.** A run that no other run called is executed by one Temporal workflow of
the type `nerve.run`, whose id is the id of the run. Its child runs, and the later runs of its chain, are
executed by the same workflow: a command for any of them goes to the workflow of the family. `RunRow.parent`
leads from a child run to its parent; a later run of a chain belongs to the workflow of the first one.

**A run begins with a journal.** `RunInput` carries the rows that the runs of the family have already: the
first event alone for a new run, the copied events for a fork or a retry, all events for a run that is moved
here or that continues in a new history. The workflow executes the body again from these rows.

**Rows become visible only after they are in the history.** The workflow numbers the rows of each run densely
from 1 (`EventRow.seq`). It writes nothing; it hands its rows to activities, as parts of journals: with the
next leaf (`LeafInput.journal`), or by the activity `nerve.append` (`AppendInput`). A worker that gets parts
writes them to the projection before anything else. A part can arrive more than once, and is idempotent by
the run, the source and the number of each row.

**A leaf writes rows of its own.** The rows that a leaf emits have the source `LeafInput.source(…)` and
numbers of their own. The journal of the workflow does not have them, so that a replay of the workflow does
not need them; the projection numbers the rows of all sources in the order of their arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar, Self
from uuid import UUID, uuid5

from nerve.lazy_dataclass import dataclass
from nerve.store.port import (
    Append,
    Definition,
    EventRow,
    FactRow,
    ReplyRow,
    RunRow,
    StepUsageRow,
    TagRow,
    UsageRow,
    WaitRow,
)

WORKFLOW_TYPE = "nerve.run"
LEAF_ACTIVITY = "nerve.leaf"
"""Executes one attempt at a leaf: takes `LeafInput`, returns `LeafResult`."""
APPEND_ACTIVITY = "nerve.append"
"""Writes parts of journals to the projection: takes `AppendInput`, returns None."""
SHARED_STATE_ACTIVITY = "nerve.shared_state"
"""Changes and reads what runs share: takes `SharedStateInput`, returns `SharedStateResult`."""
DEFINITION_ACTIVITY = "nerve.definition"
"""Returns the definition of a workflow file by its hash, as a list of the values of `Definition`, or None."""
CLOSE_ACTIVITY = "nerve.close_workspaces"
"""Removes the workspaces of runs that have ended, if their work is merged: takes `CloseInput`."""
LEAF_ELSEWHERE = "LeafElsewhere"
"""The type of the failure of a leaf that a worker did not begin; another one can."""
HOST_LOST = "nerve.host_lost"
"""The error type of a leaf that has not begun, because the host of its family has no worker."""
COMMAND_UPDATE = "command"
"""The update of a workflow that executes a command: takes `RunCommand`, returns `RunCommandReply`."""

HOST_ATTRIBUTE = "host"
"""The attribute of the result of a leaf in a workspace that names the host with its files."""
WORKSPACE_KIND = "workspace_"
"""The beginning of the kinds of the leaves that create, merge, read and close workspaces."""

MESSAGE_VERSION = 1
"""Increased by a change that an older worker would misunderstand; a new field with a default is none."""

WORKFLOW_SOURCE = ""
"""The source of the rows that the workflow itself writes."""

RUN_IDS = UUID("2f6f0d0e-4a0b-5c27-9d1e-6d5d5b6f3a11")
"""The namespace of the ids of runs that are started with a key."""


def run_id_of_key(session: str, key: str) -> str:
    """Return the id of the run that is started with a key, so that Temporal starts only one.

    The workflow is started with `id_conflict_policy=USE_EXISTING` and
    `id_reuse_policy=REJECT_DUPLICATE`.
    """
    return str(uuid5(RUN_IDS, f"{session}\n{key}"))


def body_queue(session: str) -> str:
    """Return the task queue of the body workers: workflows, and the activities of the projection."""
    return f"nerve-{session}"


def leaf_queue(session: str, provider: str | None = None) -> str:
    """Return the task queue of the leaves of a provider, such as `claude`, or of all other leaves."""
    return f"nerve-{session}-leaves-{provider}" if provider else f"nerve-{session}-leaves"


def host_queue(session: str, host: str) -> str:
    """Return the task queue of the leaves that must run on one host."""
    return f"nerve-{session}-host-{host}"


class MessageVersionError(ValueError):
    """A message was written by a version of Nerve that this one does not understand."""


class WireMessage:
    """A dataclass whose fields are JSON, or parts of journals; encoded as an object with a `version`."""

    JOURNAL_FIELDS: ClassVar[tuple[str, ...]] = ()
    """The fields that are lists of `Append`."""

    def to_data(self) -> dict[str, Any]:
        """Return the message as JSON."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        for name in self.JOURNAL_FIELDS:
            data[name] = [append_to_data(part) for part in data[name]]
        return {"version": MESSAGE_VERSION, **data}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the message; fields that this version does not know are ignored."""
        if data.get("version") != MESSAGE_VERSION:
            raise MessageVersionError(
                f"{cls.__name__} has version {data.get('version')!r}, but this worker knows"
                f" {MESSAGE_VERSION}. Start a worker of the version that sent it."
            )
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        known = {name: value for name, value in data.items() if name in names}
        for name in cls.JOURNAL_FIELDS:
            known[name] = [append_from_data(part) for part in known.get(name, ())]
        return cls(**known)


@dataclass(frozen=True, slots=True)
class RunInput(WireMessage):
    """The argument of the workflow `nerve.run`."""

    JOURNAL_FIELDS: ClassVar[tuple[str, ...]] = ("journal",)

    session: str
    """The name of the session, which a worker must have."""
    run_id: str
    """The run that the workflow executes; of a chain, its current run."""
    journal: Sequence[Append]
    """All rows of the run, and of the child runs that it still needs, a parent before its child runs; each
    part with the row of its run. The first event of each is `workflow_started`."""
    projected: Mapping[str, int] = field(default_factory=dict)
    """The number of the last row of each run that the projection has already; without a run, none."""
    host: str | None = None
    """The host on which the leaves of the family run; None if any can run them."""
    history_events: int = 8000
    """The length of a history after which the workflow continues in a new one."""
    workspaces: Sequence[Sequence[str]] = ()
    """The workspaces of the family that may exist: the run and the name of each."""
    commands: Sequence[Mapping[str, Any]] = ()
    """The data of commands to execute first, which an earlier workflow of the run had replied to."""


@dataclass(frozen=True, slots=True)
class FamilyOutcome(WireMessage):
    """What the workflow `nerve.run` returns when its run has ended and everything is in the projection.

    The value of the run is in its journal. The workflow of a failed run fails, with the error type of the
    run as the type of an `ApplicationError`.
    """

    run_id: str
    """The run that has ended; of a chain, the last one."""
    state: str
    """`completed` or `cancelled`."""


@dataclass(frozen=True, slots=True)
class LeafInput(WireMessage):
    """One attempt at a leaf, the argument of the activity `nerve.leaf`.

    The worker writes `journal` to the projection before it begins. It does not raise for what the code of the
    user does: that is a `LeafResult`. It raises what another worker can do better, such as an unknown name.
    """

    JOURNAL_FIELDS: ClassVar[tuple[str, ...]] = ("journal",)

    session: str
    run_id: str
    """The run that the leaf belongs to, which may be a child run."""
    workflow: str
    """The name of the workflow of this run."""
    path: str
    """The path of the step; the key of its side effects is derived from the run id and this path."""
    node_id: str
    reference: Mapping[str, Any]
    """How the worker finds the node; see `nerve.engine.leaf_references`."""
    started: int
    """The number of the last row of the run when the attempt was scheduled. It is greater for each attempt
    at a step, and the rows of the leaf belong after the row of the workflow with this number."""
    input: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the run."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the node that a fork changed."""
    timeout: float | None = None
    """Seconds for the attempt, measured by the worker."""
    idle_timeout: float | None = None
    """Seconds without an event, measured by the worker."""
    effect: str | None = None
    """`once` for a leaf that must not be attempted again unasked."""
    limits: Mapping[str, Any] | None = None
    """The budget of the step."""
    is_restarted: bool = False
    """Whether an earlier attempt was begun and its outcome is not known."""
    derived_run_id: str = ""
    """The id of the run that the leaf starts, if it starts one."""
    threads: Sequence[Sequence[str]] = ()
    """The conversations of agents so far: agent, provider and thread."""
    totals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The usage that the provider has reported for each thread."""
    journal: Sequence[Append] = ()
    """Parts of the journals of the family that the projection may not have yet, to be written first."""
    folder: str | None = None
    """The folder of the node, relative to the project; see `ExecutionContext.folder`."""
    is_limited: bool = False
    """Whether the worker must ask the workflow before each turn of the agent, since a budget applies."""
    workspace: Mapping[str, Any] | None = None
    """The workspace that the leaf works in; see `ActiveWorkspace.to_data`."""

    @property
    def uses_workspaces(self) -> bool:
        """Whether the leaf needs the host that has the workspaces of the family."""
        return self.workspace is not None or self.workspace_verb is not None

    @property
    def workspace_verb(self) -> str | None:
        """What the leaf does with workspaces: `base`, `open`, `merge`, `read` or `close`; else None."""
        kind = str(self.reference.get("kind") or "")
        return kind.removeprefix(WORKSPACE_KIND) if kind.startswith(WORKSPACE_KIND) else None

    def source(self, activity_attempt: int) -> str:
        """Return the source of the rows that the leaf writes; Temporal counts the attempts from 1."""
        return f"{self.path}#{self.started}.{activity_attempt}"


@dataclass(frozen=True, slots=True)
class LeafResult(WireMessage):
    """How an attempt at a leaf ended."""

    result: Mapping[str, Any]
    """The fields of a `Result`."""
    settlement: str = "completed"
    """`completed`, `error`, `timeout` or `skipped`; see `Result.settlement`."""
    timeout_seconds: float | None = None
    """The timeout that expired."""
    location: str | None = None
    """Where the code of the user failed, and its traceback; see `FailureTrace`."""
    traceback: str | None = None
    host: str | None = None
    """The host on which later leaves of the family must run; None if any can run them."""


@dataclass(frozen=True, slots=True)
class AppendInput(WireMessage):
    """The argument of the activity `nerve.append`."""

    JOURNAL_FIELDS: ClassVar[tuple[str, ...]] = ("journal",)

    journal: Sequence[Append]
    """Parts of the journals of the family, with rows of the source `WORKFLOW_SOURCE`, for one transaction.

    `Append.after` is the number of the row before the first one. A part without rows changes what it has.
    """


@dataclass(frozen=True, slots=True)
class CloseInput(WireMessage):
    """The argument of the activity `nerve.close_workspaces`."""

    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class SharedStateInput(WireMessage):
    """The argument of the activity `nerve.shared_state`.

    The worker writes `journal` to the projection first. Then it makes the changes, forgets what has ended or
    left, looks at the facts and adds entries to queues. A wait whose fact is not there gets it later with the
    command `fact`, and an entry without a slot with the command `slot`.
    """

    JOURNAL_FIELDS: ClassVar[tuple[str, ...]] = ("journal",)

    family: str
    """The run whose workflow executes the runs that wait."""
    looks: Sequence[Sequence[Any]] = ()
    """The waits: run, path, patterns by name, and whether it ends if no fact matches now."""
    changes: Sequence[Sequence[Any]] = ()
    """Records to assert, patterns to retract before that, and in whose name."""
    ended: Sequence[Sequence[str]] = ()
    """The run and path of each wait that needs no fact any more."""
    entries: Sequence[Sequence[Any]] = ()
    """The steps and runs that need slots: the values of `StoredEntry`, without its family."""
    left: Sequence[Sequence[Any]] = ()
    """The run, the path and the number of the request of each that needs its slot no more."""
    journal: Sequence[Append] = ()


@dataclass(frozen=True, slots=True)
class SharedStateResult(WireMessage):
    """What the activity `nerve.shared_state` returns."""

    matches: Sequence[Mapping[str, Any] | None] = ()
    """The match of each look."""
    has_slot: Sequence[bool] = ()
    """Whether each entry has a slot."""


@dataclass(frozen=True, slots=True)
class RunCommand(WireMessage):
    """A command for a run of the family, the argument of the update `command`.

    The id of the update is the idempotency key of the request, if it has one, so that Temporal executes it
    once. The verbs, with their arguments and the value of the reply:

    | verb | arguments | value |
    |---|---|---|
    | `answer` | `gate` (a path, an id, or None), `value`, `by`, `key`, `about`, `voter`, `action` | None |
    | `pause` | `about` | None |
    | `resume` | `limits`, `with_changes`, `about` | None |
    | `stop` | `reason`, `about` | the paths that were running |
    | `signal` | `label`, `value`, `key` | the number of waits that it settled |
    | `send` | `channel`, `value`, `key`, `by` | None |
    | `query` | `name` | the answer of the body |
    | `update` | `name`, `value`, `key`, `by` | the reply of the body |
    | `decide` | `path`, `decision` (`skip`, `retry` or `fail`), `value`, `about` | None |
    | `steer` | `text`, `path`, `by` | the path of the step |
    | `open_gate` | `path` (of the leaf), `gate` (fields of a `GateWait`) | `path` and `gate_id` of the gate |
    | `close_gate` | `path` (of the gate) | None |
    | `fact` | `path` (of the wait), `match` (what the dataspace found) | None |
    | `slot` | `path` (of the step, or empty for the run) | None |
    | `begin_turn` | `path` (of the leaf), `used` | whether the budgets have room, and reserve it |
    | `end_turn` | `path` (of the leaf), `used` | None |
    | `check_budget` | `path` (of the leaf), `used` | whether the budgets have room now |
    | `day_budget` | `path` (of the leaf), `problem` | None |

    `open_gate` returns as soon as the gate is open; its answer is the row `gate_answered` at the path of the
    gate, or `gate_timeout`. `close_gate` cancels a gate whose leaf has given it up. `used` is the usage of
    the step so far; `check_budget` holds the run while a budget is exhausted, and `day_budget` if there is
    a problem with the budget of the day, which a leaf knows from the database; without one, it resumes it.
    """

    verb: str
    run_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reply: Sequence[Any] | None = None
    """The values of the `ReplyRow` to store with the event that the command writes."""


@dataclass(frozen=True, slots=True)
class RunCommandReply(WireMessage):
    """The reply to a `RunCommand`."""

    value: Any = None
    error: str | None = None
    """Why the command was refused; None if it was executed."""
    error_type: str = ""
    """The name of the exception class, such as `GateNotOpen`, `ValueError` or `RuntimeError`."""
    last_row: int = 0
    """The number of the last row of the run when the command was executed."""
    error_fields: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the exception that are text."""


ROW_LISTS = {
    "rows": EventRow,
    "facts": FactRow,
    "replies": ReplyRow,
    "waits": WaitRow,
    "usage": UsageRow,
    "step_usage": StepUsageRow,
    "tags": TagRow,
}
"""The fields of an `Append` that are lists of rows."""


def group_by_run(parts: Sequence[Append]) -> list[tuple[str, list[Append]]]:
    """Return parts of the journals of a family, by run, in the order in which they are to be written.

    The starts of runs are first, the last one before the others: a reader of a run that continued as new
    must find the next one.
    """
    starts = [part for part in parts if part.after == 0]
    others: dict[str, list[Append]] = {}
    for part in parts:
        if part.after > 0:
            others.setdefault(part.run, []).append(part)
    return [*((part.run, [part]) for part in reversed(starts)), *others.items()]


def append_to_data(part: Append) -> dict[str, Any]:
    """Return a part of a journal as JSON: each row is the list of its values; empty lists are left out."""
    data: dict[str, Any] = {"run": part.run, "after": part.after}
    for name in ROW_LISTS:
        if rows := getattr(part, name):
            data[name] = [list(row) for row in rows]
    for name in ("row", "definition"):
        if (row := getattr(part, name)) is not None:
            data[name] = list(row)
    return data


def append_from_data(data: Mapping[str, Any]) -> Append:
    """Return the part of a journal that `append_to_data` has encoded."""
    lists: dict[str, Any] = {
        name: [kind(*row) for row in data[name]] for name, kind in ROW_LISTS.items() if name in data
    }
    row, definition = data.get("row"), data.get("definition")
    return Append(
        data["run"],
        data["after"],
        lists.pop("rows", ()),
        row=None if row is None else RunRow(*row),
        definition=None if definition is None else Definition(*definition),
        **lists,
    )
