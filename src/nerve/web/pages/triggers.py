"""The triggers: next times, last runs, and why something was not started, with pause, resume and fire."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.ui.formatting import format_trigger_notes
from nerve.web.live import LivePage, poll_for_changes
from nerve.web.rendering import make_partial

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.web.site import Site, Visit

ACTIONS = ("pause", "resume", "fire")
NOTICES = {"paused": "The trigger is paused.", "resumed": "The trigger is resumed."}


def add_pages(site: Site) -> None:
    site.get("/triggers", show_triggers)
    site.live("/triggers/stream", follow_triggers)
    site.post("/triggers/change", change_trigger)


async def list_values(visit: Visit) -> dict[str, Any]:
    """Return what the list shows."""
    page = await visit.client.triggers()
    return {"triggers": page.triggers, "problems": page.problems, "notes": format_trigger_notes}


async def show_triggers(visit: Visit) -> Response:
    done = visit.query.get("done", "")
    return await visit.page("triggers.html", **await list_values(visit), notice=NOTICES.get(done, ""))


async def follow_triggers(visit: Visit) -> LivePage:
    """Send the list when it has changed; the cursor is a digest of what the page shows."""

    async def render(keys: Collection[str] | None) -> str:
        return make_partial("#triggers", visit.render("parts/triggers.html", **await list_values(visit)))

    return LivePage(lambda event: None, render, open_events=poll_for_changes(visit.client.triggers))


async def change_trigger(visit: Visit) -> Response:
    """Pause, resume or fire the trigger of a form."""
    form = await visit.form()
    action, name, key = form.get("action"), form.get("trigger"), form.get("key")
    if action not in ACTIONS or not name:
        raise ApiError("bad_request", "The form names no action of a trigger", "Reload the page.")
    options = {"trigger": name, **({"key": key} if key else {})}
    if action == "fire":
        fired = await visit.client.fire_trigger(**options)
        if fired.run is not None and not visit.is_htmx:
            return visit.redirect(f"/runs/{fired.run.run_id}")
        text = "A run has started." if fired.run is not None else f"Nothing was started: {fired.reason}."
        return visit.notice(text) if visit.is_htmx else visit.redirect("/triggers")
    is_paused = action == "pause"
    await (visit.client.pause_trigger(**options) if is_paused else visit.client.resume_trigger(**options))
    done = "paused" if is_paused else "resumed"
    return visit.notice(NOTICES[done]) if visit.is_htmx else visit.redirect("/triggers", {"done": done})
