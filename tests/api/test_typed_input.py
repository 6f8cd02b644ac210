"""The input of a typed workflow may be typed as text; a repeated start compares it as it is stored."""

from dataclasses import dataclass

from api.support import refusal
from nerve import WorkflowContext
from nerve.api import Api
from nerve.api.commands import run_when_idle


@dataclass
class Order:
    item: str
    count: int = 1


def register(api: Api) -> None:
    @api.session.workflow
    async def double(ctx: WorkflowContext, number: int, times: int = 2) -> int:
        return number * times

    @api.session.workflow
    async def buy(ctx: WorkflowContext, order: Order) -> str:
        return f"{order.count} {order.item}"

    @api.session.workflow
    async def say(ctx: WorkflowContext, text: str) -> str:
        return text


async def test_a_text_is_read_as_json_where_only_that_is_of_the_declared_type(api: Api) -> None:
    register(api)
    run = await api.start(workflow="double", input="3", params={"times": "5"}, wait=True)
    assert run.result == 15
    assert (await api.start(workflow="buy", input='{"item": "tea"}', wait=True)).result == "1 tea"
    assert (await api.start(workflow="say", input="3", wait=True)).result == "3"
    error = await refusal(api.start(workflow="double", input="three"))
    assert (
        error.message
        == "Parameter 'number' of workflow 'double' must be a valid integer, got 'three' of type str"
    )


async def test_a_repeated_start_of_a_typed_workflow_returns_the_same_run(api: Api) -> None:
    register(api)
    first = await api.start(workflow="buy", input={"item": "tea"}, key="k")
    await run_when_idle(api.session, first)
    assert (await api.start(workflow="buy", input='{"item": "tea"}', key="k")).run_id == first.run_id
    assert (await refusal(api.start(workflow="buy", input={"item": "milk"}, key="k"))).code == "conflict"


async def test_the_description_of_a_workflow_has_the_schemas_of_its_signature(api: Api) -> None:
    register(api)
    workflow = await api.workflow(workflow="buy")
    assert workflow.input_schema is not None
    assert workflow.input_schema["properties"] == {
        "item": {"type": "string"},
        "count": {"type": "integer", "default": 1},
    }
    assert workflow.output_schema == {"type": "string"}
    assert [input.name for input in workflow.inputs] == ["item", "count"]
    workflow = await api.workflow(workflow="double")
    assert workflow.input_schema == {"type": "integer"}
    assert (workflow.params_schema or {})["properties"] == {"times": {"type": "integer", "default": 2}}


async def test_the_fields_of_an_input_may_be_given_as_parameters(api: Api) -> None:
    register(api)
    run = await api.start(workflow="buy", params={"item": "tea", "count": 2}, wait=True)
    assert run.result == "2 tea"
    assert (await api.start(workflow="double", params={"number": 4}, wait=True)).result == 8
    error = await refusal(api.start(workflow="double", input=3, params={"number": 4}))
    assert "is given twice: as a value, and as 'number'" in error.message
    error = await refusal(api.start(workflow="buy", params={"item": "tea", "amount": 2}))
    assert "Unknown parameter 'amount' of workflow 'buy'" in error.message


async def test_an_annotation_that_cannot_be_resolved_is_the_error_of_a_start(api: Api) -> None:
    @api.session.workflow
    async def unresolved(ctx: WorkflowContext, order: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert (await api.workflow(workflow="unresolved")).inputs == []
    assert "cannot be resolved" in (await refusal(api.start(workflow="unresolved", input=1))).message


async def test_an_unknown_field_of_the_input_is_refused_before_anything_is_recorded(api: Api) -> None:
    register(api)
    error = await refusal(api.start(workflow="buy", input={"item": "tea", "cuont": 2}))
    assert error.message == "Parameter 'order' of workflow 'buy' has no field 'cuont'. Did you mean 'count'?"
    text = await refusal(api.start(workflow="buy", input='{"itme": "tea"}'))
    assert text.message == "Parameter 'order' of workflow 'buy' has no field 'itme'. Did you mean 'item'?"
    assert (await api.runs()).runs == []
