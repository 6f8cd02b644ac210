"""Compile conditions, and steps: the forms of a body that become one node each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from nerve.dataspace.matchers import ANY, MORE, escape_pattern_text
from nerve.lazy_dataclass import dataclass
from nerve.notations.lisp.expressions import (
    WORKFLOW_ID_SYMBOL,
    Hole,
    compile_expression,
    compile_piece,
    compile_text_value,
    compile_value,
    convert_literal,
    escape_prompt_variables,
    escape_template,
    fill_message_template,
    literal_value,
    register_special_form,
    render_hole,
    require_role,
)
from nerve.notations.lisp.program import (
    Env,
    LispProgram,
    closest_form_name,
    make_node,
)
from nerve.text.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import LocatedList, LocatedMap

# -- conditions and records ----------------------------------------------------------------------


SIGNAL_KEYS: Final = ("key", "scope")


def compile_condition(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    """Return the condition of the spec."""
    condition_form = require_condition_form(program, form)
    return CONDITION_FORMS[condition_form.head](program, condition_form, env)


def require_condition_form(program: LispProgram, form: Form) -> ListForm:
    if not isinstance(form, ListForm) or form.head not in CONDITION_FORMS:
        known = " or ".join(f"({name} …)" for name in CONDITION_FORMS)
        word = closest_form_name(form.head, CONDITION_FORMS) if isinstance(form, ListForm) else None
        fix = f"Did you mean '{word}'?" if word else f"Write {known}."
        program.fail_expected(form, "a condition", fix)
    return form


@register_special_form("signal", "transcript-response", "fact")
def compile_condition_value(program: LispProgram, form: ListForm, env: Env) -> str:
    """Add a step that waits for a condition, and return the expression of its value.

    In a test, the step does not wait and the value says whether the condition holds. If that value is
    compared, it is the current value of the condition, or nil if the condition does not hold.
    """
    if env.steps is None:
        program.fail(form, f"({form.head} …) is not allowed here", "Bind it with let, and use the name.")
    condition_map = compile_condition(program, form, env.for_comparison())
    step = make_node("wait", form.position, id=program.new_id(form.head))
    step.set_at("any", LocatedList((), form.position).append_at(condition_map, form.position), form.position)
    if env.test:
        step.set_at("test", True, form.position)
    env.add_step(step)
    compared = env.test and env.compared
    return f"(steps.{step['id']}.attributes.value ?? null)" if compared else f"steps.{step['id']}.output"


@register_special_form("wait", "await")
def compile_await_value(program: LispProgram, form: ListForm, env: Env) -> str:
    """Compile `(await COND)` in an expression to the value of the condition."""
    if env.test:
        program.fail(form, "A test cannot wait", "Write only the condition.")
    [inner], _ = program.split_form(form, least=1, most=1)
    return compile_condition_value(program, require_condition_form(program, inner), env)


def compile_signal(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    condition_map = LocatedMap((), form.position)
    put_signal(program, condition_map, form, env)
    return condition_map


def put_signal(
    program: LispProgram, target: LocatedMap, form: ListForm, env: Env, more_options: tuple[str, ...] = ()
) -> dict[str, Form]:
    """Set the label and the key of a signal, from :key or its synonym :scope; return all its options."""
    [label], options = program.split_form(form, (*SIGNAL_KEYS, *more_options), least=1, most=1)
    name = program.require_name(label, "the label of a signal")
    target.set_at("signal", escape_template(name), label.position)
    key_forms = [options[name] for name in SIGNAL_KEYS if name in options]
    if len(key_forms) > 1:
        program.add(key_forms[1], ":key and :scope are synonyms", "Remove one.")
    if key_forms:
        target.set_at("key", compile_text_value(program, key_forms[0], env), key_forms[0].position)
    return options


def compile_response(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile a response: to the prompt with its tag, else to the nearest untagged prompt above."""
    request_id = program.split_form(form, ["request-id"], most=0)[1].get("request-id")
    if request_id is None:
        program.fail(form, ":request-id of (transcript-response …) is missing", "Name the prompt's :tag.")
    name = program.require_name(request_id, "a request id")
    last = program.untagged_prompts[-1][0] if program.untagged_prompts else -1
    if name not in program.tags and program.prompt_number_by_tag.get(name, -1) <= last:
        if not program.untagged_prompts:
            fix = f"Add :tag {name} to its send-prompt."
            program.fail(request_id, f"No send-prompt above has the request id '{name}'", fix)
        program.prompt_number_by_tag[name], prompt = program.untagged_prompts.pop()
        prompt.set_at("tag", name, request_id.position)
    return LocatedMap((), form.position).set_at("response", name, request_id.position)


def compile_fact(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [pattern], _ = program.split_form(form, least=1, most=1)
    fact_record = compile_record(program, pattern, env, pattern=True)
    return LocatedMap((), form.position).set_at("fact", fact_record, pattern.position)


CONDITION_FORMS: Final[dict[str, Callable[[LispProgram, ListForm, Env], LocatedMap]]] = {
    "signal": compile_signal,
    "transcript-response": compile_response,
    "fact": compile_fact,
}


def compile_record(program: LispProgram, form: Form, env: Env, pattern: bool = False) -> LocatedList:
    """Return a record as JSON: the label, the positional fields, and an object of the named fields."""
    if not isinstance(form, ListForm) or not form.items:
        fix = "Write a record as (label field … :name value …)."
        program.fail_expected(form, "a record", fix)
    label = form.items[0]
    name = program.require_name(label, "the label of a record")
    values = LocatedList((), form.position).append_at(
        escape_template(escape_pattern_text(name) if pattern and isinstance(label, String) else name),
        label.position,
    )
    named_fields = LocatedMap((), form.position)
    fields = iter(form.items[1:])
    for item in fields:
        if isinstance(item, Keyword):
            value = next(fields, None)
            if value is None or isinstance(value, Keyword):
                program.fail(item, f":{item.name} has no value", f"Write (… :{item.name} VALUE).")
            if item.name in named_fields:
                program.add(item, f":{item.name} is duplicated", "Remove one.")
            named_fields.set_at(item.name, compile_field(program, value, env, pattern), value.position)
            named_fields.key_positions[item.name] = item.position
        elif named_fields:
            program.add(item, "A positional field follows a named field", "Put it before the named fields.")
        else:
            values.append_at(compile_field(program, item, env, pattern), item.position)
    return (
        values.append_at(named_fields, named_fields.position)
        if named_fields or (len(values) > 1 and isinstance(values[-1], LocatedMap))
        else values
    )


def compile_field(program: LispProgram, form: Form, env: Env, pattern: bool) -> Any:
    """Compile a field of a record. A symbol that is not a visible name is a string."""

    def convert(form: Form) -> Any:
        match form:
            case Symbol(name) if name in env.names or name == WORKFLOW_ID_SYMBOL:
                return render_hole(compile_expression(program, form, env))
            case Symbol(name) if name in (ANY, MORE) or name.startswith("?"):
                if not pattern:
                    fix = "Put it in double quotes for the literal text."
                    program.add(form, f"'{name}' is only allowed in a pattern", fix)
                return name
            case Symbol(name):
                return escape_template(name)
            case String(text):
                return escape_template(escape_pattern_text(text) if pattern else text)
        return compile_value(program, form, env)

    return convert_literal(form, convert)


# -- steps ---------------------------------------------------------------------------------------


StepCompiler = Callable[[LispProgram, ListForm, Env], LocatedMap]
ValueReader = Callable[[LispProgram, Form, Env], Any]
"""Returns the value of the spec that a part of a form means."""


@dataclass(frozen=True, slots=True)
class StepForm:
    """A form that becomes one node: its kind, the key of its first part, and its options."""

    kind: str
    key: str = ""
    """The key of the value of the first part; empty for a form without parts."""
    read: ValueReader | None = None
    """Reads the first part; None for a `~a` template whose arguments are the parts after it."""
    options: Mapping[str, ValueReader] = field(default_factory=dict)
    """The readers of the options; an option has the name of its key in the spec."""

    def __call__(self, program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
        takes_arguments = bool(self.key) and self.read is None
        least = 1 if self.key else 0
        parts, options = program.split_form(form, self.options, least, None if takes_arguments else least)
        node = make_node(self.kind, form.position)
        if self.key:
            read = self.read
            value = read(program, parts[0], env) if read else compile_message(program, parts, env)
            node.set_at(self.key, value, parts[0].position)
        put_options(program, node, options, self.options, env)
        return node


def put_options(
    program: LispProgram,
    node: LocatedMap,
    options: Mapping[str, Form],
    readers: Mapping[str, ValueReader],
    env: Env,
) -> None:
    """Set the options that a form has; an option has the name of its key in the spec, with hyphens."""
    for name, read in readers.items():
        if name in options:
            node.set_at(name.replace("-", "_"), read(program, options[name], env), options[name].position)


def compile_message(program: LispProgram, forms: Sequence[Form], env: Env) -> str:
    """Return a template form filled with the arguments that follow it."""
    return fill_message_template(program, forms[0], [compile_piece(program, item, env) for item in forms[1:]])


# -- readers -----------------------------------------------------------------------------------


def name_reader(what: str) -> ValueReader:
    return lambda program, form, env: program.require_name(form, what)


def names_reader(what: str) -> ValueReader:
    return lambda program, form, env: LocatedList.of(
        (
            (program.require_name(item, what), item.position)
            for item in program.require_items(form, f"a list of {what}")
        ),
        form.position,
    )


def read_literal_map(program: LispProgram, form: Form, env: Env) -> Any:
    return literal_value(program, program.require_map(form))


def read_literal(program: LispProgram, form: Form, env: Env) -> Any:
    return literal_value(program, form)


def read_workspace(program: LispProgram, form: Form, env: Env | None = None) -> Any:
    """Return a workspace: its kind as a name, or a map."""
    if isinstance(form, MapForm):
        return literal_value(program, form)
    return program.require_name(form, "a workspace")


def read_merged_name(program: LispProgram, form: Form, env: Env) -> str:
    """Return what a merge names: a step or a workspace, or a value of the program."""
    if isinstance(form, ListForm) or (isinstance(form, Symbol) and form.name in env.names):
        return compile_text_value(program, form, env)
    return escape_template(program.require_name(form, "the name of a step"))


def read_environment(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    variables = LocatedMap((), form.position)
    for key, item in program.require_map(form).items:
        variables.set_at(map_key_text(key), compile_text_value(program, item, env), item.position)
    return variables


def read_state(program: LispProgram, form: Form, env: Env) -> str:
    state = program.require_name(form, "the name of a state")
    if state not in program.states:
        program.add_unknown_name(form, "state", state, sorted(program.states))
    return state


def read_conditions(program: LispProgram, form: Form, env: Env) -> LocatedList:
    """Return the only condition of a wait, in a list."""
    return LocatedList.of([(compile_condition(program, form, env), form.position)], form.position)


# -- forms with rules of their own -------------------------------------------------------------


def compile_send_prompt(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    _, options = program.split_form(
        form, ["agent", "template", "args", "cwd", "tag", "limits", "workspace"], most=0
    )
    agent, text = options.get("agent"), options.get("template")
    if agent is None or text is None:
        missing = ":agent" if agent is None else ":template"
        program.fail(form, f"{missing} of (send-prompt …) is missing", 'Write :agent ROLE :template "…".')
    name = require_role(program, agent)
    args = LocatedMap()
    if (args_form := options.get("args")) is not None:
        args.position = args_form.position
        for number, item in enumerate(program.require_items(args_form, "a list of arguments"), 1):
            args.set_at(f"a{number}", compile_value(program, item, env), item.position)
    prompt_node = make_node("prompt", form.position, role=name)
    prompt_text = fill_message_template(program, text, [Hole(f"args.{key}") for key in args])
    prompt_node.set_at("text", escape_prompt_variables(prompt_text), text.position)
    if args:
        prompt_node.set_at("args", args, args.position)
    if (role := program.roles.get(name)) is not None:
        for key, value in (("thread", role.thread), ("agent", role.agent), ("model", role.model)):
            if value is not None:
                prompt_node.set_at(key, value, agent.position)
        for key, option in role.prompt_options.items():
            prompt_node.set_at(key, option, role.prompt_options.value_positions[key])
    put_options(
        program,
        prompt_node,
        options,
        {"limits": read_literal_map, "cwd": compile_text_value, "workspace": read_workspace},
        env,
    )
    program.prompt_count += 1
    if (tag := options.get("tag")) is None:
        program.untagged_prompts.append((program.prompt_count, prompt_node))
    else:
        prompt_node.set_at("tag", program.require_name(tag, "a tag"), tag.position)
    return prompt_node.set_at("detach", True, form.position)


def compile_fact_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile an assert or retract of a fact or a signal."""
    [fact_form], _ = program.split_form(form, least=1, most=1)
    fact_node = make_node(form.head, form.position)
    is_pattern = form.head == "retract"
    if not isinstance(fact_form, ListForm) or fact_form.head != "signal":
        fact_record = compile_record(program, fact_form, env, is_pattern)
        return fact_node.set_at("fact", fact_record, fact_form.position)
    options = put_signal(program, fact_node, fact_form, env, () if is_pattern else ("value",))
    put_options(program, fact_node, options, {"value": compile_value}, env)
    return fact_node


def compile_log(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    forms, _ = program.split_form(form, least=1)
    message = compile_message(program, forms, env)
    data = LocatedMap((), form.position).set_at("message", message, forms[0].position)
    return make_node("emit", form.position, event="log", data=data)


def compile_spec_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile `(node {:kind …})`, a literal node of the spec with names and calls filled in."""
    [map_form], _ = program.split_form(form, least=1, most=1)

    def resolve(form: Form) -> str | None:
        is_computed = isinstance(form, ListForm) or (isinstance(form, Symbol) and form.name in env.names)
        return render_hole(compile_expression(program, form, env)) if is_computed else None

    node: LocatedMap = literal_value(program, program.require_map(map_form), resolve)
    return node


def compile_transform(program: LispProgram, form: Form, env: Env, **values: Any) -> LocatedMap:
    return make_node("transform", form.position, expression=compile_expression(program, form, env), **values)


VALUE_STEPS: Final[dict[str, StepCompiler]] = {
    "gate": StepForm(
        "gate",
        "prompt",
        options={
            "choices": names_reader("answers"),
            "reject": names_reader("answers"),
            "default": name_reader("an answer"),
            "timeout": lambda program, form, env: program.require_seconds(form),
            "approvers": names_reader("people and roles"),
            "quorum": read_literal,
            "veto": names_reader("people and roles"),
            "self-approval": read_literal,
            "author": compile_text_value,
            "claim": read_literal,
            "remind": read_literal,
            "escalate": read_literal,
        },
    ),
    "bash": StepForm(
        "bash",
        "command",
        lambda program, form, env: escape_template(program.require_string(form, "a command")),
        {
            "env": read_environment,
            "input": compile_value,
            "cwd": compile_text_value,
            "workspace": read_workspace,
        },
    ),
    "call": StepForm(
        "call",
        "target",
        name_reader("the name of a node"),
        {
            "limits": read_literal_map,
            "input": compile_value,
            "cwd": compile_text_value,
            "workspace": read_workspace,
        },
    ),
    "run-workflow": StepForm(
        "workflow",
        "workflow",
        name_reader("the name of a workflow"),
        {
            "params": lambda program, form, env: compile_value(program, program.require_map(form), env),
            "limits": read_literal_map,
            "input": compile_value,
            "workspace": read_workspace,
        },
    ),
    "merge": StepForm(
        "merge",
        "of",
        read_merged_name,
        {
            "method": name_reader("a method of merges"),
            "on-conflict": name_reader("ask or fail"),
        },
    ),
    "node": compile_spec_node,
}
"""Steps whose output `let` can bind."""

STEPS: Final[dict[str, StepCompiler]] = {
    "send-prompt": compile_send_prompt,
    "wait": StepForm("wait", "any", read_conditions),
    "await": StepForm("wait", "any", read_conditions),
    "assert": compile_fact_node,
    "retract": compile_fact_node,
    "log": compile_log,
    "result": StepForm("transform", "expression", compile_expression),
    "goto": StepForm("goto", "state", read_state),
    "terminal": StepForm("goto"),
    **VALUE_STEPS,
}
