"""The desk as lines: what is new in the conversation is printed once, and stays as it was printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from nerve.commander.core.blocks import LINE, Block, Part, diff_in
from nerve.commander.core.cards import short_id
from nerve.commander.core.choosing import whose
from nerve.commander.core.desk import Changes, Desk, RunCard
from nerve.commander.core.forms import example, lines
from nerve.commander.core.gates import NO, YES, name_of, preview_of
from nerve.commander.core.harmless import INDENT, beginning, harmless, indent_lines
from nerve.commander.core.lines import gate_line
from nerve.commander.core.tree import spent
from nerve.commander.renderer import gate_panel

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from nerve.api.models import GateTold

LINES = 8
"""Lines of an input that are shown again."""
ENDS = {"completed": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("✗", "yellow")}
RESTS = {"paused": "⏸ paused", "held": "⏸ held"}


@dataclass(slots=True)
class Printed:
    """How much of a run was printed."""

    lines: int = 0
    parts: set[int] = field(default_factory=set)
    said: dict[int, int] = field(default_factory=dict)
    """Characters of output that still grows."""
    over: bool = False
    state: str = ""
    last: str = ""
    """The last message, or output."""


class Printer:
    """Prints what has changed."""

    def __init__(self, desk: Desk, console: Console) -> None:
        self.desk, self.console = desk, console
        self.details = False
        """Whether the output of tools and thoughts are shown whole."""
        self._blocks = 0
        self._runs: dict[int, Printed] = {}
        self._asked: str | None = None
        """The id of the gate that was shown last."""

    @property
    def terminal(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def flush(self) -> Changes:
        """Print what is new; what has changed."""
        changed = self.desk.changed.take()
        numbers = changed.blocks | self._states(changed.runs)
        blocks = [block for number in numbers if (block := self.desk.block(number)) is not None]
        for block in sorted(blocks, key=self._turn):
            if block.kind == "run":
                self._run(block)
            elif block.place > self._blocks:
                self._print(*self._block(block))
        self._blocks = max([self._blocks, *numbers])
        if "opened" in changed.flags and (gate := self.desk.gate(self.desk.opened)) is not None:
            self._print(*self._opened(gate))
        return changed

    def _turn(self, block: Block) -> tuple[int, int]:
        """What was entered comes before what came of it, and that before what is asked then."""
        new = block.place > self._blocks
        return (2 if block.kind == "gate" else 0 if new else 1, block.place)

    def _states(self, runs: set[str]) -> set[int]:
        """The blocks of runs that came to rest."""
        blocks = (self.desk.block_of(run) for run in runs)
        return {block.place for block in blocks if block is not None and block.place <= self._blocks}

    def say(self, *things: RenderableType) -> None:
        """Something that is not of the conversation."""
        self._print(*things)

    def _print(self, *things: RenderableType) -> None:
        for thing in things:
            self.console.print(thing, soft_wrap=isinstance(thing, Text) and not self.console.is_terminal)

    # -- blocks ------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> Iterator[RenderableType]:
        match block.kind:
            case "input":
                yield typed(block.text, self.terminal)
            case "text" if block.name.startswith("/"):
                yield self._prose(block.text)
            case "text":
                yield Text(f"[{harmless(block.name) or 'answer'}] ::{block.number}", "dim")
                yield self._prose(block.text)
            case "error":
                self._asked = self._asked if self.terminal else None  # a gate that is still open asks again
                yield Text(f"✗ {indent_lines(harmless(block.text))}", "red")
            case "gate" if block.gate is not None:
                yield from self._gate(block.gate, block.name)
            case _:
                yield Text(indent_lines(harmless(block.text)), "dim")

    def _prose(self, text: str) -> RenderableType:
        """A text as Markdown, which stays as it is where nothing can be drawn."""
        if not self.terminal:
            return Text(harmless(text.strip("\n")))
        from nerve.commander.prose import prose  # takes a while, and is not needed for the first prompt

        return prose(text)

    def _gate(self, gate: GateTold, name: str) -> Iterator[RenderableType]:
        """A question; where only lines are shown, its own line stands with those of the run."""
        number = self._number(gate)
        said = {choice.casefold() for choice in gate.choices or gate.options or []}
        both = ", /approve, /reject" if said.intersection(YES) and said.intersection(NO) else ""
        begin = "Enter on the empty line opens it" if self.terminal else f"/gates {number} opens it"
        if self.desk.opened == gate.gate_id:
            begin = "The next line answers it"
        answer = harmless(example(gate.form)) if gate.form is not None else "…"
        yield from self._card(gate, name, f"{begin}, or /answer {number} {answer}{both}")

    def _opened(self, gate: GateTold) -> Iterator[RenderableType]:
        """The gate that is answered now, unless it was the last to be shown: nobody answers blindly."""
        if gate.gate_id == self._asked:
            return
        if not self.terminal:
            yield Text(indent_lines(harmless(gate_line(gate.model_dump()))))
        answer = f"Type JSON, such as {harmless(example(gate.form))}" if gate.form is not None else ""
        yield from self._card(gate, name_of(gate), answer)

    def _card(self, gate: GateTold, name: str, hint: str) -> Iterator[RenderableType]:
        self._asked = gate.gate_id
        if self.terminal:
            title = f"{name} of {whose(self.desk, gate)}"
            yield gate_panel(gate.model_dump(), title, hint=hint, more=change_of(gate))
            return
        for line in preview_of(gate.input_preview).splitlines():
            yield Text(f"  {harmless(line)}")
        for n, choice in enumerate(gate.choices or gate.options or [], start=1):
            yield Text(f"  {n} {indent_lines(harmless(choice))}")
        for line in lines(gate.form or {}):
            yield Text(f"  {line}")
        if hint:
            yield Text(f"  ({hint})")

    def _number(self, gate: GateTold) -> str:
        """What the gate is called in a command."""
        ids = [each.gate_id for each in self.desk.gates]
        return str(ids.index(gate.gate_id) + 1) if gate.gate_id in ids else gate.gate_id

    # -- runs --------------------------------------------------------------------------------------------

    def _run(self, block: Block) -> None:
        printed = self._runs.setdefault(block.place, Printed())
        for thing in self._news(block, printed):
            self._print(self._marked(block, thing))

    def _marked(self, block: Block, thing: RenderableType) -> RenderableType:
        """With the number of its run, where several go on."""
        if not isinstance(thing, Text) or self._alone(block):
            return thing
        return Text(f"::{block.number} ", "dim") + thing

    def _alone(self, block: Block) -> bool:
        """Whether no other run goes on here."""
        return all(each is block or each.done for each in self.desk.blocks if each.kind == "run")

    def _reference(self, block: Block) -> str:
        """How the run is referred to, unless that stands at the beginning of the line."""
        return f"  ::{block.number}" if self._alone(block) else ""

    def _news(self, block: Block, printed: Printed) -> Iterator[RenderableType]:
        for n in range(printed.lines, len(block.lines)):
            until = block.before[n] if n < len(block.before) else block.left_out + len(block.parts)
            yield from self._parts(block, printed, until)
            yield from self._line(block, n, printed.last)
            printed.lines = n + 1
        yield from self._parts(block, printed, block.left_out + len(block.parts))
        card = self.desk.runs.get(block.run_id or "")
        if block.done and not printed.over:
            printed.over = True
            yield from self._over(block, printed, card)
        elif card is not None and card.state != printed.state:
            printed.state = card.state
            if card.state in RESTS:
                why = f": {harmless(str(card.held.get('message') or ''))}" if card.held else ""
                yield Text(f"[workflow] {harmless(card.name)} {RESTS[card.state]}{why}", "yellow")

    def _line(self, block: Block, n: int, last: str) -> Iterator[Text]:
        line = " ".join(harmless(block.lines[n]).split("\n" + INDENT))
        said = last.rstrip().rsplit("\n", 1)[-1].strip()
        line = line.replace(f"] ✓ {said} (", "] ✓ (") if said else line  # it was told just now
        if self.terminal and line.startswith("[gate] ") and not line.startswith("[gate] answered"):
            return  # the question has a card of its own
        text = Text(line, no_wrap=self.terminal, overflow="ellipsis")
        text.highlight_regex(r"^\[[^\]]+\] ✓", "green")
        text.highlight_regex(r"^\[[^\]]+\] ✗", "red")
        text.highlight_regex(r"^\[[^\]]+\]", "bold")
        if n == 0 and self.terminal:
            text.append(f"{self._reference(block) or ' '} {short_id(block.run_id or '')}", "dim")
        yield text

    def _parts(self, block: Block, printed: Printed, until: int) -> Iterator[RenderableType]:
        """What was said before something else happened."""
        for n, part in enumerate(block.parts, start=block.left_out):
            if n >= until or n in printed.parts:
                continue
            if part.key == LINE:
                pass
            elif part.kind == "log":
                yield from log(part, printed, n, block)
            elif part.done or block.done:
                yield from self._said(part)
                printed.last = part.text if part.kind == "text" else printed.last
            if part.done or block.done:
                printed.parts.add(n)

    def _said(self, part: Part) -> Iterator[RenderableType]:
        name, text = harmless(part.name), part.text.strip()
        first, _, rest = harmless(text).partition("\n")
        match part.kind:
            case "text" if not part.path:
                yield self._prose(text)
            case "text":
                yield Text(f"[{name}]", "bold")
                yield self._inner(self._prose(text))
            case "diff":
                yield Text(f"[{name}]", "bold")
                yield self._inner(change(text))
            case "tool" | "thought":
                more = f" … +{rest.count(chr(10)) + 1} lines" if rest and not self.details else ""
                sign = "⚙" if part.kind == "tool" else "✻"
                said = Text(f"[{name}] {sign} {first}{more}", "dim", no_wrap=True, overflow="ellipsis")
                yield said
                if rest and self.details:
                    yield self._inner(Text(rest, "dim"))

    def _inner(self, thing: RenderableType) -> RenderableType:
        """What a step says, with its further lines indented, so that none looks like an event line."""
        if isinstance(thing, Text) and not self.terminal:
            return Text(INDENT + indent_lines(thing.plain))
        return Padding(thing, (0, 0, 0, 2))

    def _over(self, block: Block, printed: Printed, card: RunCard | None) -> Iterator[RenderableType]:
        state = card.state if card is not None else "completed"
        symbol, style = ENDS.get(state, ("●", "yellow"))
        name = harmless(block.name)
        took = took_of(card)
        if state != "completed":
            why = f": {indent_lines(harmless(block.text))}" if block.text and block.text != state else ""
            yield Text(f"[workflow] {symbol} {name} {state}{took}{why}", style)
            return
        yield Text(f"[workflow] {symbol} {name} completed{took}{self._reference(block)}", style)
        last = next((part.text for part in reversed(block.parts) if part.kind in ("text", "log")), "")
        if block.text.strip() and block.text.strip() not in (printed.last.strip(), last.strip()):
            text, more = beginning(block.text) if self.terminal else (block.text, "")
            yield self._prose(text) if isinstance(block.value, str) else Text(harmless(text))
            if more:
                yield Text(more, "dim")


def log(part: Part, printed: Printed, n: int, block: Block) -> Iterator[Text]:
    """Output as it comes, line by line; the last line is held back, for it may be told again."""
    done, seen = part.done or block.done, printed.said.get(n, 0)
    new = part.text[seen:] if done else part.text[seen : part.text.rfind("\n", 0, -1) + 1]
    printed.said[n] = seen + len(new)
    told = block.lines[printed.lines :]
    for line in harmless(new).rstrip("\n").split("\n") if new.strip() else ():
        if not (done and not seen and "\n" not in new.strip() and any(line.strip() in each for each in told)):
            printed.last = line
            yield Text(f"[{harmless(part.name)}] │ {line}", "dim")


def typed(text: str, terminal: bool) -> Text:
    """What was entered, as it is shown again."""
    lines = harmless(text).split("\n")
    more = [f"… +{len(lines) - LINES} lines"] if len(lines) > LINES else []
    sign = "❯" if terminal else ">"
    return Text(f"{sign} ", "bold cyan").append("\n  ".join([*lines[:LINES], *more]), "bold")


def change_of(gate: GateTold) -> Text | None:
    """The change to a file that a gate asks about."""
    diff = diff_in((gate.action or {}).get("input"))
    return change(diff) if diff else None


def change(diff: str) -> Text:
    from nerve.commander.prose import coloured

    return coloured(diff)


def took_of(card: RunCard | None) -> str:
    if card is None or card.started_at is None or card.ended_at is None:
        return ""
    seconds = (card.ended_at - card.started_at).total_seconds()
    return f" ({' · '.join(part for part in (f'{seconds:.1f}s', spent(card.usage)) if part)})"
