"""Execute the commands that a workflow receives as updates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nerve.core.gate_policy import Voter
from nerve.core.runtime import GateWait
from nerve.core.workflow.run import WorkflowRun
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.local_engine import LocalEngine, is_held_for_daily_budget
from nerve.engine.task_tracking import spawn_detached
from nerve.engine.temporal.messages import RunCommand, RunCommandReply
from nerve.journal.events import RunOnHold, Steered
from nerve.store.port import ReplyRow

CLOSED_LEAF_MESSAGE = "the step has ended"


class RunCommandHandler:
    """The commands for the runs of one family."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._leaf_gates: dict[tuple[str, str], asyncio.Task[Any]] = {}
        """The gates that leaves have opened, by run and path."""
        self._budget_waits: dict[tuple[str, str], asyncio.Task[None]] = {}
        """What holds a run until a leaf of it has a budget, by run and path."""

    async def execute(self, command: RunCommand) -> RunCommandReply:
        """Execute a command; a reply says if it was refused."""
        try:
            value = await self._execute(command)
            return RunCommandReply(value, last_row=self._last_row(command.run_id))
        except Exception as error:
            fields = {name: value for name, value in vars(error).items() if isinstance(value, str)}
            return RunCommandReply(None, str(error), type(error).__name__, error_fields=fields)

    def _last_row(self, run_id: str) -> int:
        if (executor := self._engine.executors.get(run_id)) is not None:
            return executor.journal.seq
        last = self._engine.store.last_event(run_id)
        return 0 if last is None else last.seq

    async def _execute(self, command: RunCommand) -> Any:
        if (row := self._engine.store.run(command.run_id)) is None:
            raise ValueError(f"Run '{command.run_id}' is not executed by this workflow")
        run, given = self._engine.run_handle(row), command.arguments
        who = given.get("about") or {}
        reply = None if command.reply is None else ReplyRow(*command.reply)
        match command.verb:
            case "answer":
                about = {name: given[name] for name in ("by", "key", "about") if given.get(name)}
                if (voter := given.get("voter")) is not None:
                    about["voter"] = Voter(voter["name"], tuple(voter["roles"]), voter["started_run"])
                    about["action"] = given.get("action", "answer")
                await run.answer(given.get("value"), given.get("gate"), reply=reply, **about)
            case "pause":
                await run.pause(about=who)
            case "resume":
                changes = bool(given.get("with_changes"))
                await run.resume(limits=given.get("limits"), with_changes=changes, reply=reply, about=who)
            case "stop":
                return await run.stop(given.get("reason") or "", about=who)
            case "signal":
                return await run.signal(given["label"], given.get("value"), given.get("key"))
            case "send":
                by, key = given.get("by") or "", given.get("key")
                await run.send(given["channel"], given.get("value"), key=key, by=by, reply=reply)
            case "query":
                return await run.query(given["name"])
            case "update":
                by, key = given.get("by") or "", given.get("key")
                return await run.update(given["name"], given.get("value"), key=key, by=by)
            case "decide":
                await self._decide(run, given, reply)
            case "steer":
                return await self._steer(run, given)
            case "open_gate":
                return await self._open_gate(run, given["path"], given["gate"])
            case "close_gate":
                self._close_gate(run, given["path"])
            case "fact":
                written = self._engine.commands.on_fact(run.run_id, given["path"], given["match"])
                if written is not None:
                    await written
            case "slot":
                self._engine.queues.on_slot(run.run_id, given["path"])
            case "begin_turn":
                return await self._find_leaf(run, given["path"]).begin_turn(given["used"])
            case "end_turn":
                await self._find_leaf(run, given["path"]).end_turn(given["used"])
            case "check_budget":
                return await self._check_budget(run, given["path"], given["used"])
            case "day_budget":
                await self._apply_day_budget(run, given["path"], given["problem"])
            case verb:
                raise ValueError(f"Unknown command '{verb}'. Update Nerve on the body workers.")
        return None

    async def _decide(self, run: WorkflowRun, given: Mapping[str, Any], reply: ReplyRow | None) -> None:
        path, value = given.get("path") or "", given.get("value")
        settings: dict[str, Any] = {"reply": reply, "about": given.get("about") or {}}
        match given["decision"]:
            case "skip":
                await run.skip(path, value, **settings)
            case "retry":
                await run.retry(path or None, **settings)
            case "fail":
                await run.fail(path, value or "declared failed", **settings)
            case decision:
                raise ValueError(f"decision must be skip, retry or fail, got {decision!r}")

    async def _steer(self, run: WorkflowRun, given: Mapping[str, Any]) -> str:
        """Record a message to a leaf; its worker reads it in the projection."""
        executor = self._engine.executors.get(run.run_id)
        leaves = {} if executor is None else executor.call_runner.running_leaves
        path = given.get("path")
        agents = [each for each, leaf in leaves.items() if leaf.is_agent]
        paths = [path] if path is not None else agents
        if executor is None or len(paths) != 1 or paths[0] not in agents:
            listening = ", ".join(agents) or "none"
            raise RuntimeError(f"Cannot steer {path or 'the run'}: steps with a listening agent: {listening}")
        seq = executor.journal.append(Steered(given["text"], given.get("by") or ""), paths[0])
        await executor.journal.wait_durable(seq)
        return paths[0]

    async def _open_gate(self, run: WorkflowRun, leaf_path: str, fields: Mapping[str, Any]) -> dict[str, str]:
        """Open a gate for a running leaf; the leaf reads the answer in the projection."""
        leaf, executor = self._find_leaf(run, leaf_path), self._engine.executors[run.run_id]
        gate = GateWait(**{"path": f"{leaf_path}/~ask", **fields})
        known = set(executor.open_waits.by_path)
        task = spawn_detached(leaf.ask(gate))
        await asyncio.sleep(0)
        opened = [each for path, each in executor.open_waits.by_path.items() if path not in known]
        info = next((each.gate for each in opened if each.wait is gate), None)
        if info is None:
            await task  # raises why it could not be opened
            raise RuntimeError(f"Cannot ask at {leaf_path}: {CLOSED_LEAF_MESSAGE}")
        key = run.run_id, gate.path
        self._leaf_gates[key] = task
        task.add_done_callback(lambda done: self._forget_gate(key, done))
        return {"path": gate.path, "gate_id": info.gate_id}

    def _find_leaf(self, run: WorkflowRun, path: str) -> LeafRuntime:
        executor = self._engine.executors.get(run.run_id)
        leaf = None if executor is None else executor.call_runner.running_leaves.get(path)
        if leaf is None:
            raise RuntimeError(f"Cannot serve {path}: {CLOSED_LEAF_MESSAGE}")
        return leaf

    async def _check_budget(self, run: WorkflowRun, path: str, used: Mapping[str, Any]) -> bool:
        """Return whether a turn of a leaf has room in the budgets; hold the run while it has none."""
        key = run.run_id, path
        if (waiting := self._budget_waits.get(key)) is None:
            waiting = self._budget_waits[key] = spawn_detached(
                self._find_leaf(run, path).wait_for_budget(used)
            )
        await asyncio.sleep(0)
        if not waiting.done():
            return False
        del self._budget_waits[key]
        waiting.result()
        return True

    async def _apply_day_budget(self, run: WorkflowRun, path: str, problem: str | None) -> None:
        """Hold the run of a leaf because the budget of the day is exhausted, or resume it."""
        if problem is not None:
            self._find_leaf(run, path)
            hold = RunOnHold("budget", problem, path, "day")
            self._engine.executors[run.run_id].barrier.hold_new_work(hold)
        elif is_held_for_daily_budget(run.run_state.hold):
            await run.resume()

    def _forget_gate(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        self._leaf_gates.pop(key, None)
        if not task.cancelled():
            task.exception()  # the leaf reads a timeout in the projection

    def _close_gate(self, run: WorkflowRun, path: str) -> None:
        if (task := self._leaf_gates.get((run.run_id, path))) is not None:
            task.cancel()
