"""The facts: the dataspace with a pattern as its filter, live, with forms to assert and retract facts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.core.json_codec import decode_json, encode_json
from nerve.dataspace import Record, exactly
from nerve.dataspace.builtin_records import DEFINITION_LABEL, INSTANCE_LABEL, LOG_LABEL, STATE_LABEL
from nerve.errors import NerveError
from nerve.ui.formatting import count_noun
from nerve.web.live import LivePage, poll_for_changes
from nerve.web.rendering import describe_error, make_partial

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import FactPage
    from nerve.web.site import Site, Visit

FACTS_PER_PAGE = 100
MAX_FACT_CHARS = 2000
"""Characters of a fact that a row shows."""
READ_ONLY_LABELS = (STATE_LABEL, LOG_LABEL)
"""Facts that come from the journals of runs."""
WARNINGS = {
    INSTANCE_LABEL: "Retract this fact? Its run is stopped.",
    DEFINITION_LABEL: "Retract this fact? Its workflow is removed.",
}
NOTICES = {"asserted": "The fact is asserted.", "retracted": "The fact is retracted.", "none": "It was gone."}


def add_pages(site: Site) -> None:
    site.get("/facts", show_facts)
    site.live("/facts/stream", follow_facts)
    site.post("/facts", assert_fact)
    site.post("/facts/retract", retract_fact)


async def find_facts(visit: Visit) -> FactPage:
    pattern, before = visit.query.get("pattern", "").strip(), visit.query.get("before", "")
    options: dict[str, Any] = {"before": before} if before else {}
    options |= {"pattern": pattern} if pattern else {"asserted": not visit.query.get("all")}
    return await visit.client.facts(limit=FACTS_PER_PAGE, **options)


def list_values(visit: Visit, page: FactPage) -> dict[str, Any]:
    """Return what the rows and the links to other pages show."""
    pattern = visit.query.get("pattern", "").strip()
    return {
        "facts": page.facts,
        "more": page.more,
        "pattern": pattern,
        "all": visit.query.get("all", ""),
        "before": visit.query.get("before", ""),
        "max_chars": MAX_FACT_CHARS,
        "read_only": READ_ONLY_LABELS,
        "warnings": WARNINGS,
        "to_json": encode_json,
    }


async def show_facts(visit: Visit, fact: str = "", error: ApiError | None = None) -> Response:
    """Show the page; with an error of the form for a new fact, show that beside its field."""
    from nerve.api.models import FactPage

    page, problem = FactPage(), ""
    try:
        page = await find_facts(visit)
    except ApiError as refused:
        problem = describe_error(refused)
    return await visit.page(
        "facts.html",
        error.status if error is not None else 400 if problem else 200,
        **list_values(visit, page),
        problem=problem,
        fact=fact,
        fact_problem=describe_error(error) if error is not None else "",
        notice=NOTICES.get(visit.query.get("done", ""), ""),
    )


async def follow_facts(visit: Visit) -> LivePage:
    """Send the list when it has changed; the cursor is a digest of what the page shows."""

    async def render(keys: Collection[str] | None) -> str:
        values = list_values(visit, await find_facts(visit))
        return make_partial("#facts", visit.render("parts/facts.html", **values))

    return LivePage(lambda event: None, render, open_events=poll_for_changes(lambda: find_facts(visit)))


# -- actions -------------------------------------------------------------------------------------------


async def assert_fact(visit: Visit) -> Response:
    form = await visit.form()
    text, key = form.get("fact").strip(), form.get("key")
    try:
        if not text:
            raise ApiError("bad_request", "The fact is empty", "Write a record: (deploy :target web).")
        await visit.client.assert_fact(fact=text, **({"key": key} if key else {}))
    except ApiError as error:
        return await show_facts(visit, text, error)
    return visit.redirect("/facts", {"pattern": form.get("pattern"), "done": "asserted"})


async def retract_fact(visit: Visit) -> Response:
    """Retract exactly one fact, given as JSON."""
    form = await visit.form()
    try:
        pattern = exactly(Record.of(decode_json(form.get("record")))).to_json()
    except (NerveError, ValueError, TypeError):
        raise ApiError("bad_request", "The form has no valid fact", "Reload the page.") from None
    key = form.get("key")
    retracted = await visit.client.retract(fact=pattern, **({"key": key} if key else {}))
    if visit.is_htmx:
        return visit.notice(f"{count_noun(len(retracted.facts), 'fact')} retracted.")
    done = "retracted" if retracted.facts else "none"
    return visit.redirect("/facts", {"pattern": form.get("pattern"), "done": done})
