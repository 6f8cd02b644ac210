"""Prints the conversation line by line; printed lines never change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from nerve.commander.core.blocks import LINE_PART_KEY, Block, BlockPart, ConversationChanges
from nerve.commander.core.name_resolution import gate_run_label
from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.lazy_dataclass import dataclass
from nerve.ui.diffs import tool_input_diff
from nerve.ui.event_lines import format_gate_line
from nerve.ui.formatting import format_duration_between, format_usage, short_id
from nerve.ui.gate_names import APPROVE_WORDS, REJECT_WORDS, gate_display_name, gate_preview
from nerve.ui.json_forms import form_field_lines, format_example_answer
from nerve.ui.sanitize import INDENT, indent_lines, sanitize_text, truncate_for_screen
from nerve.ui.tree_panel import render_gate_panel

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from nerve.api.models import GateResponse

MAX_INPUT_LINES = 8
"""Maximum lines of an input that are echoed."""
END_SYMBOLS = {"completed": ("✓", "green"), "failed": ("✗", "red"), "cancelled": ("✗", "yellow")}
REST_LABELS = {"paused": "⏸ paused", "held": "⏸ held"}


@dataclass(slots=True)
class PrintedRun:
    """Progress of printing one run."""

    line_count: int = 0
    part_numbers: set[int] = field(default_factory=set)
    opened_parts: set[int] = field(default_factory=set)
    """The calls of tools whose first line is printed, and their output is not."""
    printed_chars: dict[int, int] = field(default_factory=dict)
    """Printed characters of parts that still grow, by part number."""
    is_over: bool = False
    state: str = ""
    last_text: str = ""
    """The last printed message or output line."""


class ConversationPrinter:
    """Prints the changes of the conversation."""

    def __init__(self, state: CommanderState, console: Console) -> None:
        self.state, self.console = state, console
        self.shows_details = False
        """Whether tool output and thoughts are shown in full."""
        self._printed_blocks = 0
        self._printed_runs: dict[int, PrintedRun] = {}
        self._shown_gate_id: str | None = None
        """Id of the gate that was shown last."""

    @property
    def is_interactive(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def print_changes(self) -> ConversationChanges:
        """Print and return the changes since the last call."""
        changes = self.state.changes.drain()
        run_blocks = (self.state.block_of_run(run) for run in changes.runs)
        numbers = changes.blocks | {
            block.position
            for block in run_blocks
            if block is not None and block.position <= self._printed_blocks
        }
        blocks = [block for number in numbers if (block := self.state.block_at(number)) is not None]
        for block in sorted(blocks, key=self._print_order):
            if block.kind == "run":
                self._print_run(block)
            elif block.position > self._printed_blocks:
                self._print_renderables(*self._render_block(block))
        self._printed_blocks = max([self._printed_blocks, *numbers])
        if "opened" in changes.flags and (gate := self.state.find_gate(self.state.open_gate_id)) is not None:
            self._print_renderables(*self._render_open_gate(gate))
        return changes

    def _print_order(self, block: Block) -> tuple[int, int]:
        """Sort key: new blocks (inputs) first, then updates of earlier ones, then gates."""
        new = block.position > self._printed_blocks
        return (2 if block.kind == "gate" else 0 if new else 1, block.position)

    def print_notice(self, *renderables: RenderableType) -> None:
        """Print text that does not belong to the conversation."""
        self._print_renderables(*renderables)

    def _print_renderables(self, *renderables: RenderableType) -> None:
        for renderable in renderables:
            is_soft_wrapped = isinstance(renderable, Text) and not self.console.is_terminal
            self.console.print(renderable, soft_wrap=is_soft_wrapped)

    # -- blocks ------------------------------------------------------------------------------------------

    def _render_block(self, block: Block) -> Iterator[RenderableType]:
        match block.kind:
            case "input":
                yield render_typed_input(block.text, self.is_interactive)
            case "text" if block.name.startswith("/"):
                yield self._render_prose(block.text)
            case "text":
                yield Text(f"[{sanitize_text(block.name) or 'answer'}] ::{block.number}", "dim")
                yield self._render_prose(block.text)
            case "error":
                self._shown_gate_id = (
                    self._shown_gate_id if self.is_interactive else None
                )  # after an error, print an open gate again
                yield Text(f"✗ {indent_lines(sanitize_text(block.text))}", "red")
            case "gate" if block.gate is not None:
                yield from self._render_gate(block.gate, block.name)
            case _:
                yield Text(indent_lines(sanitize_text(block.text)), "dim")

    def _render_prose(self, text: str) -> RenderableType:
        """Render Markdown; without a terminal, return the plain source."""
        if not self.is_interactive:
            return Text(sanitize_text(text.strip("\n")))
        from nerve.ui.markdown import render_markdown  # slow import, not needed for the first prompt

        return render_markdown(text)

    def _render_gate(self, gate: GateResponse, name: str) -> Iterator[RenderableType]:
        """Render a gate with instructions; in line mode, its question is printed among the run's lines."""
        ids = [open_gate.gate_id for open_gate in self.state.gates]
        number = ids.index(gate.gate_id) + 1 if gate.gate_id in ids else gate.gate_id
        answers = {choice.casefold() for choice in gate.choices or gate.options or []}
        shortcuts = (
            ", /approve, /reject"
            if answers.intersection(APPROVE_WORDS) and answers.intersection(REJECT_WORDS)
            else ""
        )
        instruction = (
            "Enter on the empty line opens it" if self.is_interactive else f"/gates {number} opens it"
        )
        if self.state.open_gate_id == gate.gate_id:
            instruction = "The next line answers it"
        answer = sanitize_text(format_example_answer(gate.form)) if gate.form is not None else "…"
        yield from self._render_gate_card(
            gate, name, f"{instruction}, or /answer {number} {answer}{shortcuts}"
        )

    def _render_open_gate(self, gate: GateResponse) -> Iterator[RenderableType]:
        """Render the gate that the next line answers, unless it was just shown."""
        if gate.gate_id == self._shown_gate_id:
            return
        if not self.is_interactive:
            yield Text(indent_lines(sanitize_text(format_gate_line(gate.model_dump()))))
        answer = (
            f"Type JSON, such as {sanitize_text(format_example_answer(gate.form))}"
            if gate.form is not None
            else ""
        )
        yield from self._render_gate_card(gate, gate_display_name(gate), answer)

    def _render_gate_card(self, gate: GateResponse, name: str, hint: str) -> Iterator[RenderableType]:
        self._shown_gate_id = gate.gate_id
        if self.is_interactive:
            title = f"{name} of {gate_run_label(self.state, gate)}"
            diff = tool_input_diff((gate.action or {}).get("input"))
            more = render_plain_diff(diff) if diff else None
            yield render_gate_panel(gate.model_dump(), title, hint=hint, more=more)
            return
        for line in gate_preview(gate.input_preview).splitlines():
            yield Text(f"  {sanitize_text(line)}")
        for n, choice in enumerate(gate.choices or gate.options or [], start=1):
            yield Text(f"  {n} {indent_lines(sanitize_text(choice))}")
        for line in form_field_lines(gate.form or {}):
            yield Text(f"  {line}")
        if hint:
            yield Text(f"  ({hint})")

    # -- runs --------------------------------------------------------------------------------------------

    def _print_run(self, block: Block) -> None:
        printed = self._printed_runs.setdefault(block.position, PrintedRun())
        for renderable in self._render_run_changes(block, printed):
            if isinstance(renderable, Text) and not self._is_only_run(block):
                renderable = Text(f"::{block.number} ", "dim") + renderable
            self._print_renderables(renderable)

    def _is_only_run(self, block: Block) -> bool:
        """Return whether no other run is active."""
        return all(other is block or other.done for other in self.state.blocks if other.kind == "run")

    def _reference_label(self, block: Block) -> str:
        """Return the reference of the run, unless each line already starts with it."""
        return f"  ::{block.number}" if self._is_only_run(block) else ""

    def _render_run_changes(self, block: Block, printed: PrintedRun) -> Iterator[RenderableType]:
        for n in range(printed.line_count, len(block.lines)):
            until = (
                block.parts_before_line[n]
                if n < len(block.parts_before_line)
                else block.dropped_parts + len(block.parts)
            )
            yield from self._render_parts(block, printed, until)
            yield from self._render_event_line(block, n, printed.last_text)
            printed.line_count = n + 1
        yield from self._render_parts(block, printed, block.dropped_parts + len(block.parts))
        card = self.state.runs.get(block.run_id or "")
        if block.done and not printed.is_over:
            printed.is_over = True
            yield from self._render_run_end(block, printed, card)
        elif card is not None and card.state != printed.state:
            printed.state = card.state
            if card.state in REST_LABELS:
                reason = f": {sanitize_text(str(card.held.get('message') or ''))}" if card.held else ""
                yield Text(
                    f"[workflow] {sanitize_text(card.name)} {REST_LABELS[card.state]}{reason}", "yellow"
                )

    def _render_event_line(self, block: Block, n: int, last: str) -> Iterator[Text]:
        line = " ".join(sanitize_text(block.lines[n]).split("\n" + INDENT))
        last_line = last.rstrip().rsplit("\n", 1)[-1].strip()
        line = (
            line.replace(f"] ✓ {last_line} (", "] ✓ (") if last_line else line
        )  # avoid repeating the last output
        if self.is_interactive and line.startswith("[gate] ") and not line.startswith("[gate] answered"):
            return  # the gate card shows the question
        text = Text(line, no_wrap=self.is_interactive, overflow="ellipsis")
        text.highlight_regex(r"^\[[^\]]+\] ✓", "green")
        text.highlight_regex(r"^\[[^\]]+\] ✗", "red")
        text.highlight_regex(r"^\[[^\]]+\]", "bold")
        if n == 0 and self.is_interactive:
            text.append(f"{self._reference_label(block) or ' '} {short_id(block.run_id or '')}", "dim")
        yield text

    def _render_parts(self, block: Block, printed: PrintedRun, until: int) -> Iterator[RenderableType]:
        """Render the parts up to number `until` that were not printed yet."""
        for n, part in enumerate(block.parts, start=block.dropped_parts):
            if n >= until or n in printed.part_numbers:
                continue
            if part.key == LINE_PART_KEY:
                pass
            elif part.kind == "log":
                yield from render_log_lines(part, printed, n, block)
            elif part.kind == "tool" and not part.done and not block.done:
                if n not in printed.opened_parts:
                    printed.opened_parts.add(n)
                    yield self._render_header(part, "")
            elif part.done or block.done:
                yield from self._render_part(part, is_opened=n in printed.opened_parts)
                printed.last_text = part.text if part.kind == "text" else printed.last_text
            if part.done or block.done:
                printed.part_numbers.add(n)

    def _render_header(self, part: BlockPart, more: str) -> Text:
        """Render the first line of a call of a tool, or of a thought."""
        first = sanitize_text(part.text.strip()).partition("\n")[0]
        symbol = "⚙" if part.kind == "tool" else "✻"
        line = f"[{sanitize_text(part.name)}] {symbol} {first}{more}"
        return Text(line, "dim", no_wrap=True, overflow="ellipsis")

    def _render_part(self, part: BlockPart, *, is_opened: bool = False) -> Iterator[RenderableType]:
        """Render a part; the first line of one that is opened is printed."""
        name, text = sanitize_text(part.name), part.text.strip()
        first, _, rest = sanitize_text(text).partition("\n")
        match part.kind:
            case "text" if not part.path:
                yield self._render_prose(text)
            case "text":
                yield Text(f"[{name}]", "bold")
                yield self._indent_renderable(self._render_prose(text))
            case "diff":
                yield Text(f"[{name}]", "bold")
                yield self._indent_renderable(render_plain_diff(text))
            case "tool" | "thought":
                more = f" … +{rest.count(chr(10)) + 1} lines" if rest and not self.shows_details else ""
                if not is_opened or more:
                    yield self._render_header(part, more)
                if rest and self.shows_details:
                    yield self._indent_renderable(Text(rest, "dim"))
            case "traceback":
                yield Text(f"[{name}] {first}", "red", no_wrap=self.is_interactive, overflow="ellipsis")
                yield self._indent_renderable(Text(rest, "dim"))

    def _indent_renderable(self, renderable: RenderableType) -> RenderableType:
        """Indent the output of a step, so that no line looks like an event line."""
        if isinstance(renderable, Text) and not self.is_interactive:
            return Text(INDENT + indent_lines(renderable.plain))
        return Padding(renderable, (0, 0, 0, 2))

    def _render_run_end(
        self, block: Block, printed: PrintedRun, card: RunCard | None
    ) -> Iterator[RenderableType]:
        state = card.state if card is not None else "completed"
        symbol, style = END_SYMBOLS.get(state, ("●", "yellow"))
        name = sanitize_text(block.name)
        totals = format_run_totals(card)
        if state != "completed":
            has_reason = block.text and block.text != state
            reason = f": {indent_lines(sanitize_text(block.text))}" if has_reason else ""
            yield Text(f"[workflow] {symbol} {name} {state}{totals}{reason}", style)
            return
        yield Text(f"[workflow] {symbol} {name} completed{totals}{self._reference_label(block)}", style)
        last = next((part.text for part in reversed(block.parts) if part.kind in ("text", "log")), "")
        if block.text.strip() and block.text.strip() not in (printed.last_text.strip(), last.strip()):
            text, more = truncate_for_screen(block.text) if self.is_interactive else (block.text, "")
            yield self._render_prose(text) if isinstance(block.value, str) else Text(sanitize_text(text))
            if more:
                yield Text(more, "dim")


def render_log_lines(part: BlockPart, printed: PrintedRun, n: int, block: Block) -> Iterator[Text]:
    """Render complete output lines; the last line waits because the step's event line may repeat it."""
    done, printed_chars = part.done or block.done, printed.printed_chars.get(n, 0)
    new = part.text[printed_chars:] if done else part.text[printed_chars : part.text.rfind("\n", 0, -1) + 1]
    printed.printed_chars[n] = printed_chars + len(new)
    upcoming_lines = block.lines[printed.line_count :]
    for line in sanitize_text(new).rstrip("\n").split("\n") if new.strip() else ():
        if not (
            done
            and not printed_chars
            and "\n" not in new.strip()
            and any(line.strip() in upcoming_line for upcoming_line in upcoming_lines)
        ):
            printed.last_text = line
            yield Text(f"[{sanitize_text(part.name)}] │ {line}", "dim")


def render_typed_input(text: str, is_interactive: bool) -> Text:
    """Render the echo of an input."""
    lines = sanitize_text(text).split("\n")
    more = [f"… +{len(lines) - MAX_INPUT_LINES} lines"] if len(lines) > MAX_INPUT_LINES else []
    sign = "❯" if is_interactive else ">"
    return Text(f"{sign} ", "bold cyan").append("\n  ".join([*lines[:MAX_INPUT_LINES], *more]), "bold")


def render_plain_diff(diff: str) -> Text:
    from nerve.ui.markdown import render_diff

    return render_diff(diff)


def format_run_totals(card: RunCard | None) -> str:
    if card is None or card.started_at is None or card.ended_at is None:
        return ""
    parts = format_duration_between(card.started_at, card.ended_at, card.ended_at), format_usage(card.usage)
    return f" ({' · '.join(part for part in parts if part)})"
