"""The documented names can be imported from the documented modules."""

from importlib import import_module

import pytest

from commander.scene import scene

CONTROL_NODES = (
    "BranchNode",
    "GateNode",
    "LoopNode",
    "MapNode",
    "ParallelNode",
    "ReduceNode",
    "SwitchNode",
    "WhileNode",
)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("nerve.client", ("Client",)),
        ("nerve.core.nodes", ("ExecutionContext", "FunctionNode", "Graph", "Node", *CONTROL_NODES)),
        ("nerve.core.nodes.control", CONTROL_NODES),
        ("nerve.core.session", ("Session",)),
        ("nerve.core.workflow", ("Workflow", "WorkflowContext", "WorkflowRun", "WorkflowState")),
        ("nerve.core.workflow.context", ("WorkflowContext",)),
        ("nerve.core.workflow.events", ("WorkflowEvent", "WorkflowEventType")),
        ("nerve.core.workflow.run", ("WorkflowRun",)),
        ("nerve.core.workflow.workflow", ("Workflow", "WorkflowState")),
        ("nerve.server.protocol", ("Command", "CommandType")),
        ("nerve.server.handlers.workflow_handler", ("WorkflowHandler",)),
        (
            "nerve.commander",
            ("InputType", "ParsedInput", "WorkflowController", "WorkflowRenderer", "parse_input"),
        ),
        ("nerve.commander.parser", ("InputType", "ParsedInput", "parse_input")),
        ("nerve.commander.input_handler", ("InputHandler",)),
        ("nerve.commander.workflow_controller", ("WorkflowController",)),
        ("nerve.commander.workflow_renderer", ("WorkflowRenderer",)),
    ],
)
def test_a_documented_module_exports_its_names(module: str, names: tuple[str, ...]) -> None:
    imported = import_module(module)
    for name in names:
        assert getattr(imported, name).__name__ == name


def test_the_session_is_the_same_class_under_each_name() -> None:
    from nerve import Session
    from nerve.core.session import Session as CoreSession
    from nerve.session import Session as DefinedSession

    assert Session is CoreSession is DefinedSession


@pytest.mark.parametrize("module", ["nerve.core.session", "nerve.commander"])
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match="Sesion"):
        getattr(import_module(module), "Sesion")  # noqa: B009


@pytest.mark.requirement("S1-40")
async def test_the_input_handler_answers_an_open_gate_or_dispatches_by_prefix() -> None:
    from nerve.commander.input_handler import InputHandler

    async with scene() as opened:
        handler = InputHandler(opened.controller)
        await handler.handle("  %ask  ")
        await opened.until(lambda: opened.state.gates)
        await handler.handle("/gates 1")
        await handler.handle("1")
        await opened.ended()
        assert opened.runs[0].value == "you said yes"
