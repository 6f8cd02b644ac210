"""The inbox: the gates that wait for an answer, each with its form, and one answer for several of them."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api.errors import ApiError
from nerve.core.events import GATE_EVENTS, RUN_END_EVENTS
from nerve.core.gates import ALLOW, DENY, EDITABLE
from nerve.lazy_dataclass import dataclass
from nerve.text import with_full_stop
from nerve.ui.formatting import count_noun, format_value
from nerve.ui.gate_names import gate_display_name, split_gate_question
from nerve.ui.sanitize import markdown_first_line, sanitize_line
from nerve.web.gate_cards import (
    FORM_NAME,
    URGENT_S,
    ClosedGate,
    GateView,
    find_closed_gate,
    find_gate,
    list_changed_parts,
    make_card,
    parse_edited_input,
)
from nerve.web.json_form import change_rows, parse_form
from nerve.web.live import LivePage
from nerve.web.rendering import make_partial, quote_segment

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import EventResponse, GateResponse
    from nerve.web.site import FormFields, Site, Visit

MAX_READ_GATES = 1000
MAX_LISTED_GATES = 200
MAX_SELECTED_GATES = 200
MAX_BULK_CHOICES = 8
"""Different answers that are offered for several gates."""
INBOX_EVENTS = frozenset({*GATE_EVENTS, *RUN_END_EVENTS})


def add_pages(site: Site) -> None:
    site.get("/inbox", show_inbox)
    site.get("/inbox/badge", show_badge)
    site.live("/inbox/stream", follow_inbox)
    site.post("/inbox/answers", answer_selected_gates, scope="answer")
    site.get("/inbox/{run}/{gate}", show_gate)
    site.post("/inbox/{run}/{gate}", answer_gate, scope="answer")


async def show_badge(visit: Visit) -> Response:
    """Return the number of open gates, which a page in the background asks for."""
    return visit.fragment("parts/inbox_badge.html", inbox_count=await visit.count_open_gates())


# -- the list ------------------------------------------------------------------------------------------


class GateRow(NamedTuple):
    """A gate in the list."""

    gate: GateResponse
    title: str
    name: str
    deadline: datetime | None
    is_urgent: bool
    answers: str
    """The choices as JSON, by which a page finds the answers that all selected gates accept."""


@dataclass(frozen=True, slots=True)
class GateList:
    """The open gates that match a search, the most urgent first."""

    rows: list[GateRow]
    found: int
    is_cut: bool
    """Whether there are more open gates than were read."""
    choices: list[str]
    """The answers that the gates of the list offer."""
    search: str
    is_mine: bool = False
    """Whether only gates are listed that wait for the person who has signed in."""


async def list_gates(visit: Visit) -> GateList:
    """Return the gates: those with a deadline first, the next one first, then the others, newest first."""
    is_mine = visit.caller.person is not None and visit.query.get("mine") == "1"
    page = await visit.client.gates(limit=MAX_READ_GATES, **({"mine": True} if is_mine else {}))
    search = visit.query.get("search", "").strip()
    gates = [gate for gate in page.gates if matches_search(gate, search)]
    gates.sort(key=lambda gate: gate.created_at or datetime.now(UTC), reverse=True)
    gates.sort(key=lambda gate: gate.deadline if gate.deadline is not None else float("inf"))
    rows = [make_row(gate) for gate in gates[:MAX_LISTED_GATES]]
    offered = dict.fromkeys(answer for row in rows for answer in row.gate.choices or row.gate.options or ())
    return GateList(rows, len(gates), page.more, list(offered)[:MAX_BULK_CHOICES], search, is_mine)


def matches_search(gate: GateResponse, search: str) -> bool:
    words = f"{gate.prompt} {gate.workflow} {gate.label} {gate.node_id} {gate.run_id}".casefold()
    return all(word in words for word in search.casefold().split())


def make_row(gate: GateResponse) -> GateRow:
    deadline = datetime.fromtimestamp(gate.deadline, UTC) if gate.deadline is not None else None
    is_urgent = deadline is not None and (deadline - datetime.now(UTC)).total_seconds() < URGENT_S
    title = markdown_first_line(split_gate_question(gate)[0]) or gate_display_name(gate)
    answers = [] if gate.form is not None else gate.choices or gate.options or []
    return GateRow(gate, title, gate_display_name(gate), deadline, is_urgent, json.dumps(answers))


# -- pages ---------------------------------------------------------------------------------------------


class Stale(NamedTuple):
    """Why a submitted form was not sent, and what the user had entered."""

    changes: list[str]
    """The parts of the gate that have changed; none if it is not open any more."""
    entered: str


async def show_inbox(visit: Visit) -> Response:
    """Show the list, and beside it the first gate."""
    found = await list_gates(visit)
    first = found.rows[0].gate if found.rows else None
    card = make_card(first) if first is not None else None
    return await respond_with_inbox(visit, found, card, is_list=True)


async def show_gate(visit: Visit) -> Response:
    """Show one gate; for an open page, only its card."""
    run, gate_id = visit.argument("run"), visit.argument("gate")
    gate = await find_gate(visit, run, gate_id)
    card = make_card(gate) if gate is not None else await find_closed_gate(visit, run, gate_id)
    return await respond_with_card(visit, card)


async def respond_with_card(
    visit: Visit, card: GateView | ClosedGate, stale: Stale | None = None, status: int = 200
) -> Response:
    """Return the page of a gate, or only its card for an open page."""
    values: dict[str, Any] = {"run": visit.argument("run"), "gate_id": visit.argument("gate"), "stale": stale}
    if visit.is_htmx:
        if isinstance(card, GateView):
            card.is_embedded = True
        return visit.fragment("parts/gate_pane.html", status, card=card, next_gate=None, **values)
    return await respond_with_inbox(visit, await list_gates(visit), card, status, **values)


async def respond_with_inbox(
    visit: Visit, found: GateList, card: GateView | ClosedGate | None, status: int = 200, **values: Any
) -> Response:
    shown: dict[str, Any] = {"is_list": False, "stale": None, "run": "", "gate_id": ""} | values
    if isinstance(card, GateView):
        shown |= {"run": card.gate.run_id, "gate_id": card.gate.gate_id}
    mine = "1" if found.is_mine else ""
    stream = {"search": found.search, "mine": mine, "run": shown["run"], "gate": shown["gate_id"]}
    if isinstance(card, GateView):
        stream["hash"] = card.gate.hash
    return await visit.page(
        "inbox.html",
        status,
        found=found,
        card=card,
        next_gate=next((row for row in found.rows if row.gate.gate_id != shown["gate_id"]), None),
        stream=visit.site.url("/inbox/stream", stream),
        **shown,
    )


# -- live ----------------------------------------------------------------------------------------------


async def follow_inbox(visit: Visit) -> LivePage:
    """Send the list when it changes; the open card only if its gate is not open any more or has changed.

    What the user has entered stays, because the card of an open gate is not sent again.
    """
    run, gate_id = visit.query.get("run", ""), visit.query.get("gate", "")
    hash = visit.query.get("hash", "")
    has_form = bool(hash)

    def select(event: EventResponse) -> str | None:
        return event.run_id if event.event_type in INBOX_EVENTS else None

    async def render(keys: Collection[str] | None) -> str:
        nonlocal has_form
        html, has_form = await render_changes(has_form)
        return html

    async def render_page() -> str:
        return (await render_changes(bool(hash)))[0]

    async def render_changes(has_form: bool) -> tuple[str, bool]:
        """Return the fragments for a page with or without a form, and whether it then has one."""
        found = await list_gates(visit)
        html = visit.render("parts/gate_rows.html", found=found, gate_id=gate_id)
        parts = [make_partial("#gate-rows", html, "innerMorph")]
        if not has_form:
            first = found.rows[0] if found.rows else None
            html = visit.render("parts/next_gate.html", next_gate=first)
            parts.append(make_partial("#next-gate", html))
            return "".join(parts), False
        gate = await find_gate(visit, run, gate_id)
        if gate is None:
            card: Any = await find_closed_gate(visit, run, gate_id)
            values = {"run": run, "gate_id": gate_id, "stale": None, "card": card}
            following = next((row for row in found.rows if row.gate.gate_id != gate_id), None)
            html = visit.render("parts/gate_pane.html", next_gate=following, **values)
            parts.append(make_partial("#gate-pane", html))
        elif gate.hash != hash:
            html = visit.render("parts/gate_changed.html", run=run, gate_id=gate_id)
            parts.append(make_partial("#gate-changed", html))
        return "".join(parts), gate is not None

    return LivePage(select, render, render_page)


# -- answers -------------------------------------------------------------------------------------------


async def answer_gate(visit: Visit) -> Response:
    """Answer a gate with its form; a form that shows something else than the gate asks now sends nothing."""
    form = await visit.form()
    run, gate_id = visit.argument("run"), visit.argument("gate")
    gate = await find_gate(visit, run, gate_id)
    if gate is None:
        return await respond_after_end(visit, form)
    texts = [(name, text) for name, text in form.fields if name.startswith(FORM_NAME)]
    entered: Any = {name: form.get(name) for name in ("text", "choice", "reason", "key")}
    if form.get("add") or form.get("remove"):
        texts = change_rows(texts, form.get("add"), form.get("remove"))
        return await respond_with_card(visit, make_card(gate, texts, **entered))
    if gate.hash != form.get("hash"):
        return await respond_to_changed_gate(visit, gate, form)
    answer: Any = form.get("choice") or form.get("text").replace("\r\n", "\n")
    errors: dict[str, str] = {}
    if gate.form is not None:
        answer, errors = parse_form(gate.form, FORM_NAME, texts)
    elif gate.action and gate.action.get(EDITABLE) and texts and answer != DENY:
        value, errors = parse_edited_input(gate.action, texts)
        is_changed = value != gate.action["input"]
        if form.get("edited"):
            answer = {ALLOW: value} if is_changed else ALLOW
        elif is_changed:
            errors = {}
            entered["error"] = "You have edited the input: allow it with its own button, or undo the changes."
    elif not answer.strip():
        entered["error"] = "Choose or write an answer."
    if errors or "error" in entered:
        return await respond_with_card(visit, make_card(gate, texts, errors, **entered), status=422)
    try:
        await send_answer(visit, run, gate_id, answer, form.get("hash"), form.get("reason"), form.get("key"))
    except ApiError as error:
        if error.code not in ("conflict", "gone", "refused"):
            raise
        gate = await find_gate(visit, run, gate_id)
        if gate is None:
            return await respond_after_end(visit, form)
        if gate.hash != form.get("hash"):
            return await respond_to_changed_gate(visit, gate, form)
        entered["error"] = with_full_stop(error.message)
        return await respond_with_card(visit, make_card(gate, texts, **entered), status=422)
    if visit.is_htmx:
        gate = await find_gate(visit, run, gate_id)
        voted = gate is not None and gate.policy is not None
        card = make_card(gate) if gate is not None and voted else await find_closed_gate(visit, run, gate_id)
        return await respond_with_card(visit, card)
    return visit.redirect(gate_path(run, gate_id))


def gate_path(run: str, gate_id: str) -> str:
    return f"/inbox/{quote_segment(run)}/{quote_segment(gate_id)}"


async def send_answer(
    visit: Visit, run: str, gate_id: str, answer: Any, hash: str, reason: str, key: str
) -> None:
    """Send an answer that is bound to what the user was shown; a repeated one with the key has no effect."""
    keys = {"key": f"{key}-{hash}"[:256]} if key else {}
    await visit.client.answer(
        run=run, gate=gate_id, answer=answer, reason=reason.strip(), hash=hash or "none", **keys
    )


async def respond_after_end(visit: Visit, form: FormFields) -> Response:
    """Report how a gate ended to a form that was submitted later; a repeated submission is a success."""
    run, gate_id = visit.argument("run"), visit.argument("gate")
    closed = await find_closed_gate(visit, run, gate_id)
    if closed.key is not None and closed.key == f"{form.get('key')}-{form.get('hash')}"[:256]:
        return visit.redirect(gate_path(run, gate_id)) if not visit.is_htmx else await show_gate(visit)
    return await respond_with_card(visit, closed, Stale([], describe_entered(form)), 409)


async def respond_to_changed_gate(visit: Visit, gate: GateResponse, form: FormFields) -> Response:
    changes = list_changed_parts(form.get("shown"), gate)
    return await respond_with_card(visit, make_card(gate), Stale(changes, describe_entered(form)), 409)


def describe_entered(form: FormFields) -> str:
    """Return what the user had entered, so that it is not lost."""
    answer = form.get("choice") or form.get("text")
    pairs = [
        f"{name.removeprefix(f'{FORM_NAME}/')}: {text}"
        for name, text in form.fields
        if name.startswith(FORM_NAME) and text.strip() and "#" not in name
    ]
    reason = f"Comment: {form.get('reason').strip()}" if form.get("reason").strip() else ""
    return "\n".join(part for part in (answer.strip(), *pairs, reason) if part)


class BulkResult(NamedTuple):
    """The result of one of several answers."""

    run: str
    gate_id: str
    title: str
    problem: str


async def answer_selected_gates(visit: Visit) -> Response:
    """Give all selected gates the same answer; each is answered or not for itself."""
    form = await visit.form()
    choice, selected = form.get("choice"), form.get_all("gate")
    if not selected or len(selected) > MAX_SELECTED_GATES or not choice:
        raise ApiError("bad_request", "No gate or no answer is selected", "Select gates, then an answer.")
    results = []
    for value in selected:
        run, gate_id, hash, title = [*value.split(" ", 3), "", "", ""][:4]
        problem = ""
        try:
            await send_answer(visit, run, gate_id, choice, hash, form.get("reason"), form.get("key"))
        except ApiError as error:
            if error.code in ("forbidden", "unauthorized"):
                raise
            problem = with_full_stop(error.message)
        results.append(BulkResult(run, gate_id, title or gate_id, problem))
    failed = sum(bool(result.problem) for result in results)
    done = count_noun(len(results) - failed, "gate")
    text = f"{done} answered with “{sanitize_line(format_value(choice))}”" + (
        f", {failed} not." if failed else "."
    )
    values: dict[str, Any] = {"text": text, "results": results, "failed": failed}
    if visit.is_htmx:
        return visit.fragment("parts/bulk_results.html", **values)
    return await visit.page("inbox_results.html", **values)
