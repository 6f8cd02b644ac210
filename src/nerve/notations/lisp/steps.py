"""Compile steps, the forms of a body that become one node each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nerve.notations.lisp.compile_context import Env, LispProgram, make_node
from nerve.notations.lisp.conditions import compile_condition, compile_record, put_signal_key
from nerve.notations.lisp.expressions import (
    compile_expression,
    compile_map_values,
    compile_piece,
    compile_text_value,
    compile_value,
    require_role,
)
from nerve.notations.lisp.form_parsing import (
    FormParts,
    preview_form,
    require_form_name,
    require_form_seconds,
    require_items,
    require_names,
    require_string,
    split_form,
)
from nerve.notations.lisp.full_form import literal_map
from nerve.notations.lisp.templates import (
    Hole,
    Piece,
    TemplateMismatch,
    escape_prompt_variables,
    escape_template,
    fill_template,
    render_hole,
)
from nerve.text.sexpr import Form, ListForm, MapForm, String, Symbol
from nerve.text.source import LocatedList, LocatedMap

StepCompiler = Callable[[LispProgram, ListForm, Env], LocatedMap]


def fill_message_template(program: LispProgram, form: Form, arguments: Sequence[Piece]) -> str:
    """Return a `~a` template filled with its arguments."""
    template_text = require_string(program.diagnostics, form, "a template")
    try:
        return fill_template(template_text, arguments)
    except TemplateMismatch as mismatch:
        program.diagnostics.fail(form, mismatch.message, mismatch.fix)


def compile_inline_text(program: LispProgram, form_parts: FormParts, env: Env) -> str:
    """Return a template form filled with the arguments that follow it."""
    arguments = [compile_piece(program, item, env) for item in form_parts.rest[1:]]
    return fill_message_template(program, form_parts.rest[0], arguments)


def compile_send_prompt(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, ["agent", "template", "args", "tag", "limits"], most=0)
    agent, text = form_parts.option("agent"), form_parts.option("template")
    if agent is None or text is None:
        missing = ":agent" if agent is None else ":template"
        program.diagnostics.fail(
            form, f"{missing} of (send-prompt …) is missing", 'Write :agent ROLE :template "…".'
        )
    name = require_role(program, agent)
    args_form = form_parts.option("args")
    args = (
        compile_prompt_args(program, args_form, env)
        if args_form is not None
        else LocatedMap((), form.position)
    )
    prompt_node = make_node("prompt", form.position, role=name)
    prompt_text = fill_message_template(program, text, [Hole(f"args.{key}") for key in args])
    prompt_node.set_at("text", escape_prompt_variables(prompt_text), text.position)
    if args:
        prompt_node.set_at("args", args, args.position)
    put_recipient(program, prompt_node, name, agent)
    put_limits(program, prompt_node, form_parts)
    put_tag(program, prompt_node, form_parts.option("tag"))
    return prompt_node.set_at("detach", True, form.position)


def compile_prompt_args(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    args = LocatedMap((), form.position)
    for number, item in enumerate(require_items(program.diagnostics, form, "a list of arguments"), 1):
        args.set_at(f"a{number}", compile_value(program, item, env), item.position)
    return args


def put_recipient(program: LispProgram, prompt_node: LocatedMap, name: str, form: Form) -> None:
    """Set the agent, thread and options of a prompt from its role."""
    role = program.roles.get(name)
    if role is None:
        return
    prompt_node.set_at("thread", role.thread, form.position)
    if role.agent is not None:
        prompt_node.set_at("agent", role.agent, form.position)
    if role.model is not None:
        prompt_node.set_at("model", role.model, form.position)
    for key, option in role.prompt_options.items():
        prompt_node.set_at(key, option, role.prompt_options.value_positions[key])


def put_limits(program: LispProgram, step: LocatedMap, form_parts: FormParts) -> LocatedMap:
    """Set the limits of a step."""
    if (limits_form := form_parts.option("limits")) is not None:
        step.set_at(
            "limits",
            literal_map(program.diagnostics, require_map(program, limits_form)),
            limits_form.position,
        )
    return step


def put_tag(program: LispProgram, prompt_node: LocatedMap, tag: Form | None) -> None:
    program.prompt_count += 1
    if tag is None:
        program.untagged_prompts.append((program.prompt_count, prompt_node))
    else:
        prompt_node.set_at("tag", require_form_name(program.diagnostics, tag, "a tag"), tag.position)


def compile_wait(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [condition_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    condition_map = compile_condition(program, condition_form, env)
    return make_node(
        "wait",
        form.position,
        any=LocatedList((), form.position).append_at(condition_map, condition_form.position),
    )


def compile_assert(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [fact_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    return compile_fact_node(program, form, fact_form, env, ["key", "scope", "value"])


def compile_retract(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [fact_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    return compile_fact_node(program, form, fact_form, env, ["key", "scope"])


def compile_fact_node(
    program: LispProgram, form: ListForm, fact_form: Form, env: Env, options: list[str]
) -> LocatedMap:
    """Compile an assert or retract of a fact or a signal."""
    fact_node = make_node(form.head, form.position)
    if not isinstance(fact_form, ListForm) or fact_form.head != "signal":
        return fact_node.set_at(
            "fact", compile_record(program, fact_form, env, form.head == "retract"), fact_form.position
        )
    form_parts = split_form(program.diagnostics, fact_form, options, least=1, most=1)
    label = require_form_name(program.diagnostics, form_parts.rest[0], "the label of a signal")
    fact_node.set_at("signal", escape_template(label), form_parts.rest[0].position)
    put_signal_key(program, fact_node, form_parts.options, env)
    if (value_form := form_parts.option("value")) is not None:
        fact_node.set_at("value", compile_value(program, value_form, env), value_form.position)
    return fact_node


def compile_log(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, least=1)
    data = LocatedMap((), form.position).set_at(
        "message", compile_inline_text(program, form_parts, env), form_parts.rest[0].position
    )
    return make_node("emit", form.position, event="log", data=data)


def compile_result(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile `(result EXPR)`, the output of a body."""
    [value_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    return compile_transform(program, value_form, env)


def compile_goto(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [state_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    state = require_form_name(program.diagnostics, state_form, "the name of a state")
    if state not in program.states:
        program.diagnostics.add_unknown_name(state_form, "state", state, sorted(program.states))
    return make_node("goto", form.position).set_at("state", state, state_form.position)


def compile_terminal(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile `(terminal)` inside another form: the machine ends there."""
    split_form(program.diagnostics, form, most=0)
    return make_node("goto", form.position)


def compile_gate(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, ["choices", "reject", "default", "timeout"], least=1)
    gate_node = make_node("gate", form.position).set_at(
        "prompt", compile_inline_text(program, form_parts, env), form_parts.rest[0].position
    )
    for key in ("choices", "reject"):
        if (option := form_parts.option(key)) is not None:
            gate_node.set_at(key, compile_answers(program, option), option.position)
    if (option := form_parts.option("default")) is not None:
        gate_node.set_at(
            "default", require_form_name(program.diagnostics, option, "an answer"), option.position
        )
    if (option := form_parts.option("timeout")) is not None:
        gate_node.set_at("timeout", require_form_seconds(program.diagnostics, option), option.position)
    return gate_node


def compile_answers(program: LispProgram, form: Form) -> LocatedList:
    answers = LocatedList((), form.position)
    for name, item in require_names(program.diagnostics, form, "answers"):
        answers.append_at(name, item.position)
    return answers


def compile_bash(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, ["env", "input"], least=1, most=1)
    [command] = form_parts.rest
    text = require_string(program.diagnostics, command, "a command")
    bash_node = make_node("bash", form.position).set_at("command", escape_template(text), command.position)
    if (env_form := form_parts.option("env")) is not None:
        bash_node.set_at("env", compile_environment(program, env_form, env), env_form.position)
    return put_input(program, bash_node, form_parts, env)


def compile_environment(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    variables = LocatedMap((), form.position)
    for key, item in require_map(program, form).items:
        name = key.value if isinstance(key, String) else key.name
        variables.set_at(name, compile_text_value(program, item, env), item.position)
    return variables


def require_map(program: LispProgram, form: Form) -> MapForm:
    if not isinstance(form, MapForm):
        program.diagnostics.fail(
            form, f"Expected a map, found {preview_form(form)}", "Write {:name value …}."
        )
    return form


def put_input(program: LispProgram, step: LocatedMap, form_parts: FormParts, env: Env) -> LocatedMap:
    input_form = form_parts.option("input")
    return (
        step
        if input_form is None
        else step.set_at("input", compile_value(program, input_form, env), input_form.position)
    )


def compile_call_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, ["input", "limits"], least=1, most=1)
    target = require_form_name(program.diagnostics, form_parts.rest[0], "the name of a node")
    call_node = make_node("call", form.position).set_at("target", target, form_parts.rest[0].position)
    return put_input(program, put_limits(program, call_node, form_parts), form_parts, env)


def compile_run_workflow(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, ["input", "params", "limits"], least=1, most=1)
    target = require_form_name(program.diagnostics, form_parts.rest[0], "the name of a workflow")
    workflow_node = make_node("workflow", form.position).set_at(
        "workflow", target, form_parts.rest[0].position
    )
    if (params_form := form_parts.option("params")) is not None:
        params = compile_map_values(
            program, require_map(program, params_form).items, env, LocatedMap((), params_form.position)
        )
        workflow_node.set_at("params", params, params_form.position)
    return put_input(program, put_limits(program, workflow_node, form_parts), form_parts, env)


def compile_spec_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile `(node {:kind …})`, a literal node of the spec with names and calls filled in."""
    [map_form] = split_form(program.diagnostics, form, least=1, most=1).rest

    def resolve(form: Form) -> str | None:
        is_computed = isinstance(form, ListForm) or (isinstance(form, Symbol) and form.name in env.names)
        return render_hole(compile_expression(program, form, env)) if is_computed else None

    return literal_map(program.diagnostics, require_map(program, map_form), resolve)


def compile_transform(program: LispProgram, form: Form, env: Env, **values: Any) -> LocatedMap:
    return make_node("transform", form.position, expression=compile_expression(program, form, env), **values)


VALUE_STEPS: Final[dict[str, StepCompiler]] = {
    "gate": compile_gate,
    "bash": compile_bash,
    "call": compile_call_node,
    "run-workflow": compile_run_workflow,
    "node": compile_spec_node,
}
"""Steps whose output `let` can bind."""

STEPS: Final[dict[str, StepCompiler]] = {
    "send-prompt": compile_send_prompt,
    "wait": compile_wait,
    "await": compile_wait,
    "assert": compile_assert,
    "retract": compile_retract,
    "log": compile_log,
    "result": compile_result,
    "goto": compile_goto,
    "terminal": compile_terminal,
    **VALUE_STEPS,
}
