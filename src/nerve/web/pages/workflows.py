"""The workflows: a list with their last runs, and for each its definition, its graph and its start form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import JSONResponse

from nerve.ui.run_graph import build_run_graph
from nerve.web.rendering import quote_segment
from nerve.web.start_forms import LIMIT_LABELS, StartForm, make_start_form, read_start_form, start_run

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import QueueResponse, RunResponse, WorkflowPage, WorkflowResponse
    from nerve.web.site import Site, Visit

SHOWN_RUNS = 5
"""Last runs of each workflow in the list."""
LISTED_RUNS = 10
"""Last runs on the page of a workflow."""
MAX_WORKFLOWS = 200
"""Workflows whose last runs are listed."""


def add_pages(site: Site) -> None:
    site.get("/workflows", show_workflows)
    site.post("/workflows/reload", reload_workflows, scope="admin")
    site.get("/workflows/{name}", show_workflow)
    site.get("/workflows/{name}/graph.json", send_graph)
    site.post("/workflows/{name}", start_workflow)


class WorkflowRow(NamedTuple):
    """A workflow in the list, with its last runs."""

    workflow: WorkflowResponse
    runs: list[RunResponse]


async def show_workflows(visit: Visit) -> Response:
    page = await visit.client.workflows(all=True)
    search = visit.query.get("search", "").strip().casefold()
    found = [
        workflow
        for workflow in page.workflows
        if all(word in f"{workflow.id} {workflow.description}".casefold() for word in search.split())
    ]
    return await visit.page(
        "workflows.html",
        rows=await load_rows(visit, found),
        total=len(page.workflows),
        search=visit.query.get("search", ""),
        has_triggers=bool((await visit.client.triggers()).triggers),
        problems=describe_problems(page),
        notice="The definitions were loaded again." if visit.query.get("done") == "reloaded" else "",
    )


async def load_rows(visit: Visit, workflows: list[WorkflowResponse]) -> list[WorkflowRow]:
    rows: list[WorkflowRow] = []
    for workflow in workflows:
        runs = list[Any]()
        if len(rows) < MAX_WORKFLOWS:
            runs = (await visit.client.runs(workflow=workflow.id, limit=SHOWN_RUNS, largest=0)).runs
        rows.append(WorkflowRow(workflow, runs))
    return rows


def describe_problems(page: WorkflowPage) -> list[dict[str, Any]]:
    """Return the problems of files, errors before warnings."""
    return sorted(page.problems, key=lambda problem: problem.get("severity") != "error")


async def reload_workflows(visit: Visit) -> Response:
    await visit.client.reload()
    return visit.redirect("/workflows", {"done": "reloaded"})


async def show_workflow(visit: Visit) -> Response:
    """Show a workflow under its full name."""
    workflow = await visit.client.workflow(workflow=visit.argument("name"))
    if workflow.id != visit.argument("name"):
        return visit.redirect(f"/workflows/{quote_segment(workflow.id)}")
    return await respond_with_workflow(visit, make_start_form(workflow))


async def respond_with_workflow(visit: Visit, form: StartForm, status: int = 200) -> Response:
    workflow = form.workflow
    runs = await visit.client.runs(workflow=workflow.id, limit=LISTED_RUNS, largest=200)
    return await visit.page(
        "workflow.html",
        status,
        workflow=workflow,
        runs=runs.runs,
        more=runs.more,
        form=form,
        limit_labels=LIMIT_LABELS,
        queues=await list_queues(visit),
        has_graph=workflow.spec is not None,
    )


async def list_queues(visit: Visit) -> list[QueueResponse]:
    """Return the queues that a run may be started in."""
    return [queue for queue in (await visit.client.queues()).queues if queue.declared]


async def send_graph(visit: Visit) -> Response:
    """Return the graph of a definition for the element that draws it."""
    workflow = await visit.client.workflow(workflow=visit.argument("name"))
    return JSONResponse(build_run_graph(workflow.spec).to_dict())


async def start_workflow(visit: Visit) -> Response:
    """Start a run with the values of the form; what is wrong with them is shown beside the fields."""
    form = await visit.form()
    workflow = await visit.client.workflow(workflow=visit.argument("name"))
    shown, request, is_valid = read_start_form(workflow, form)
    run = await start_run(visit, shown, request) if is_valid else None
    if run is not None:
        return visit.redirect(f"/runs/{quote_segment(run.run_id)}")
    changes_rows = bool(form.get("add") or form.get("remove"))
    is_stale = form.get("hash") not in ("", workflow.hash)
    return await respond_with_workflow(visit, shown, 200 if changes_rows else 409 if is_stale else 422)
