"""Compile conditions, and steps: the forms of a body that become one node each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from nerve.lazy_dataclass import dataclass
from nerve.notations.lisp.expressions import (
    WORKFLOW_ID_SYMBOL,
    Hole,
    Piece,
    TemplateMismatch,
    compile_expression,
    compile_piece,
    compile_text_value,
    compile_value,
    convert_literal,
    escape_prompt_variables,
    escape_template,
    fill_template,
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
from nerve.text.sexpr import Form, Keyword, ListForm, String, Symbol
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import LocatedList, LocatedMap

# -- conditions and records ----------------------------------------------------------------------


WILDCARDS: Final = ("_", "...")
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
    [inner] = program.split_form(form, least=1, most=1).rest
    return compile_condition_value(program, require_condition_form(program, inner), env)


def compile_signal(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    condition_map = LocatedMap((), form.position)
    put_signal(program, condition_map, form, env)
    return condition_map


def put_signal(
    program: LispProgram, target: LocatedMap, form: ListForm, env: Env, more_options: tuple[str, ...] = ()
) -> dict[str, Form]:
    """Set the label and the key of a signal, from :key or its synonym :scope; return all its options."""
    form_parts = program.split_form(form, (*SIGNAL_KEYS, *more_options), least=1, most=1)
    label = program.require_name(form_parts.rest[0], "the label of a signal")
    target.set_at("signal", escape_template(label), form_parts.rest[0].position)
    options = form_parts.options
    key_forms = [options[name] for name in SIGNAL_KEYS if name in options]
    if len(key_forms) > 1:
        program.add(key_forms[1], ":key and :scope are synonyms", "Remove one.")
    if key_forms:
        target.set_at("key", compile_text_value(program, key_forms[0], env), key_forms[0].position)
    return options


def compile_response(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    request_id = program.split_form(form, ["request-id"], most=0).option("request-id")
    if request_id is None:
        program.fail(form, ":request-id of (transcript-response …) is missing", "Name the prompt's :tag.")
    name = program.require_name(request_id, "a request id")
    bind_response_prompt(program, name, request_id)
    return LocatedMap((), form.position).set_at("response", name, request_id.position)


def bind_response_prompt(program: LispProgram, name: str, form: Form) -> None:
    """Find the prompt of a response: by tag, else the nearest untagged prompt above (or with this tag)."""
    last = program.untagged_prompts[-1][0] if program.untagged_prompts else -1
    if name in program.tags or program.prompt_number_by_tag.get(name, -1) > last:
        return
    if not program.untagged_prompts:
        fix = f"Add :tag {name} to its send-prompt."
        program.fail(form, f"No send-prompt above has the request id '{name}'", fix)
    number, prompt = program.untagged_prompts.pop()
    prompt.set_at("tag", name, form.position)
    program.prompt_number_by_tag[name] = number


def compile_fact(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [pattern] = program.split_form(form, least=1, most=1).rest
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
        escape_template(escape_fact_pattern(name, pattern) if isinstance(label, String) else name),
        label.position,
    )
    named_fields = LocatedMap((), form.position)
    fields = iter(form.items[1:])
    for item in fields:
        if isinstance(item, Keyword):
            add_named_field(program, named_fields, item, next(fields, None), env, pattern)
        elif named_fields:
            program.add(item, "A positional field follows a named field", "Put it before the named fields.")
        else:
            values.append_at(compile_field(program, item, env, pattern), item.position)
    return (
        values.append_at(named_fields, named_fields.position)
        if named_fields or (len(values) > 1 and isinstance(values[-1], LocatedMap))
        else values
    )


def add_named_field(
    program: LispProgram, named_fields: LocatedMap, key: Keyword, item: Form | None, env: Env, pattern: bool
) -> None:
    if item is None or isinstance(item, Keyword):
        program.fail(key, f":{key.name} has no value", f"Write (… :{key.name} VALUE).")
    if key.name in named_fields:
        program.add(key, f":{key.name} is duplicated", "Remove one.")
    named_fields.set_at(key.name, compile_field(program, item, env, pattern), item.position)
    named_fields.key_positions[key.name] = key.position


def compile_field(program: LispProgram, form: Form, env: Env, pattern: bool) -> Any:
    """Compile a field of a record. A symbol that is not a visible name is a string."""

    def convert(form: Form) -> Any:
        match form:
            case Symbol(name) if name in env.names or name == WORKFLOW_ID_SYMBOL:
                return render_hole(compile_expression(program, form, env))
            case Symbol():
                return compile_bare_symbol(program, form, pattern)
            case String(text):
                return escape_template(escape_fact_pattern(text, pattern))
        return compile_value(program, form, env)

    return convert_literal(form, convert)


def compile_bare_symbol(program: LispProgram, form: Symbol, pattern: bool) -> str:
    name = form.name
    if name in WILDCARDS or name.startswith("?"):
        if not pattern:
            program.add(
                form,
                f"'{name}' is only allowed in a pattern",
                "Put it in double quotes for the literal text.",
            )
        return name
    return escape_template(name)


def escape_fact_pattern(text: str, pattern: bool) -> str:
    """Escape a string in a pattern so that it only matches itself."""
    special = text in WILDCARDS or text.startswith(("?", "\\"))
    return f"\\{text}" if pattern and special else text


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
        form_parts = program.split_form(form, self.options, least, None if takes_arguments else least)
        node = make_node(self.kind, form.position)
        if self.key:
            first = form_parts.rest[0]
            value = (
                self.read(program, first, env)
                if self.read
                else compile_message(program, form_parts.rest, env)
            )
            node.set_at(self.key, value, first.position)
        for name, read in self.options.items():
            if (option := form_parts.option(name)) is not None:
                node.set_at(name, read(program, option, env), option.position)
        return node


def fill_message_template(program: LispProgram, form: Form, arguments: Sequence[Piece]) -> str:
    """Return a `~a` template filled with its arguments."""
    template_text = program.require_string(form, "a template")
    try:
        return fill_template(template_text, arguments)
    except TemplateMismatch as mismatch:
        program.fail(form, mismatch.message, mismatch.fix)


def compile_message(program: LispProgram, forms: Sequence[Form], env: Env) -> str:
    """Return a template form filled with the arguments that follow it."""
    return fill_message_template(program, forms[0], [compile_piece(program, item, env) for item in forms[1:]])


# -- readers -----------------------------------------------------------------------------------


def name_reader(what: str) -> ValueReader:
    return lambda program, form, env: program.require_name(form, what)


def names_reader(what: str) -> ValueReader:
    return lambda program, form, env: LocatedList.of(
        ((name, item.position) for name, item in program.require_names(form, what)), form.position
    )


def read_seconds(program: LispProgram, form: Form, env: Env) -> float:
    return program.require_seconds(form)


def read_literal_map(program: LispProgram, form: Form, env: Env) -> Any:
    return literal_value(program, program.require_map(form))


def read_command(program: LispProgram, form: Form, env: Env) -> str:
    return escape_template(program.require_string(form, "a command"))


def read_environment(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    variables = LocatedMap((), form.position)
    for key, item in program.require_map(form).items:
        variables.set_at(map_key_text(key), compile_text_value(program, item, env), item.position)
    return variables


def read_params(program: LispProgram, form: Form, env: Env) -> Any:
    return compile_value(program, program.require_map(form), env)


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
    form_parts = program.split_form(form, ["agent", "template", "args", "tag", "limits"], most=0)
    agent, text = form_parts.option("agent"), form_parts.option("template")
    if agent is None or text is None:
        missing = ":agent" if agent is None else ":template"
        program.fail(form, f"{missing} of (send-prompt …) is missing", 'Write :agent ROLE :template "…".')
    name = require_role(program, agent)
    args = compile_prompt_args(program, form_parts.option("args"), env)
    prompt_node = make_node("prompt", form.position, role=name)
    prompt_text = fill_message_template(program, text, [Hole(f"args.{key}") for key in args])
    prompt_node.set_at("text", escape_prompt_variables(prompt_text), text.position)
    if args:
        prompt_node.set_at("args", args, args.position)
    put_recipient(program, prompt_node, name, agent)
    if (limits := form_parts.option("limits")) is not None:
        prompt_node.set_at("limits", read_literal_map(program, limits, env), limits.position)
    tag = form_parts.option("tag")
    program.prompt_count += 1
    if tag is None:
        program.untagged_prompts.append((program.prompt_count, prompt_node))
    else:
        prompt_node.set_at("tag", program.require_name(tag, "a tag"), tag.position)
    return prompt_node.set_at("detach", True, form.position)


def compile_prompt_args(program: LispProgram, form: Form | None, env: Env) -> LocatedMap:
    if form is None:
        return LocatedMap()
    args = LocatedMap((), form.position)
    for number, item in enumerate(program.require_items(form, "a list of arguments"), 1):
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


def compile_fact_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile an assert or retract of a fact or a signal."""
    [fact_form] = program.split_form(form, least=1, most=1).rest
    fact_node = make_node(form.head, form.position)
    is_pattern = form.head == "retract"
    if not isinstance(fact_form, ListForm) or fact_form.head != "signal":
        fact_record = compile_record(program, fact_form, env, is_pattern)
        return fact_node.set_at("fact", fact_record, fact_form.position)
    options = put_signal(program, fact_node, fact_form, env, () if is_pattern else ("value",))
    if (value_form := options.get("value")) is not None:
        fact_node.set_at("value", compile_value(program, value_form, env), value_form.position)
    return fact_node


def compile_log(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    forms = program.split_form(form, least=1).rest
    message = compile_message(program, forms, env)
    data = LocatedMap((), form.position).set_at("message", message, forms[0].position)
    return make_node("emit", form.position, event="log", data=data)


def compile_spec_node(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    """Compile `(node {:kind …})`, a literal node of the spec with names and calls filled in."""
    [map_form] = program.split_form(form, least=1, most=1).rest

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
            "timeout": read_seconds,
        },
    ),
    "bash": StepForm("bash", "command", read_command, {"env": read_environment, "input": compile_value}),
    "call": StepForm(
        "call",
        "target",
        name_reader("the name of a node"),
        {"limits": read_literal_map, "input": compile_value},
    ),
    "run-workflow": StepForm(
        "workflow",
        "workflow",
        name_reader("the name of a workflow"),
        {"params": read_params, "limits": read_literal_map, "input": compile_value},
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
