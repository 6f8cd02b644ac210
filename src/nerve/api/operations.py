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
    asks: type[models.Asked]
    tells: type[models.Told]
    scope: Scope
    method: Method
    path: str
    summary: str

    @property
    def changes(self) -> bool:
        """Whether it changes anything, and does not only read."""
        return self.method == "POST"


OPERATIONS: dict[str, Operation] = {
    each.name: each
    for each in (
        # commands
        Operation("define", models.Define, models.WorkflowTold, "admin", "POST", "/api/definitions",
                  "Define a workflow from its text."),
        Operation("start", models.Start, models.RunTold, "run", "POST", "/api/runs",
                  "Start a run of a workflow, a graph or a node."),
        Operation("answer", models.Answer, models.Answered, "answer", "POST", "/api/answers",
                  "Answer an open gate."),
        Operation("signal", models.SignalSent, models.Done, "run", "POST", "/api/signals",
                  "Assert a signal; every run that waits for it goes on."),
        Operation("assert_fact", models.Facts, models.FactTold, "run", "POST", "/api/facts",
                  "Assert a fact in the dataspace."),
        Operation("retract", models.Facts, models.FactsTold, "run", "POST", "/api/facts/retract",
                  "Retract the facts that fit a pattern."),
        Operation("pause", models.Pause, models.RunTold, "run", "POST", "/api/runs/{run}/pause",
                  "Let nothing new begin in a run."),
        Operation("resume", models.Resume, models.RunTold, "run", "POST", "/api/runs/{run}/resume",
                  "Go on with a paused or held run."),
        Operation("steer", models.Steer, models.Steered, "run", "POST", "/api/runs/{run}/steer",
                  "Say something to an agent at work."),
        Operation("stop", models.Stop, models.RunTold, "run", "POST", "/api/runs/{run}/stop",
                  "End a run, with everything it has started."),
        Operation("fork", models.Fork, models.RunTold, "run", "POST", "/api/runs/{run}/fork",
                  "Start a run that takes over what another has settled."),
        Operation("retry", models.Skip, models.RunTold, "run", "POST", "/api/runs/{run}/retry",
                  "Go on with a held run, or with a copy of a finished one from its first failure."),
        Operation("skip", models.Skip, models.RunTold, "run", "POST", "/api/runs/{run}/skip",
                  "Settle the path a run is held at with a given output."),
        Operation("route", models.Route, models.RouteTold, "run", "POST", "/api/route",
                  "Say which workflow a text asks for."),
        Operation("reload", models.Reload, models.Reloaded, "admin", "POST", "/api/reload",
                  "Read the definitions of the project again."),
        Operation("collect", models.Collect, models.Collected, "admin", "POST", "/api/collect",
                  "Delete runs that ended long ago; a dry run says which."),
        # queries
        Operation("workflows", models.WorkflowsAsked, models.Workflows, "read", "GET", "/api/workflows",
                  "The workflows there are."),
        Operation("workflow", models.OneWorkflow, models.WorkflowTold, "read", "GET",
                  "/api/workflows/{workflow}", "One workflow, with its source."),
        Operation("definitions", models.Nothing, models.Definitions, "read", "GET", "/api/definitions",
                  "The workflows as runs were started from them."),
        Operation("runs", models.RunsAsked, models.Runs, "read", "GET", "/api/runs",
                  "The runs, newest first."),
        Operation("run", models.OneRun, models.RunDetail, "read", "GET", "/api/runs/{run}",
                  "One run: its state, its tree, its open gates."),
        Operation("events", models.EventsAsked, models.Events, "read", "GET", "/api/runs/{run}/events",
                  "The events of a run, from a number on."),
        Operation("gates", models.Nothing, models.Gates, "read", "GET", "/api/gates",
                  "Every open gate."),
        Operation("facts", models.Pattern, models.FactsTold, "read", "GET", "/api/facts",
                  "The facts that fit a pattern."),
        Operation("usage", models.Nothing, models.UsageTold, "read", "GET", "/api/usage",
                  "What was spent today, and by which runs."),
        Operation("sessions", models.Nothing, models.Sessions, "read", "GET", "/api/sessions",
                  "The sessions that have runs in the store."),
        Operation("threads", models.Nothing, models.Threads, "read", "GET", "/api/threads",
                  "The conversations with agents."),
        Operation("health", models.Nothing, models.Health, "read", "GET", "/api/health",
                  "How the server, its store and its runs are."),
    )
}  # fmt: skip
"""Every operation by its name."""
