"""The table of operations: each once, for the server, the client, the command line and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nerve.api import models

Scope = Literal["read", "answer", "run", "admin"]
Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A command or a query: what it takes and gives, who may use it, and where it is over HTTP."""

    name: str
    request_model: type[models.ApiRequest]
    response_model: type[models.ApiResponse]
    scope: Scope
    method: Method
    path: str
    summary: str

    @property
    def is_command(self) -> bool:
        """Whether it changes anything, and does not only read."""
        return self.method == "POST"


OPERATIONS: dict[str, Operation] = {
    each.name: each
    for each in (
        # commands
        Operation("define", models.DefineRequest, models.WorkflowResponse, "admin", "POST",
                  "/api/definitions",
                  "Define a workflow from its text."),
        Operation("start", models.StartRequest, models.RunResponse, "run", "POST", "/api/runs",
                  "Start a run of a workflow, a graph or a node."),
        Operation("answer", models.AnswerRequest, models.AnswerResponse, "answer", "POST", "/api/answers",
                  "Answer an open gate."),
        Operation("signal", models.SignalRequest, models.DoneResponse, "run", "POST", "/api/signals",
                  "Assert a signal; every run that waits for it goes on."),
        Operation("assert_fact", models.FactRequest, models.FactResponse, "run", "POST", "/api/facts",
                  "Assert a fact in the dataspace."),
        Operation("retract", models.FactRequest, models.FactPage, "run", "POST", "/api/facts/retract",
                  "Retract the facts that fit a pattern."),
        Operation("pause", models.PauseRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/pause",
                  "Let nothing new begin in a run."),
        Operation("resume", models.ResumeRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/resume",
                  "Go on with a paused or held run."),
        Operation("steer", models.SteerRequest, models.SteerResponse, "run", "POST", "/api/runs/{run}/steer",
                  "Say something to an agent at work."),
        Operation("stop", models.StopRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/stop",
                  "End a run, with everything it has started."),
        Operation("fork", models.ForkRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/fork",
                  "Start a run that takes over what another has settled."),
        Operation("retry", models.SkipRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/retry",
                  "Go on with a held run, or with a copy of a finished one from its first failure."),
        Operation("skip", models.SkipRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/skip",
                  "Settle the path a run is held at with a given output."),
        Operation("route", models.RouteRequest, models.RouteResponse, "run", "POST", "/api/route",
                  "Say which workflow a text asks for."),
        Operation("reload", models.ReloadRequest, models.ReloadResponse, "admin", "POST", "/api/reload",
                  "Read the definitions of the project again."),
        Operation("collect", models.DeleteRunsRequest, models.DeleteRunsResponse, "admin", "POST",
                  "/api/collect",
                  "Delete runs that ended long ago; a dry run says which."),
        # queries
        Operation("workflows", models.ListWorkflowsRequest, models.WorkflowPage, "read", "GET",
                  "/api/workflows",
                  "The workflows there are."),
        Operation("workflow", models.WorkflowRequest, models.WorkflowResponse, "read", "GET",
                  "/api/workflows/{workflow}", "One workflow, with its source."),
        Operation("definitions", models.EmptyRequest, models.DefinitionPage, "read", "GET",
                  "/api/definitions",
                  "The workflows as runs were started from them."),
        Operation("runs", models.ListRunsRequest, models.RunPage, "read", "GET", "/api/runs",
                  "The runs, newest first."),
        Operation("run", models.RunRequest, models.RunDetailResponse, "read", "GET", "/api/runs/{run}",
                  "One run: its state, its tree, its open gates."),
        Operation("events", models.ListEventsRequest, models.EventPage, "read", "GET", ("/api/runs/{run}"
            "/events"),
                  "The events of a run, from a number on."),
        Operation("gates", models.EmptyRequest, models.GatePage, "read", "GET", "/api/gates",
                  "Every open gate."),
        Operation("facts", models.ListFactsRequest, models.FactPage, "read", "GET", "/api/facts",
                  "The facts that fit a pattern."),
        Operation("usage", models.EmptyRequest, models.UsageResponse, "read", "GET", "/api/usage",
                  "What was spent today, and by which runs."),
        Operation("sessions", models.EmptyRequest, models.SessionPage, "read", "GET", "/api/sessions",
                  "The sessions that have runs in the store."),
        Operation("threads", models.EmptyRequest, models.ThreadPage, "read", "GET", "/api/threads",
                  "The conversations with agents."),
        Operation("health", models.EmptyRequest, models.HealthResponse, "read", "GET", "/api/health",
                  "How the server, its store and its runs are."),
    )
}  # fmt: skip
"""Every operation by its name."""
