"""Rerun of a run: from any step, from its failures, with another input or definition, after a preview."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.core.events import STEP_START_EVENTS
from nerve.lazy_dataclass import dataclass
from nerve.ui.display_values import pretty_json
from nerve.web.rendering import describe_error, quote_segment

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import ForkPreviewResponse, ForkStepResponse, RunDetailResponse
    from nerve.web.site import FormFields, Site, Visit

FAILED_STEPS = "failed"
"""In place of a path: all failed steps run again."""
CURRENT = "current"
MAX_SHOWN_STEPS = 500
MAX_INPUT_CHARS = 200_000
"""Characters of an input that can be edited here."""
FATES = {
    "reused": "reused",
    "reused_if_same": "reused if its input stays the same",
    "continues": "continues",
    "again": "runs again",
    "held": "held for a decision: its outcome is unknown",
}

FATE_COUNTS = {
    "reused": "reused",
    "reused_if_same": "reused if the same",
    "continues": "open",
    "again": "to run again",
    "held": "held",
}


def add_pages(site: Site) -> None:
    site.get("/runs/{run}/rerun", show_rerun)
    site.post("/runs/{run}/rerun/preview", preview_rerun)
    site.post("/runs/{run}/rerun", start_rerun)


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """What to run again, as the address or the form has it."""

    at: str = ""
    """A path, `failed`, or empty for the beginning."""
    definition: str = ""
    text: str | None = None
    """The input as it is edited; None if it is not."""
    is_json: bool = False
    also: tuple[str, ...] = ()
    """The paths of other steps that run again, too."""

    @classmethod
    def of_query(cls, visit: Visit) -> RerunRequest:
        query = visit.query
        at = query.get("from") or query.get("at", "")
        return cls(at, query.get("definition", ""), also=tuple(visit.query_list("also")))

    @classmethod
    def of_form(cls, form: FormFields) -> RerunRequest:
        fields = dict(form.fields)
        if not fields.keys() & {"from", "input"}:
            raise ApiError("bad_request", "The form has no field 'from'", "Send the form of the page.")
        text = fields["input"].replace("\r\n", "\n") if "input" in fields else None
        also = tuple(form.get_all("also"))
        return cls(form.get("from"), form.get("definition"), text, form.get("format") == "json", also)

    @property
    def is_retry(self) -> bool:
        return self.at == FAILED_STEPS

    def changed_input(self, original: Any) -> dict[str, Any]:
        """Return the edited input as an argument of a fork; nothing if it is as it was."""
        if self.text is None or self.is_retry:
            return {}
        try:
            value = json.loads(self.text) if self.is_json else self.text
        except ValueError as error:
            message = f"The input is not valid JSON: {error}"
            raise ApiError("bad_request", message, "Correct it, or send it as text.") from None
        return {} if value == original and type(value) is type(original) else {"input": value}


class RerunForm:
    """The run to run again, the choices of the form, and what they would do."""

    def __init__(self, run: RunDetailResponse, request: RerunRequest, step_input: Any) -> None:
        self.run, self.request, self.step_input = run, request, step_input
        self.input_problem = self.problem = ""
        self.preview: ForkPreviewResponse | None = None
        self.steps: list[ForkStepResponse] = []
        """The steps from which a rerun can start."""
        self.has_failures = self.has_new_definition = False

    @classmethod
    async def read(cls, visit: Visit, request: RerunRequest) -> RerunForm:
        run = await visit.client.run(run=visit.argument("run"))
        at = "" if request.is_retry else request.at
        form = cls(run, request, await read_step_input(visit, run, at) if at else run.input)
        await form._preview(visit)
        return form

    async def _preview(self, visit: Visit) -> None:
        client, run = visit.client, self.run.run_id
        whole = await client.preview_fork(run=run)
        self.steps = [step for step in whole.steps if step.run_id == self.run.run_id]
        try:
            self.has_new_definition = (
                await client.preview_fork(run=run, definition=CURRENT)
            ).is_definition_changed
        except ApiError:
            pass  # the workflow does not exist any more
        try:
            retry = await client.preview_fork(run=run, retry=True)
            self.has_failures = retry.at is not None
            if self.request.is_retry:
                self.preview = retry
                return
            changed: dict[str, Any] = {}
            try:
                changed = self.request.changed_input(self.step_input)
            except ApiError as error:
                self.input_problem = describe_error(error)
            options: dict[str, Any] = {"new_input": bool(changed)}
            if self.request.at:
                options["at"] = self.request.at
            if self.request.definition:
                options["definition"] = self.request.definition
            if self.request.also:
                options["overridden"] = list(self.request.also)
            self.preview = await client.preview_fork(run=run, **options)
        except ApiError as error:
            self.problem = describe_error(error)

    @property
    def input_text(self) -> str:
        if self.request.text is not None:
            return self.request.text
        value = self.step_input
        return value if isinstance(value, str) else "" if value is None else pretty_json(value)

    @property
    def is_json(self) -> bool:
        if self.request.text is not None:
            return self.request.is_json
        return not isinstance(self.step_input, str | None)

    @property
    def can_edit_input(self) -> bool:
        return not self.request.is_retry and len(self.input_text) <= MAX_INPUT_CHARS

    def values(self) -> dict[str, Any]:
        """Return the values of the templates."""
        shown = self.preview.steps[:MAX_SHOWN_STEPS] if self.preview is not None else []
        return {
            "run": self.run,
            "form": self,
            "request": self.request,
            "preview": self.preview,
            "shown": shown,
            "left_out": len(self.preview.steps) - len(shown) if self.preview is not None else 0,
            "fates": FATES,
            "fate_counts": FATE_COUNTS,
            "failed_steps": FAILED_STEPS,
        }


async def read_step_input(visit: Visit, run: RunDetailResponse, path: str) -> Any:
    """Return the input of the last execution of a step; None if it has none."""
    page = await visit.client.events(
        run=run.run_id, path=path, type=[str(type) for type in STEP_START_EVENTS], whole=True
    )
    inputs = [event.data.get("input") for event in page.events if event.path == path]
    return inputs[-1] if inputs else None


async def show_rerun(visit: Visit) -> Response:
    form = await RerunForm.read(visit, RerunRequest.of_query(visit))
    return await visit.page("rerun.html", 400 if form.problem else 200, **form.values(), stale="")


async def preview_rerun(visit: Visit) -> Response:
    """Return the preview for what the form has now; the whole page to a browser without scripts."""
    form = await RerunForm.read(visit, RerunRequest.of_form(await visit.form()))
    if visit.is_htmx:
        return visit.fragment("parts/rerun_preview.html", **form.values())
    return await visit.page("rerun.html", **form.values(), stale="")


async def start_rerun(visit: Visit) -> Response:
    """Start the run, unless the source has changed since the form was shown."""
    fields = await visit.form()
    form = await RerunForm.read(visit, RerunRequest.of_form(fields))
    seen, key = fields.get("seen"), {"key": fields.get("key")} if fields.get("key") else {}
    stale = ""
    if seen.isdecimal() and int(seen) != form.run.last_seq:
        changes = f"The run has changed since this page was shown, and is now {form.run.state}."
        stale = f"{changes} Check the preview, then start."
    if stale or form.problem or form.input_problem:
        return await visit.page("rerun.html", 409 if stale else 400, **form.values(), stale=stale)
    request, run = form.request, form.run.run_id
    try:
        if request.is_retry:
            started = await visit.client.retry(run=run, **key)
        else:
            options: dict[str, Any] = {"at": request.at} if request.at else {}
            options |= {"definition": request.definition} if request.definition else {}
            options |= request.changed_input(form.step_input)
            options |= {"overrides": {path: {} for path in request.also}} if request.also else {}
            started = await visit.client.fork(run=run, **options, **key)
    except ApiError as error:
        form.problem = describe_error(error)
        return await visit.page("rerun.html", error.status, **form.values(), stale="")
    return visit.redirect(f"/runs/{quote_segment(started.run_id)}")
