"""The controller: talks to the api, feeds the desk, and does what is entered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nerve.api.models import GateTold
from nerve.commander.core.desk import Desk

if TYPE_CHECKING:
    from nerve.client import Client
    from nerve.commander.core.completion import Completion


class WorkflowController:
    """What both screens are made of. Nothing in it waits for a run, and no error leaves it."""

    def __init__(self, client: Client, renderer: Any = None, *, desk: Desk | None = None) -> None:
        """`renderer` is a WorkflowRenderer or a rich Console, or nothing where a screen draws the desk."""
        self.client = client
        self.renderer = renderer
        self.desk = desk or Desk()
        self.wants: dict[str, str] = {}
        """What a command asks of the screen: `quit`, `theme`, `tui`; told by the desk's flags of these names."""

    async def open(self) -> None:
        """Load workflows, runs and gates, and listen from then on."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop listening; runs go on."""
        raise NotImplementedError

    async def enter(self, text: str) -> None:
        """Do what was typed; what is wrong becomes an error block before anything starts."""
        raise NotImplementedError

    async def answer(self, gate: GateTold, text: Any) -> str:
        """Answer a gate; "" or why not, and then it stays open. A number is the choice of that number."""
        raise NotImplementedError

    async def interrupt(self, run_id: str | None = None) -> None:
        """Stop a run: the one in focus, if none is named."""
        raise NotImplementedError

    async def follow(self, run: str) -> None:
        """Show a run in the conversation and put the focus on it."""
        raise NotImplementedError

    def unqueue(self) -> str:
        """Take the last queued text back, to be edited."""
        raise NotImplementedError

    def complete(self, text: str, cursor: int) -> list[Completion]:
        """What can be written at the cursor."""
        raise NotImplementedError

    def farewell(self) -> list[str]:
        """The lines that are left in the terminal: what runs or waits, the cost, and how to come back."""
        raise NotImplementedError

    # -- as the seeds have it ----------------------------------------------------------------------------

    @property
    def active_run_id(self) -> str | None:
        """The run in focus, as long as it has not ended."""
        card = self.desk.focused
        return card.run_id if card is not None and not card.ended else None

    @property
    def waiting_for_gate(self) -> str | None:
        """The id of the oldest open gate of the run in focus."""
        card = self.desk.focused
        return card.gates[0].gate_id if card is not None and card.gates else None

    async def start(self, workflow_id: str, input: Any = None, params: dict[str, Any] | None = None) -> None:
        """Start a run and follow it; returns at once."""
        raise NotImplementedError

    async def execute(self, session_id: str, workflow_id: str, input: Any) -> None:
        """Start a run, show it and ask its gates at the console, until it ends."""
        raise NotImplementedError

    async def send_gate_input(self, input: Any) -> None:
        """Answer the gate that is waited for; a wrong answer leaves it open."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Let nothing new begin in the run in focus."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End the run in focus."""
        raise NotImplementedError
