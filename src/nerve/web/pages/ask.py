"""Ask: a message in plain words; the reply is the start form of a workflow, a question or a text."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.lazy_dataclass import dataclass
from nerve.ui.typed_options import is_part_of_input
from nerve.web.pages.workflows import list_queues
from nerve.web.start_forms import LIMIT_LABELS, StartForm, make_start_form

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import WorkflowResponse
    from nerve.web.site import Site, Visit

CONVERSATION_NAME = re.compile(r"[\w.:-]{1,100}")
LISTED_RUNS = 10


def add_pages(site: Site) -> None:
    site.get("/ask", show_ask)
    site.post("/ask", ask)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message of the user, and the reply of the router."""

    text: str
    kind: str
    reply: str = ""
    """Markdown."""
    by: str = ""
    reason: str = ""
    form: StartForm | None = None
    candidates: tuple[str, ...] = ()


async def show_ask(visit: Visit) -> Response:
    return await respond_with_ask(visit, find_conversation(visit.query.get("conversation", "")), None)


def find_conversation(name: str) -> str:
    """Return the id of the conversation; a new one if there is none yet."""
    return name if CONVERSATION_NAME.fullmatch(name) else f"web-{secrets.token_hex(6)}"


async def respond_with_ask(visit: Visit, conversation: str, exchange: Exchange | None) -> Response:
    runs = await visit.client.runs(conversation=conversation, limit=LISTED_RUNS, largest=200)
    workflows = await visit.client.workflows()
    return await visit.page(
        "ask.html",
        conversation=conversation,
        exchange=exchange,
        runs=runs.runs,
        workflows=workflows.workflows,
        limit_labels=LIMIT_LABELS,
        queues=await list_queues(visit),
    )


async def ask(visit: Visit) -> Response:
    """Route a message; nothing starts before the user confirms it."""
    form = await visit.form()
    text, conversation = form.get("text").strip(), find_conversation(form.get("conversation"))
    if not text:
        raise ApiError("bad_request", "The message is empty", "Write what you want to do.")
    exchange = await route_message(visit, text, conversation)
    if not visit.is_htmx:
        return await respond_with_ask(visit, conversation, exchange)
    values: dict[str, Any] = {
        "limit_labels": LIMIT_LABELS,
        "queues": await list_queues(visit),
        "is_new": True,
    }
    return visit.fragment("parts/exchange.html", exchange=exchange, **values)


async def route_message(visit: Visit, text: str, conversation: str) -> Exchange:
    decision = await visit.client.route(text=text, conversation=conversation)
    extra: dict[str, Any] = decision.model_extra or {}
    common: Any = {"text": text, "kind": decision.kind, "by": decision.by, "reason": decision.reason}
    if decision.kind == "conversation":
        return Exchange(**common, reply=str(extra.get("reply") or ""))
    if decision.kind == "question" or decision.workflow is None:
        candidates = tuple(map(str, extra.get("candidates") or ()))
        return Exchange(**common, reply=str(extra.get("question") or ""), candidates=candidates)
    workflow = await visit.client.workflow(workflow=decision.workflow)
    intent = str(extra.get("intent") or text)
    params = {**find_input_param(workflow, intent), **decision.inputs}
    values = {"input": intent, "conversation": conversation}
    return Exchange(**common, form=make_start_form(workflow, params, **values))


def find_input_param(workflow: WorkflowResponse, intent: str) -> dict[str, Any]:
    """Return the input that is the input of the run, if that is a text, with the intent as its value."""
    if (workflow.input_schema or {}).get("type") != "string":
        return {}
    names = [declared.name for declared in workflow.inputs if is_part_of_input(workflow, declared.name)]
    return dict.fromkeys(names, intent)
