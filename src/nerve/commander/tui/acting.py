"""What keys and clicks do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from collections.abc import Coroutine
from time import monotonic
from typing import Any

from textual import on
from textual.actions import SkipAction
from textual.app import App, SuspendNotSupported

from nerve.commander.commander import WorkflowController
from nerve.commander.core.desk import Desk
from nerve.commander.core.history import History
from nerve.commander.tui import themes
from nerve.commander.tui.gates import GateCard
from nerve.commander.tui.popup import Popup
from nerve.commander.tui.prompt import Prompt, PromptBox
from nerve.commander.tui.runs import RunList
from nerve.commander.tui.status import Status
from nerve.commander.tui.stream import Stream

PATIENCE = 3.0
"""Seconds in which a key pressed again means what was asked."""
ALONE = (
    "keys",
    "runs",
    "gates",
    "blocks",
    "search",
    "editor",
    "details",
    "mode",
    "page",
    "to_end",
    "next_run",
)


class Acting(App[str]):
    """The actions of the app; how it looks is told by the app itself."""

    controller: WorkflowController
    desk: Desk
    past: History
    keymap: dict[str, str]
    opens_gates: bool
    """Whether a gate opens by itself, when the prompt is empty."""
    asking: tuple[str, str | None, float] | None
    """A question that the next key answers: what, about which run, and until when."""
    stream: Stream
    runs: RunList
    card: GateCard
    status: Status
    popup: Popup
    prompt: Prompt
    box: PromptBox

    def draw_frame(self) -> None:
        raise NotImplementedError

    def draw_gate(self, opened: bool) -> None:
        raise NotImplementedError

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something without anybody waiting for it; what goes wrong is told, and the screen stays."""

        async def done() -> None:
            try:
                await work
            except Exception as error:
                self.desk.say("error", f"That did not work: {type(error).__name__}: {error}")

        self.run_worker(done(), group="background")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Over another screen, such as the palette, only that screen's keys count."""
        return len(self.screen_stack) <= 1 or action not in (*ALONE, "cancel", "interrupt", "leave")

    # -- what is entered ---------------------------------------------------------------------------------

    def do(self, text: str) -> None:
        """Enter a line."""
        self.stream.to_end()
        self.background(self.controller.enter(text))

    def begin(self, text: str) -> None:
        """Put the beginning of a line into the prompt."""
        self.prompt.write(f"{text} ")
        self.screen.set_focus(self.prompt)
        self.prompt.offer()

    @on(Prompt.Entered)
    def entered(self, event: Prompt.Entered) -> None:
        self.past.add(event.text)
        self.ask(None)
        self.draw_frame()
        if event.text in ("/gates", "/gate") and self.desk.gates:
            self.action_gates()
        else:
            self.do(event.text)

    @on(Prompt.Edited)
    def edited(self) -> None:
        if self.asking is not None and self.prompt.text:
            self.ask(None)
        self.place_popup()

    def place_popup(self) -> None:
        """Put the popup right above the prompt."""
        self.popup.styles.margin = (0, 1, self.box.outer_size.height + 1, 1)

    @on(Prompt.Sheet)
    def sheet_asked(self) -> None:
        self.action_keys()

    @on(Prompt.Unqueue)
    def unqueue(self) -> None:
        if text := self.controller.unqueue():
            self.prompt.write(text)

    def action_take(self, index: int) -> None:
        """Take what was clicked in the popup."""
        if index < len(self.popup.items):
            self.prompt.take(self.popup.items[index])
            self.screen.set_focus(self.prompt)

    # -- gates -------------------------------------------------------------------------------------------

    def action_gates(self) -> None:
        """Open the first gate; if one is open, the next."""
        ids = [gate.gate_id for gate in self.desk.gates]
        if not ids:
            self.notify("Nothing waits for you.", timeout=2)
            return
        now = ids.index(self.desk.opened) if self.desk.opened in ids else -1
        if now >= 0 and len(ids) == 1:
            self.draw_gate(opened=True)
            return
        self.desk.open_gate(ids[(now + 1) % len(ids)])
        self.draw_gate(opened=True)  # now, so that a key that follows at once is for the card
        self.draw_frame()

    @on(GateCard.Answered)
    def answered(self, event: GateCard.Answered) -> None:
        self.background(self.answer(event.gate, event.answer))

    async def answer(self, gate: Any, answer: Any) -> None:
        why = await self.controller.answer(gate, answer)
        if why and self.card.gate is not None and self.card.gate.gate_id == gate.gate_id:
            self.card.refuse(why)
        elif not why and self.desk.opened == gate.gate_id:
            self.desk.open_gate(None)

    def type_into(self, text: str) -> None:
        """Go on in the prompt with what was typed elsewhere."""
        self.screen.set_focus(self.prompt)
        if text:
            self.prompt.insert(text)

    def action_answer(self, index: int) -> None:
        """Give the answer that was clicked."""
        if index < len(self.card.answers):
            self.card.give(self.card.answers[index])

    def on_form_filled(self, event: Any) -> None:
        self.card.give(event.values)

    def on_form_wrong(self, event: Any) -> None:
        self.card.refuse(event.why)

    # -- runs --------------------------------------------------------------------------------------------

    def action_runs(self) -> None:
        if self.screen.has_class("-runs") or self.runs.has_focus:
            self.screen.set_focus(self.prompt)
            return
        if self.screen.has_class("-narrow"):
            self.screen.add_class("-runs")
        self.runs.take()
        self.screen.set_focus(self.runs)

    @on(RunList.Looked)
    def looked(self, event: RunList.Looked) -> None:
        self.action_look(event.run_id)

    def action_look(self, run_id: str) -> None:
        """Look at a run: in its block, which it gets if it has none."""
        self.screen.set_focus(self.prompt)
        self.background(self.controller.follow(run_id))

    def action_next_run(self, by: int) -> None:
        order = [card.run_id for card in self.desk.runs.values() if not card.ended] or list(self.desk.runs)
        if order:
            now = order.index(self.desk.focus) if self.desk.focus in order else -1
            self.action_look(order[(now + by) % len(order)])

    @on(RunList.Asked)
    def run_asked(self, event: RunList.Asked) -> None:
        if event.what == "stop":
            self.ask("stop", event.run_id)
        else:
            self.do(f"/{event.what} {event.run_id}")

    # -- blocks ------------------------------------------------------------------------------------------

    def action_blocks(self) -> None:
        if self.stream.has_focus:
            self.screen.set_focus(self.prompt)
        else:
            self.screen.set_focus(self.stream)

    @on(Stream.Refer)
    def refer(self, event: Stream.Refer) -> None:
        self.screen.set_focus(self.prompt)
        self.prompt.insert(f"::{event.block.number} ")

    @on(Stream.Open)
    def open_block(self, event: Stream.Open) -> None:
        for gate in self.desk.gates:
            if gate.run_id == event.block.run_id or gate.prompt == event.block.text:
                self.desk.open_gate(gate.gate_id)
                return

    def action_details(self) -> None:
        self.stream.show_details(not self.stream.details)
        self.notify("Everything is shown." if self.stream.details else "Folded.", timeout=1.5)

    def action_page(self, direction: int) -> None:
        if self.card.has_focus_within or self.card.has_focus:
            self.card.body.scroll_relative(
                y=direction * max(1, self.card.body.size.height - 1), animate=False
            )
        else:
            self.stream.page(direction)

    def action_to_end(self) -> None:
        self.stream.to_end()

    # -- the prompt --------------------------------------------------------------------------------------

    def action_keys(self) -> None:
        from nerve.commander.tui.sheet import Sheet

        self.push_screen(Sheet(self.keymap))

    def action_search(self) -> None:
        self.screen.set_focus(self.prompt)
        self.prompt.search()
        self.draw_frame()

    def action_mode(self) -> None:
        if not self.prompt.has_focus:
            if self.card.form is not None and self.card.has_focus_within:
                raise SkipAction
            self.screen.set_focus(self.prompt)
            return
        self.opens_gates = not self.opens_gates
        self.draw_frame()
        if self.opens_gates:
            self.draw_gate(opened=True)

    async def action_editor(self) -> None:
        """Write the prompt in the editor of the environment."""
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        path = written(self.prompt.pastes.expand(self.prompt.text))
        try:
            with self.suspend():
                done = await asyncio.create_subprocess_exec(*editor, path)
                await done.wait()
            self.prompt.write(await asyncio.to_thread(read, path))
        except SuspendNotSupported:
            self.desk.say("error", "This terminal cannot be lent to an editor.")
        except OSError as error:
            told = f"The editor '{editor[0]}' cannot be started: {error.strerror}. Set EDITOR to another."
            self.desk.say("error", told)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self.refresh(layout=True)

    # -- stopping and leaving ----------------------------------------------------------------------------

    def ask(self, what: str | None, run_id: str | None = None) -> None:
        """Ask for the same key again, for a short time; without anything, ask no more."""
        self.asking = None if what is None else (what, run_id, monotonic() + PATIENCE)
        card = self.desk.runs.get(run_id or "")
        if what == "stop" and card is not None:
            self.status.question = f"Stop {card.name}? Esc again stops it"
        elif what == "leave":
            stop = f" · Esc stops {card.name}" if card is not None else ""
            self.status.question = f"Ctrl-C again leaves, runs go on{stop}"
        else:
            self.status.question = ""
        self.status.redraw()

    def action_cancel(self) -> None:
        """Close what is open, go back, or stop the run that is looked at."""
        asked = self.asking
        if asked is not None and asked[1] is not None:
            self.ask(None)
            self.background(self.controller.interrupt(asked[1]))
        elif self.prompt.give_up():
            self.draw_frame()
        elif self.screen.get_selected_text():
            self.screen.clear_selection()
        elif self.desk.opened is not None:
            self.desk.open_gate(None)
            self.screen.set_focus(self.prompt)
        elif not self.prompt.has_focus:
            self.screen.set_focus(self.prompt)
        elif (card := self.desk.focused) is not None and not card.ended:
            self.ask("stop", card.run_id)

    def action_interrupt(self) -> None:
        """Copy what is selected; clear the prompt; ask whether to leave, and leave."""
        if selected := self.screen.get_selected_text() or self.prompt.selected_text:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.notify("Copied.", timeout=1.5)
            return
        if self.asking is not None and self.asking[0] == "leave":
            self.exit("quit")
            return
        if self.prompt.text:
            self.past.add(self.prompt.text)
            self.prompt.clear_all()
        self.screen.set_focus(self.prompt)
        card = self.desk.focused
        self.ask("leave", card.run_id if card is not None and not card.ended else None)

    def action_leave(self) -> None:
        if self.prompt.text:
            raise SkipAction
        self.exit("quit")

    # -- what commands ask of the screen -----------------------------------------------------------------

    def heed_wants(self) -> None:
        wants = self.controller.wants
        for what in [*wants]:
            how = wants.pop(what)
            if what == "quit":
                self.exit("quit")
            elif what == "tui" and how == "plain":
                self.exit("plain")
            elif what == "tui":
                self.desk.say("note", "This is the full screen already.")
            elif what == "theme":
                self.choose_theme(how)

    def choose_theme(self, name: str) -> None:
        if name in self.available_themes:
            self.theme = name
        elif name:
            self.desk.say("error", f"There is no theme '{name}'. There are: {', '.join(themes.THEMES)}.")
        else:
            self.action_change_theme()


def written(text: str) -> str:
    """The path of a file with a text."""
    with tempfile.NamedTemporaryFile("w", prefix="nerve-", suffix=".md", delete=False) as file:
        file.write(text)
    return file.name


def read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read().rstrip("\n")
