"""People, and the record of their decisions."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from nerve.api.models.base import ApiRequest, ApiResponse, CommandRequest, Name, PageResponse, Text


class PersonFields(CommandRequest):
    person: Name
    """The name of the person: lower-case letters, digits, `-` and `_`."""
    roles: list[Name] | None = None
    scope: Literal["read", "answer", "run", "member", "admin"] | None = None
    """What the token of the person permits; `member` is `answer` and `run` together."""
    contacts: dict[str, Text | None] | None = None
    """Addresses by kind, such as `email` or `slack`, to add or change; null removes one. `unix` is the
    name of the user of this machine who is this person."""
    token_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The SHA-256 of a new token in hex. A token begins with `nvp_`; the caller makes it and
    never sends it."""


class AddPersonRequest(PersonFields):
    pass


class ChangePersonRequest(PersonFields):
    disabled: bool | None = None
    """Whether the person cannot sign in and answer."""


class RemovePersonRequest(CommandRequest):
    person: Name


class PersonResponse(ApiResponse):
    name: str
    roles: list[str] = []
    scope: str = "answer"
    contacts: dict[str, str] = {}
    has_token: bool = False
    disabled: bool = False


class PeoplePage(PageResponse):
    people: list[PersonResponse]


class AuditRequest(ApiRequest):
    """Only the decisions that match all of these."""

    since: Name | None = None
    """The earliest time: a date or time, or how long ago it is, such as `2d`."""
    until: Name | None = None
    """The latest time."""
    run: Name | None = None
    """Only decisions about this run."""
    person: Name | None = None
    """Only decisions of this person, or about them."""
    after: Annotated[str, Field(max_length=1000)] | None = None
    """The field `next` of the page before."""


class AuditEntry(ApiResponse):
    """One decision: what, by whom, by which way, from where, and about what."""

    at: datetime
    action: str
    """Such as `start`, `answer`, `vote`, `stop`, `raise` or `change person`."""
    by: str | None = None
    """The identity: `person:ann`, `unix:ada`, `token:run`; None if the engine acted, or it is not known."""
    person: str | None = None
    """The person who acted, if they are known."""
    via: str | None = None
    """The way: `cli`, `page`, `oidc`, `http`, `ws` and others."""
    scope: str | None = None
    address: str | None = None
    """The address of the client, if it was connected over a network."""
    pid: int | None = None
    """The process, if it was on this machine."""
    run: str | None = None
    workflow: str | None = None
    seq: int | None = None
    """The number of the event in the journal of the run, or of the change of people."""
    gate: str | None = None
    path: str | None = None
    answer: Any = None
    hash: str | None = None
    """Stands for everything that the gate showed when it was answered."""
    reason: str | None = None
    details: dict[str, Any] = {}


class AuditPage(ApiResponse):
    """Decisions about the newest runs, each run verified; the first page has the changes of people."""

    entries: list[AuditEntry] = []
    runs: int = 0
    """The number of runs whose hash chain was verified."""
    events: int = 0
    """The number of their events."""
    changes: int = 0
    """The number of changes of people, and of the session, that were verified."""
    last_change: str | None = None
    """The hash of the last change, which stands for all of them."""
    next: str | None = None
    """What to pass as `after` to get the decisions about older runs; None if there are none."""
