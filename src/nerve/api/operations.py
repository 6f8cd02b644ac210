"""The table of operations, shared by the server, the client, the command line and the documentation."""

from __future__ import annotations

from typing import Literal

from nerve.api import models
from nerve.api.callers import Scope
from nerve.lazy_dataclass import dataclass

Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A command or a query: its models, its scope, and its HTTP route."""

    name: str
    request_model: type[models.ApiRequest]
    response_model: type[models.ApiResponse]
    scope: Scope
    method: Method
    path: str
    summary: str

    @property
    def is_command(self) -> bool:
        """Whether it changes something."""
        return self.method == "POST"

    @property
    def list_fields(self) -> list[str]:
        """The fields with several values, which a query repeats."""
        fields = self.request_model.model_fields.items()
        return [name for name, field in fields if isinstance(field.default, list)]


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        # commands
        Operation("define", models.DefineRequest, models.WorkflowResponse, "admin", "POST",
                  "/api/definitions",
                  "Define a workflow from its source."),
        Operation("start", models.StartRequest, models.RunResponse, "run", "POST", "/api/runs",
                  "Start a run of a workflow, a graph or a node."),
        Operation("answer", models.AnswerRequest, models.AnswerResponse, "answer", "POST", "/api/answers",
                  "Answer an open gate."),
        Operation("signal", models.SignalRequest, models.DoneResponse, "run", "POST", "/api/signals",
                  "Assert a signal; every run that waits for it continues."),
        Operation("send", models.SendRequest, models.MessageResponse, "run", "POST",
                  "/api/runs/{run}/messages",
                  "Put a message into the mailbox of a run."),
        Operation("update", models.UpdateRequest, models.UpdateResponse, "run", "POST",
                  "/api/runs/{run}/updates",
                  "Let a run handle an update, and get its reply."),
        Operation("assert_fact", models.FactRequest, models.FactResponse, "run", "POST", "/api/facts",
                  "Assert a fact in the dataspace."),
        Operation("retract", models.FactRequest, models.FactPage, "run", "POST", "/api/facts/retract",
                  "Retract the facts that match a pattern."),
        Operation("pause", models.PauseRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/pause",
                  "Pause a run: no new step starts."),
        Operation("resume", models.ResumeRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/resume",
                  "Resume a paused or held run."),
        Operation("steer", models.SteerRequest, models.SteerResponse, "run", "POST", "/api/runs/{run}/steer",
                  "Send a message to a running agent."),
        Operation("stop", models.StopRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/stop",
                  "Stop a run and everything it has started."),
        Operation("fork", models.ForkRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/fork",
                  "Start a run that reuses the completed steps of another."),
        Operation("retry", models.SkipRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/retry",
                  "Retry a held run, or a copy of a finished one from its first failure."),
        Operation("skip", models.SkipRequest, models.RunResponse, "run", "POST", "/api/runs/{run}/skip",
                  "Complete the step a run is held at with the given output."),
        Operation("pause_queue", models.ChangeQueueRequest, models.QueueResponse, "run", "POST",
                  "/api/queues/{queue}/pause",
                  "Pause a queue: nothing that needs it starts."),
        Operation("resume_queue", models.ChangeQueueRequest, models.QueueResponse, "run", "POST",
                  "/api/queues/{queue}/resume",
                  "Resume a paused queue."),
        Operation("add_person", models.AddPersonRequest, models.PersonResponse, "admin", "POST",
                  "/api/people",
                  "Add a person who may answer gates."),
        Operation("change_person", models.ChangePersonRequest, models.PersonResponse, "admin", "POST",
                  "/api/people/{person}",
                  "Change the roles, scope, contacts or token of a person, or disable them."),
        Operation("remove_person", models.RemovePersonRequest, models.PersonResponse, "admin", "POST",
                  "/api/people/{person}/remove",
                  "Remove a person; their token ends at once."),
        Operation("test_channel", models.ChannelTestRequest, models.ChannelTestResponse, "run", "POST",
                  "/api/notifications/{channel}/test",
                  "Send a test message to a channel of notifications."),
        Operation("define_trigger", models.DefineTriggerRequest, models.TriggerResponse, "admin", "POST",
                  "/api/triggers",
                  "Create or replace a trigger."),
        Operation("remove_trigger", models.ChangeTriggerRequest, models.DoneResponse, "admin", "POST",
                  "/api/triggers/{trigger}/remove",
                  "Remove a trigger that was created here."),
        Operation("pause_trigger", models.ChangeTriggerRequest, models.TriggerResponse, "run", "POST",
                  "/api/triggers/{trigger}/pause",
                  "Pause a trigger: it starts nothing more."),
        Operation("resume_trigger", models.ChangeTriggerRequest, models.TriggerResponse, "run", "POST",
                  "/api/triggers/{trigger}/resume",
                  "Resume a paused trigger."),
        Operation("fire_trigger", models.FireTriggerRequest, models.FiredResponse, "run", "POST",
                  "/api/triggers/{trigger}/fire",
                  "Start a run of a trigger now."),
        Operation("backfill_trigger", models.BackfillTriggerRequest, models.BackfillResponse, "run", "POST",
                  "/api/triggers/{trigger}/backfill",
                  "Start the runs of a schedule for a range of times."),
        Operation("route", models.RouteRequest, models.RouteResponse, "run", "POST", "/api/route",
                  "Find the workflow that a message asks for."),
        Operation("reload", models.ReloadRequest, models.ReloadResponse, "admin", "POST", "/api/reload",
                  "Reload the definitions of the project."),
        Operation("collect", models.DeleteRunsRequest, models.DeleteRunsResponse, "admin", "POST",
                  "/api/collect",
                  "Delete runs that ended long ago; a dry run lists them."),
        Operation("delete", models.DeleteRunRequest, models.DeleteRunsResponse, "admin", "POST",
                  "/api/runs/{run}/delete",
                  "Delete a run that has ended, with its child runs, logs and artifacts."),
        # queries
        Operation("workflows", models.ListWorkflowsRequest, models.WorkflowPage, "read", "GET",
                  "/api/workflows",
                  "List the workflows."),
        Operation("workflow", models.WorkflowRequest, models.WorkflowResponse, "read", "GET",
                  "/api/workflows/{workflow}", "Get a workflow with its source."),
        Operation("definitions", models.EmptyRequest, models.DefinitionPage, "read", "GET",
                  "/api/definitions",
                  "List the definitions that runs were started from."),
        Operation("runs", models.ListRunsRequest, models.RunPage, "read", "GET", "/api/runs",
                  "List the runs, newest first."),
        Operation("run", models.ShowRunRequest, models.RunDetailResponse, "read", "GET", "/api/runs/{run}",
                  "Get a run: its state, its tree, its open gates."),
        Operation("definition", models.RunRequest, models.DefinitionResponse, "read", "GET",
                  "/api/runs/{run}/definition",
                  "Get the definition that a run was started from."),
        Operation("query", models.QueryRequest, models.QueryResponse, "read", "GET",
                  "/api/runs/{run}/queries/{query}",
                  "Ask the code of a run about its state."),
        Operation("events", models.ListEventsRequest, models.EventPage, "read", "GET", ("/api/runs/{run}"
            "/events"),
                  "List the events of a run after an event number."),
        Operation("artifacts", models.ListArtifactsRequest, models.ArtifactPage, "read", "GET",
                  "/api/runs/{run}/artifacts",
                  "List the files that the steps of a run have made."),
        Operation("changes", models.ListChangesRequest, models.ChangePage, "read", "GET",
                  "/api/runs/{run}/changes",
                  "Get what the steps of a run have changed in workspaces."),
        Operation("preview_fork", models.PreviewForkRequest, models.ForkPreviewResponse, "read", "GET",
                  "/api/runs/{run}/fork-preview",
                  "Get what a fork or a retry would reuse and run again; nothing starts."),
        Operation("gates", models.ListGatesRequest, models.GatePage, "read", "GET", "/api/gates",
                  "List the open gates."),
        Operation("facts", models.ListFactsRequest, models.FactPage, "read", "GET", "/api/facts",
                  "List the facts that match a pattern."),
        Operation("queues", models.EmptyRequest, models.QueuePage, "read", "GET", "/api/queues",
                  "List the queues with what holds a slot and what waits."),
        Operation("people", models.EmptyRequest, models.PeoplePage, "admin", "GET", "/api/people",
                  "List the people with their roles and contacts."),
        Operation("audit", models.AuditRequest, models.AuditPage, "admin", "GET", "/api/audit",
                  "List what was decided, verified against the hash chains, newest runs first."),
        Operation("notifications", models.EmptyRequest, models.NotificationsResponse, "read", "GET",
                  "/api/notifications",
                  "List the channels of notifications, and what was not delivered."),
        Operation("chats", models.EmptyRequest, models.ChatPage, "read", "GET", "/api/chats",
                  "List the chats with what was received and sent there."),
        Operation("triggers", models.EmptyRequest, models.TriggerPage, "read", "GET", "/api/triggers",
                  "List the triggers with their next times and last runs."),
        Operation("trigger", models.TriggerRequest, models.TriggerResponse, "read", "GET",
                  "/api/triggers/{trigger}",
                  "Get a trigger."),
        Operation("usage", models.EmptyRequest, models.UsageResponse, "read", "GET", "/api/usage",
                  "Get the usage of today, in total and by run."),
        Operation("usage_history", models.UsageHistoryRequest, models.UsageHistoryResponse, "read", "GET",
                  "/api/usage/history",
                  "Get the usage of the last days, by model, workflow and step."),
        Operation("sessions", models.EmptyRequest, models.SessionPage, "read", "GET", "/api/sessions",
                  "List the sessions that have runs in the store."),
        Operation("agents", models.EmptyRequest, models.AgentOverviewResponse, "read", "GET", "/api/agents",
                  "List the providers with their limits, and the agent files of the project."),
        Operation("threads", models.EmptyRequest, models.ThreadPage, "read", "GET", "/api/threads",
                  "List the conversations with agents."),
        Operation("health", models.EmptyRequest, models.HealthResponse, "read", "GET", "/api/health",
                  "Get the health of the server, its store and its runs."),
    )
}  # fmt: skip
"""Every operation by name."""
