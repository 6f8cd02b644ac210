"""Actions of a run: pause, resume, stop, retry, skip, send and steer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, Response

from nerve.api.errors import ApiError
from nerve.ui.typed_options import parse_json_or_text
from nerve.web.rendering import make_partial
from nerve.web.run_values import find_actions, header_values, make_seen_token

if TYPE_CHECKING:
    from nerve.api.models import RunDetailResponse
    from nerve.web.pages.run import RunPages
    from nerve.web.site import FormFields, Site, Visit

BUDGET_NAMES = ("cost", "tokens", "turns", "agents")
DONE_TEXTS = {
    "pause": "The run pauses after its current steps.",
    "resume": "Resumed.",
    "stop": "Stopped.",
    "retry": "The failed steps run again.",
    "skip": "The step is skipped.",
    "send": "Sent.",
    "steer": "The agent gets the message.",
}


def add_actions(site: Site, pages: RunPages) -> None:
    """Add the route of every action."""
    for name in DONE_TEXTS:
        site.post(f"/runs/{{run}}/{name}", make_handler(name, pages))


def make_handler(action: str, pages: RunPages) -> Callable[[Visit], Awaitable[Response]]:
    async def handle(visit: Visit) -> Response:
        form = await visit.form()
        if not form.get("key"):
            raise ApiError("bad_request", "The form has no key", "Load the page again, and send its form.")
        run = await visit.client.run(run=visit.argument("run"), steps=False)
        picture = await pages.load_picture(visit.client, run.run_id)
        await picture.catch_up(visit.client)
        check_form(action, form, run, find_actions(run, picture.profile))
        changed_id = await perform(visit, action, run, form)
        if changed_id != run.run_id:  # a retry of a run that has ended is another run
            address = f"/runs/{changed_id}"
            if visit.is_htmx:
                return Response(headers={"HX-Redirect": visit.site.url(address)})
            return visit.redirect(address)
        if not visit.is_htmx:
            return visit.redirect(f"/runs/{run.run_id}")
        run = await visit.client.run(run=run.run_id, steps=False)
        await picture.catch_up(visit.client)
        notice = visit.render("parts/notice.html", text=DONE_TEXTS[action], problems=[])
        forms = visit.render("parts/run_actions.html", **header_values(run, picture))
        steer = visit.render("parts/steer_key.html") if action == "steer" else ""
        parts = make_partial("#run-actions", forms, "outerHTML")
        return HTMLResponse(
            notice + parts + (make_partial("#steer-key", steer, "outerHTML") if steer else "")
        )

    return handle


def check_form(action: str, form: FormFields, run: RunDetailResponse, possible: list[str]) -> None:
    """Raise ApiError if the run has changed since the form was shown, in a way that matters for it."""
    if action not in possible:
        raise ApiError(
            "conflict",
            f"Nothing was changed: the run is {run.state} now, which does not permit '{action}'",
            "The page shows its current state.",
        )
    seen = form.get("seen")
    if action in ("resume", "retry", "skip") and seen and seen != make_seen_token(run):
        why = (run.held or {}).get("message") or run.state
        raise ApiError(
            "conflict",
            f"Nothing was changed: the state of the run has changed since this form was shown ({why})",
            "Look at it again, then decide.",
        )


async def perform(visit: Visit, action: str, run: RunDetailResponse, form: FormFields) -> str:
    """Do what a form asks for; return the run to show after it."""
    client, given = visit.client, {"run": run.run_id, "key": form.get("key")[:256]}
    match action:
        case "pause":
            await client.pause(**given)
        case "resume":
            is_accepted = form.get("with_changes") == "yes"
            limits = read_limits(form, run)
            await client.resume(**given, limits=limits, with_changes=is_accepted)
        case "stop":
            await client.stop(**given, reason=form.get("reason"))
        case "retry":
            return (await client.retry(**given, path=form.get("path"))).run_id
        case "skip":
            await client.skip(**given, path=form.get("path"), output=parse_json_or_text(form.get("output")))
        case "send":
            channel = form.get("channel").strip()
            if not channel:
                raise ApiError("bad_request", "The message has no channel", "Name the channel first.")
            await client.send(**given, channel=channel, value=parse_json_or_text(form.get("value")))
        case "steer":
            if not form.get("text").strip():
                raise ApiError("bad_request", "The message is empty", "Write what the agent should do.")
            agent_run, _, path = form.get("agent").partition(" ")
            target = {"run": agent_run, "path": path} if path else {}
            await client.steer(**{**given, **target}, text=form.get("text"))
    return run.run_id


def read_limits(form: FormFields, run: RunDetailResponse) -> dict[str, Any]:
    """Return the limits that a form raises; those of a step under its path."""
    raised: dict[str, float] = {}
    for name in BUDGET_NAMES:
        if not (text := form.get(f"limit-{name}").strip().removeprefix("$")):
            continue
        try:
            raised[name] = float(text)
        except ValueError:
            raise ApiError(
                "bad_request", f"The limit of {name} is '{text}'", "Use a number such as 2.5."
            ) from None
    path = form.get("limits-of")
    return {path: raised} if path and raised else dict[str, Any](raised)
