"""The console interface of the controller: with a console, or with a renderer."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from rich.console import Console

from commander.scene import Scene, session_of
from nerve import GateNode, Graph, MockNode, Session, WorkflowContext
from nerve.api import Api
from nerve.client import Client
from nerve.commander import WorkflowController, WorkflowRenderer, workflow_controller


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with session_of() as session:
        yield Client(Api(session))


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with session_of() as new_session:
        yield new_session


def console() -> Console:
    return Console(file=io.StringIO(), width=100, highlight=False)


def console_text(at: Console) -> str:
    assert isinstance(at.file, io.StringIO)
    return at.file.getvalue()


def typing(*lines: str) -> Callable[[], Any]:
    """Return a reader that types these lines, then blocks."""
    left = list(lines)

    async def read() -> str:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0) + "\n"

    return read


@pytest.mark.requirement("S0-67")
def test_the_controller_can_be_imported_from_its_module() -> None:
    assert workflow_controller.WorkflowController is WorkflowController


@pytest.mark.requirement("S0-64")
@pytest.mark.parametrize("named", [False, True])
async def test_a_run_is_executed_on_a_console(client: Client, named: bool) -> None:
    at = console()
    controller = WorkflowController(client, console=at) if named else WorkflowController(client, at)
    await controller.execute("default", "hello", "you")
    text = console_text(at)
    run_id = next(iter(controller.state.runs))
    assert f"Started workflow run: {run_id}" in text
    assert "Workflow completed" in text
    assert "Result: {'said': 'hello you', 'params': {}}" in text
    await controller.close()


@pytest.mark.requirement("S0-64")
@pytest.mark.requirement("D0-12")
async def test_the_start_user_events_and_outputs_are_shown_in_order(session: Session) -> None:
    MockNode("critic", session, ["Found 3 issues"])

    @session.workflow
    async def code_review(ctx: WorkflowContext) -> str:
        review = await ctx.run("critic", ctx.input)
        ctx.emit("review_complete", {"review": review["output"]})
        await ctx.gate("Accept?")
        return "accepted"

    controller = WorkflowController(Client(Api(session)), at := console())
    controller.read_line = typing("accept")
    await controller.execute("default", "code_review", "code")
    text = console_text(at)
    shown = [
        "Started workflow run: ",
        "[critic] ✓ critic",
        "Found 3 issues",
        "[review_complete] Found 3 issues",
    ]
    places = [text.find(each) for each in [*shown, "Accept?", "Workflow completed", "Result: accepted"]]
    assert places == sorted(places)
    assert -1 not in places
    assert text.count("Started workflow run: ") == 1
    await controller.close()


@pytest.mark.requirement("S0-64")
@pytest.mark.parametrize(
    ("workflow", "expected"), [("broken", "Workflow failed: no luck"), ("zzz", "Error: ")]
)
async def test_errors_are_shown_on_the_console(client: Client, workflow: str, expected: str) -> None:
    controller = WorkflowController(client, at := console())
    await controller.execute("default", workflow, "")
    assert expected in console_text(at)
    await controller.close()


@pytest.mark.requirement("S0-65")
@pytest.mark.requirement("D0-12")
async def test_a_gate_is_asked_on_the_console_until_the_answer_is_valid(client: Client) -> None:
    controller = WorkflowController(client, at := console())
    controller.read_line = typing("perhaps", "2")
    await controller.execute("default", "ask", None)
    text = console_text(at)
    assert "Go on?" in text
    assert "1 yes" in text
    assert "2 no" in text
    assert "Error: Invalid choice 'perhaps'. Must be one of: ['yes', 'no']." in text
    assert "Result: you said no" in text
    await controller.close()


@pytest.mark.requirement("S1-23")
@pytest.mark.parametrize(("line", "answer"), [("2", "revise"), ("3", "3"), ("not yet", "not yet")])
async def test_an_option_can_be_chosen_by_number(session: Session, line: str, answer: str) -> None:
    graph = Graph(id="plan", session=session)
    options = ["approve", "revise"]
    graph.add_step(GateNode(id="ok", session=session, prompt="Approve?", options=options), "ok")
    session.register_workflow(graph)
    controller = WorkflowController(Client(Api(session)), at := console())
    controller.read_line = typing(line)
    await controller.execute("default", "plan", None)
    assert f"Result: {answer}\n" in console_text(at)
    await controller.close()


@pytest.mark.requirement("D0-12")
async def test_a_gate_answered_elsewhere_is_no_longer_asked(client: Client) -> None:
    controller = WorkflowController(client, at := console())
    controller.read_line = typing()
    executing = asyncio.create_task(controller.execute("default", "ask", None))
    await controller.open()
    await Scene(controller).until(lambda: controller.state.gates and console_text(at).endswith("> "))
    await client.answer(gate=controller.state.gates[0].gate_id, answer="yes")
    await executing
    assert "it was answered elsewhere" in console_text(at)
    assert console_text(at).count("Go on?") == 1
    await controller.close()


@pytest.mark.requirement("S1-43")
@pytest.mark.requirement("D1-2")
@pytest.mark.requirement("S1-45")
async def test_start_workflow_from_commander(client: Client) -> None:
    renderer = WorkflowRenderer(console())
    controller = WorkflowController(client, renderer)
    assert (controller.active_run_id, controller.waiting_for_gate) == (None, None)
    await controller.start("ask", "", {})
    at = Scene(controller)
    await at.until(lambda: controller.waiting_for_gate)
    assert controller.active_run_id == at.runs[0].run_id
    assert "Waiting for Input" in console_text(renderer.console)
    await controller.send_gate_input("perhaps")
    assert controller.waiting_for_gate is not None
    assert "Invalid choice" in console_text(renderer.console)
    await controller.send_gate_input("1")
    await at.ended()
    assert (controller.active_run_id, controller.waiting_for_gate) == (None, None)
    assert "✓ Completed in" in console_text(renderer.console)
    await controller.close()


@pytest.mark.requirement("S1-43")
async def test_the_focused_run_is_paused_and_stopped(client: Client) -> None:
    controller = WorkflowController(client, WorkflowRenderer(at := console()))
    await controller.pause()
    await controller.stop()
    await controller.start("ask")
    scene = Scene(controller)
    await scene.until(lambda: controller.waiting_for_gate)
    card = controller.state.focused_run
    assert card is not None
    await controller.pause()
    await scene.until(lambda: card.state == "paused")
    await controller.stop()
    await scene.until(lambda: card.has_ended)
    assert (card.state, controller.active_run_id) == ("cancelled", None)
    assert "stopped in the Commander" in console_text(at)
    await controller.send_gate_input("yes")
    await controller.close()


class Told:
    """A renderer that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("show_", "update_", "hide_")):
            raise AttributeError(name)
        return lambda *arguments, **options: self.calls.append((name, arguments))


@pytest.mark.requirement("D1-3")
async def test_the_renderer_receives_all_events_from_the_first(client: Client) -> None:
    controller = WorkflowController(client, renderer := Told())
    await controller.start("ask")
    at = Scene(controller)
    await at.until(lambda: controller.waiting_for_gate)
    await controller.send_gate_input("yes")
    await at.ended()
    names = [name for name, _ in renderer.calls]
    assert names == ["show_started", "show_gate_prompt", "hide_gate_prompt", "show_completed"]
    assert renderer.calls[0][1][0]["workflow_id"] == "ask"
    await controller.close()


def test_the_package_exports_resolve() -> None:
    import nerve.commander

    assert set(nerve.commander.__all__) <= set(dir(nerve.commander))
    for name in nerve.commander.__all__:
        assert getattr(nerve.commander, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Controller'"):
        _ = nerve.commander.Controller
