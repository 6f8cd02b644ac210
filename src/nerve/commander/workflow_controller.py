"""The controller: talks to the api, feeds the desk, and does what is entered."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nerve.api import OPERATIONS, ApiError
from nerve.api.models import GateTold, RouteTold, RunTold, WorkflowTold
from nerve.commander.console import AtConsole
from nerve.commander.core.cards import PREFIXES
from nerve.commander.core.desk import Desk, Target, text_of
from nerve.commander.core.farewell import farewell
from nerve.commander.core.gates import chosen, name_of
from nerve.commander.core.input import InputType, ParsedInput, parse_input, write_input
from nerve.commander.core.naming import Unknown, run_named, startable
from nerve.commander.core.options import typed
from nerve.commander.core.references import resolve, resolve_input
from nerve.commander.listening import Listening
from nerve.commander.sentences import sentence, why

if TYPE_CHECKING:
    from nerve.client import Client
    from nerve.commander.core.completion import Completion

PATIENCE = 30.0
"""Seconds for which something is tried again that a server was not there for."""
AGAIN = 0.1
AGAIN_SHOWN = 60
"""Letters of a text that are told again."""
ROUTER = Target()
BY_ITSELF = ("help", "quit", "theme", "tui", "export")
"""Commands that need no server; the others wait for one that is being started."""
STARTED = (InputType.NODE, InputType.GRAPH, InputType.WORKFLOW)
STOPPED = "stopped in the Commander"
OPENED_NOW = "\0now"
"""Stands for the gate that the prompt is for at the time."""


class WorkflowController(AtConsole):
    """What both screens are made of. Nothing in it waits for a run, and no error leaves it."""

    def __init__(
        self,
        client: Client,
        renderer: Any = None,
        *,
        console: Any = None,
        desk: Desk | None = None,
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`renderer` or `console`: a WorkflowRenderer, or a rich Console; none where a screen draws the desk.

        `revive` starts the server again that the client talks to; without it, one that is gone is waited for.
        """
        renderer = console if renderer is None else renderer
        self.client, self.renderer = client, renderer
        self.desk = desk or Desk()
        self.wants: dict[str, str] = {}
        """What a command asks of the screen: `quit`, `theme`, `tui`. The desk's flag `wants` tells of it."""
        self.files: Callable[[str], Iterable[str]] | None = None
        self.themes: Sequence[str] = ()
        """What is offered while it is typed; a screen may set them."""
        self.conversation = f"commander-{secrets.token_hex(4)}"
        self._listening = Listening(client, self.desk, self._heard, revive)
        self._turn: tuple[Target, str | None] | None = None
        """Where the last plain text went, and the run that came of it."""
        self._queued: list[tuple[str, Any]] = []
        """What the queued texts stand for: references mean what they meant when they were entered."""
        self._sending: asyncio.Task[None] | None = None
        self._opened = False
        self._news = asyncio.Event()
        if renderer is not None:
            self.show_with(renderer)

    async def open(self) -> None:
        """Load workflows, runs and gates, and listen from then on."""
        if not self._opened:
            self._opened = True
            await self._listening.open()

    async def close(self) -> None:
        """Stop listening; runs go on."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._listening.close()
        self._opened = False

    # -- what is typed -----------------------------------------------------------------------------------

    async def enter(self, text: str, opened: str | None = OPENED_NOW) -> None:
        """Do what was typed; what is wrong becomes an error block before anything starts.

        `opened` is the id of the gate that the prompt was for when the line was entered, None for no gate;
        without it, the gate that the prompt is for now. `/`, `%`, `@` and `#` win over a gate.
        """
        if not text.strip():
            return
        parsed = parse_input(text)
        gate_id = self.desk.opened if opened is OPENED_NOW else opened
        try:
            if parsed.type is InputType.COMMAND:
                self.desk.say("input", text)
                await self._command(parsed)
            elif parsed.type in STARTED:
                self.desk.say("input", text)
                await self._started(parsed, self.desk.gate(gate_id))
            elif gate_id is not None:
                await self._typed_answer(gate_id, parsed, text)
            elif parsed.type is InputType.DIRECT:
                await self._plain(text)
            else:
                self.desk.say("input", text)
                await self._prefixed(parsed)
        except Exception as error:
            self.desk.say("error", why(error))

    async def _command(self, parsed: ParsedInput) -> None:
        from nerve.commander.core.commands import find, unknown
        from nerve.commander.doing import DOES

        if parsed.problem:
            raise Unknown(parsed.problem)
        command = find(parsed.target)
        if command is None or command.name not in DOES:
            raise Unknown(unknown(parsed.target))
        if command.name not in BY_ITSELF:
            await self._listening.ready()
        await DOES[command.name](self, parsed.text.strip())

    async def _prefixed(self, parsed: ParsedInput) -> None:
        if parsed.problem:
            raise Unknown(parsed.problem)
        parsed, value = resolve_input(parsed, self.desk.blocks)
        if parsed.type is InputType.REFERENCE:
            self.desk.say("text", parsed.text, value=value)
            return
        await self._listening.ready()
        kind = parsed.type.value
        name, workflow = await self.meant(kind, parsed.target)
        params = typed(parsed.options, workflow) if workflow is not None else {}
        nothing = workflow is not None and value == ""
        await self.begin(name, None if nothing else value, params)

    async def _started(self, parsed: ParsedInput, gate: GateTold | None) -> None:
        """Start what a line names; where it could have been an answer, an unknown name says how."""
        try:
            await self._prefixed(parsed)
        except Unknown as error:
            if gate is None:
                raise
            line = write_input(parsed)
            raise Unknown(f"{error} To answer '{name_of(gate)}' with this line, write \\{line}") from None

    async def _typed_answer(self, gate_id: str, parsed: ParsedInput, text: str) -> None:
        self.desk.say("input", text)
        gate = self.desk.gate(gate_id)
        if gate is None:
            self.desk.attend_gate()
            name = self.desk.gate_name(gate_id)
            raise Unknown(f"Gate '{name}' is not open any more: the line was not sent.")
        said = parsed.text if parsed.type is InputType.DIRECT else text.strip()
        if refused := await self.answer(gate, resolve(said, self.desk.blocks)):
            self.desk.say("error", refused)

    # -- plain text --------------------------------------------------------------------------------------

    async def _plain(self, text: str) -> None:
        """Plain text is for the target; what comes while a turn runs waits for its end."""
        try:
            said, value = resolve_input(parse_input(text), self.desk.blocks)
        except ValueError:
            self.desk.say("input", text)
            raise
        if self._is_turning():
            self.desk.queue.append(text)
            self._queued.append((said.text, value))
            self.desk.flag("queue")
        else:
            await self._send(text, said.text, value)

    def _is_turning(self) -> bool:
        if self._turn is None or self._turn[0] != (self.desk.target or ROUTER):
            return False
        if self.desk.queue or self._turn[1] is None:
            return True
        card = self.desk.runs.get(self._turn[1])
        return card is not None and card.moves and card.run_id == self.desk.focus

    async def _send(self, text: str, said: str, value: Any) -> None:
        """Send what was typed, with what it referred to when it was."""
        self.desk.say("input", text)
        target = self.desk.target or ROUTER
        self._turn = (target, None)
        run_id = None
        try:
            await self._listening.ready()
            if target.kind == "router":
                run_id = await self._route(said)
            else:
                name, workflow = await self.meant(target.kind, target.name)
                params = typed({}, workflow) if workflow is not None else {}
                run_id = await self.begin(name, value, params)
        finally:
            self._turn = (target, run_id) if run_id is not None else None
            asyncio.get_running_loop().call_soon(self._heard)

    async def _route(self, text: str) -> str | None:
        given = {"text": text, "conversation": self.conversation, "watching": self.desk.focus}
        told: RouteTold = await self.do("route", **given, start=True)
        extra = told.model_extra or {}
        for warning in extra.get("warnings") or ():
            self.desk.say("note", f"Router: {warning}", name="router")
        if told.run is not None:
            if told.by == "words":
                self.desk.say("note", f"Router: {told.reason}", name="router")
            await self.began(told.run, routed=True)
            return told.run.run_id
        said = str(extra.get("reply") or extra.get("question") or told.reason)
        known = {flow.id for flow in self.desk.workflows}
        meant = [name for name in extra.get("candidates") or () if name in known]
        if told.kind == "question" and meant:
            again = text if len(text) <= AGAIN_SHOWN and "\n" not in text else "…"
            said += f"\n\nStart it with `%{meant[0]} {again}`"
        self.desk.say("text", said, name="router")
        return None

    def unqueue(self) -> str:
        """Take the last queued text back, to be edited; "" if there is none."""
        if not self.desk.queue:
            return ""
        self.desk.flag("queue")
        self._queued.pop()
        return self.desk.queue.pop()

    def _heard(self) -> None:
        """Something was taken in: the next text goes when the turn before it is over."""
        self._news.set()
        if not self.desk.queue or (self._sending is not None and not self._sending.done()):
            return
        run_id = self._turn[1] if self._turn is not None else None
        card = self.desk.runs.get(run_id or "")
        if self._turn is None or (card is not None and card.ended):
            self._sending = asyncio.create_task(self._next())

    async def _next(self) -> None:
        text, resolved = self.desk.queue.pop(0), self._queued.pop(0)
        self.desk.flag("queue")
        try:
            await self._send(text, *resolved)
        except Exception as error:
            self.desk.say("error", why(error))

    # -- runs --------------------------------------------------------------------------------------------

    async def do(self, operation: str, **given: Any) -> Any:
        """Do a command of the api once, however often it is sent: a server that is gone may come back."""
        given[OPERATIONS[operation].asks.keyed_by] = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while True:
            try:
                return await self.client.perform(operation, given)
            except ApiError as error:
                if error.code != "busy" or loop.time() > end:
                    raise
            await asyncio.sleep(AGAIN)

    async def begin(self, name: str, value: Any, params: dict[str, Any] | None = None) -> str:
        """Start a run and follow it; its id."""
        given = {"workflow": name, "input": value, "params": params or {}, "conversation": self.conversation}
        run: RunTold = await self.do("start", **given)
        await self.began(run)
        return run.run_id

    async def began(self, run: RunTold, routed: bool = False) -> None:
        """List a run that has begun, look at it, and follow it."""
        self.desk.list_runs([run])
        self.desk.look_at(run.run_id)
        try:
            await self._listening.follow(run.run_id, routed)
        except ApiError as error:
            if error.code != "busy":  # it is caught up with when the server is back
                raise

    async def follow(self, run: str) -> None:
        """Show a run in the conversation and put the focus on it."""
        run_id = await self._listening.look(run)
        self.desk.look_at(run_id)
        await self._listening.follow(run_id)

    async def reload(self) -> None:
        """Ask again for the names of what can be started."""
        await self._listening.reload()

    async def meant(self, kind: str, name: str) -> tuple[str, WorkflowTold | None]:
        """What a name means now: files come and change while the Commander is open."""
        with contextlib.suppress(ApiError):  # while the server is away, what was known will do
            await self.reload()
        return startable(self.desk, kind, name)

    async def named(self, run: str) -> str:
        """The id of the run of that name; of the one in focus if there is none."""
        if run:
            told = await self.client.run(run=run_named(self.desk, run) or run)
            return str(told.run_id)
        if (card := self.desk.focused) is None:
            raise Unknown("No run is in focus. Name one; /runs lists them.")
        return card.run_id

    async def interrupt(self, run_id: str | None = None) -> None:
        """Stop a run: the one in focus, if none is named."""
        card = self.desk.runs.get(run_id) if run_id else self.desk.focused
        if card is None or card.ended:
            return
        try:
            await self.do("stop", run=card.run_id, reason=STOPPED)
        except ApiError as error:
            self.desk.say("error", sentence(error))

    async def answer(self, gate: GateTold, text: Any, reason: str = "") -> str:
        """Answer a gate; "" or why not, and then it stays open. A number is that choice or option."""
        known = gate.choices or gate.options or []
        answer = chosen(text, known) if isinstance(text, str) else text
        desk, was_opened = self.desk, self.desk.opened == gate.gate_id
        desk.answering.add(gate.gate_id)  # its event may be here before the reply is
        if was_opened and not desk.typing:
            desk.open_gate(None)  # what is typed from now on is another line
        try:
            await self.do("answer", run=gate.run_id, gate=gate.gate_id, answer=answer, reason=reason)
            desk.answered(gate, answer)
        except ApiError as error:
            if was_opened and not desk.typing and desk.gate(gate.gate_id) is not None:
                desk.open_gate(gate.gate_id)
            return sentence(error)
        finally:
            desk.answering.discard(gate.gate_id)
            desk.attend_gate()
        root = desk.root_of(gate.run_id)
        if desk.block_of(root) is None and (card := desk.runs.get(root)) is not None:
            desk.say("note", f"'{name_of(gate)}' of {card.name} ({card.short_id}): {text_of(answer)}")
        return ""

    async def news(self) -> None:
        """Return when something was taken in."""
        self._news.clear()
        await self._news.wait()

    # -- what a screen asks ------------------------------------------------------------------------------

    def complete(self, text: str, cursor: int) -> list[Completion]:
        """What can be written at the cursor."""
        from nerve.commander.core.completion import complete
        from nerve.commander.core.naming import names

        if text in PREFIXES:
            self._listening.look_again()
        return complete(text, cursor, names(self.desk, self.themes, self.files))

    def farewell(self) -> list[str]:
        """The lines that are left in the terminal: what runs or waits, the cost, and how to come back."""
        return farewell(self.desk)

    def ask(self, what: str, value: str = "") -> None:
        """Ask something of the screen."""
        self.wants[what] = value
        self.desk.flag("wants")
