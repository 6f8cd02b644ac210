"""Compile bodies, and the forms that contain other forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from nerve.notations.lisp.expressions import SPECIAL_FORMS, compile_expression, quote_expression_string
from nerve.notations.lisp.program import (
    Env,
    FormRejected,
    LispProgram,
    Names,
    join_steps,
    located_steps,
    make_node,
    preview_form,
)
from nerve.notations.lisp.steps import (
    CONDITION_FORMS,
    STEPS,
    VALUE_STEPS,
    compile_condition,
    compile_transform,
)
from nerve.text.sexpr import Form, Keyword, ListForm, Number, VectorForm
from nerve.text.source import LocatedList, LocatedMap, Position

MAX_CLAUSES: Final = 30
MAX_ITERATIONS: Final = 100
TIMEOUT_CLAUSE: Final = "timeout"


def compile_body(program: LispProgram, forms: Sequence[Form], names: Names) -> list[LocatedMap]:
    """Return the steps of some forms; a form with a problem is skipped."""
    steps: list[LocatedMap] = []
    compile_forms(program, forms, Env(names, steps))
    for step, following in pairwise(steps):
        if step.get("kind") == "goto":
            program.add_warning(following, "This form is unreachable", "Remove the forms after a goto.")
    return steps


def compile_body_node(
    program: LispProgram, forms: Sequence[Form], names: Names, position: Position
) -> LocatedMap:
    return join_steps(compile_body(program, forms, names), position)


def compile_forms(program: LispProgram, forms: Sequence[Form], env: Env) -> None:
    for form in forms:
        with suppress(FormRejected):
            if not isinstance(form, ListForm) or not form.head:
                fix = "Write a body as forms in parentheses."
                program.fail_expected(form, "a form such as (log …)", fix)
            if form.head in STEPS:
                env.add_step(STEPS[form.head](program, form, env))
            elif form.head in BLOCK_FORMS:
                BLOCK_FORMS[form.head](program, form, env)
            elif hint := MISPLACED_CLAUSE_FIXES.get(form.head):
                program.add(form, f"({form.head} …) is not allowed here", hint)
            else:
                program.add_unknown_name(form, "form", form.head, [*STEPS, *BLOCK_FORMS])


def compile_action(program: LispProgram, form: ListForm, env: Env) -> None:
    program.split_form(form)
    compile_forms(program, form.items[1:], env)


def compile_let(program: LispProgram, form: ListForm, env: Env) -> None:
    """Compile a let; each value can use the names before it."""
    if len(form.items) < 2:
        program.fail(form, "The names of (let …) are missing", "Write (let ((name EXPR) …) BODY …).")
    inner = Env(env.names.new_child(), env.steps)
    for pair in let_pairs(program, program.require_items(form.items[1], "the names of a let")):
        with suppress(FormRejected):
            bind_let_name(program, pair, inner)
    compile_forms(program, form.items[2:], inner)


def let_pairs(program: LispProgram, items: Sequence[Form]) -> Sequence[Form]:
    """Return the (name value) pairs of a let; pairs without parentheses are reported once."""
    flat = next((item for item in items if not isinstance(item, ListForm | VectorForm)), None)
    if flat is None or len(items) % 2:
        return items
    fix = "Put each name and its value in parentheses: ((x 1) (y 2))."
    program.add(flat, f"Expected (name EXPR), found {preview_form(flat)}", fix)
    return [ListForm(pair, pair[0].position) for pair in zip(items[::2], items[1::2], strict=True)]


def bind_let_name(program: LispProgram, pair: Form, env: Env) -> None:
    items = program.require_items(pair, "(name EXPR)")
    if len(items) != 2:
        program.fail_expected(pair, "(name EXPR)", "Give each name one value.")
    name = program.require_symbol(items[0], "a name")
    is_gate = isinstance(items[1], ListForm) and items[1].head == "gate"
    id = program.claim_id(name) if is_gate else program.new_id(name)
    reference = f"steps[{quote_expression_string(id)}].output"
    try:
        reference = add_value_step(program, items[1], id, env)
    finally:
        # The name is defined even if its value has a problem, so that its uses do not report it again.
        env.names[name] = reference


def add_value_step(program: LispProgram, form: Form, id: str, env: Env) -> str:
    """Add the step that computes a value, and return the expression that refers to it."""
    if isinstance(form, ListForm) and form.head in (*CONDITION_FORMS, "wait", "await"):
        return compile_expression(program, form, env)
    if not isinstance(form, ListForm) or form.head not in VALUE_STEPS:
        env.add_step(compile_transform(program, form, env, id=id))
        return f"steps.{id}.output"
    step = VALUE_STEPS[form.head](program, form, env)
    env.add_step(step)
    step.setdefault("id", id)
    return f"steps[{quote_expression_string(str(step['id']))}].output"


def compile_loop(program: LispProgram, form: ListForm, env: Env) -> None:
    parts, options = program.split_form(form, ["max", "until", "times"])
    steps = compile_body(program, parts, env.names)
    loop_node = make_node("loop", form.position)
    until, times = options.get("until"), options.get("times")
    if until is not None:
        loop_node.set_at(
            "until", compile_expression(program, until, Env(env.names, steps, True)), until.position
        )
    elif times is None:
        loop_node.set_at("until", "false", form.position)
        if not any(map(contains_goto, steps)):
            program.add_warning(
                loop_node, "This loop only ends by failing", "Add :until, :times or a (goto …)."
            )
    if isinstance(times, Number):
        count = program.require_count(times, least=0)
        loop_node.set_at("times", count, times.position)
        if count > MAX_ITERATIONS:
            loop_node.set_at("max_iterations", count, times.position)
    elif times is not None:
        loop_node.set_at("times", compile_expression(program, times, env), times.position)
    if (limit := options.get("max")) is not None:
        loop_node.set_at("max_iterations", program.require_count(limit), limit.position)
    env.add_step(loop_node.set_at("body", join_steps(steps, form.position), form.position))


def contains_goto(step: object) -> bool:
    """Whether a step contains a goto."""
    if isinstance(step, LocatedMap):
        return step.get("kind") == "goto" or any(map(contains_goto, step.values()))
    return isinstance(step, LocatedList) and any(map(contains_goto, step))


def compile_branch(program: LispProgram, form: ListForm, env: Env) -> None:
    """Compile a branch; its conditions are tested now, without waiting."""
    clauses, otherwise = split_clauses(program, form, "otherwise")
    tests = [compile_test(program, test, env) for test, _ in clauses]
    bodies = [compile_body_node(program, forms[1:], env.names, forms[0].position) for _, forms in clauses]
    last = otherwise and compile_body_node(program, otherwise.items[1:], env.names, otherwise.position)
    if len(clauses) == 1:
        branch_node = make_node("branch", form.position).set_at("condition", tests[0], clauses[0][0].position)
        branch_node.set_at("then", bodies[0], bodies[0].position)
    else:
        names = [f"on{number}" for number in range(1, len(clauses) + 1)]
        key = " : ".join(
            f"{test} ? {quote_expression_string(name)}" for test, name in zip(tests, names, strict=True)
        )
        branch_node = switch_node(
            form.position, f'{key} : "otherwise"', dict(zip(names, bodies, strict=True))
        )
    if last:
        branch_node.set_at("otherwise" if len(clauses) == 1 else "default", last, last.position)
    env.add_step(branch_node)


def compile_test(program: LispProgram, form: Form, env: Env) -> str:
    try:
        return compile_expression(program, form, Env(env.names, env.steps, test=True))
    except FormRejected:
        return "false"


def switch_node(position: Position, key: str, cases: dict[str, LocatedMap]) -> LocatedMap:
    case_map = LocatedMap((), position)
    for name, case in cases.items():
        case_map.set_at(name, case, case.position)
    return make_node("switch", position, key=key, cases=case_map)


Clause = tuple[Form, tuple[Form, ...]]
"""The condition, and the head and body of the clause."""


def split_clauses(program: LispProgram, form: ListForm, last: str) -> tuple[list[Clause], ListForm | None]:
    """Return the `on` and `when` clauses, and the final clause if there is one."""
    clauses: list[Clause] = []
    final: ListForm | None = None
    problem_count = len(program.problems)
    for item in form.items[1:]:
        head = item.head if isinstance(item, ListForm) else ""
        if final is not None:
            program.add(item, f"({last} …) must be the last clause", "Move it to the end.")
        if isinstance(item, ListForm) and head in ("on", "when") and len(item.items) > 1:
            clauses.append((item.items[1], (item.items[0], *item.items[2:])))
        elif isinstance(item, ListForm) and head == last:
            final = item
        elif len(program.problems) == problem_count:
            fix = f"Write (on CONDITION BODY …) or ({last} …)."
            program.add(item, f"Expected a clause of ({form.head} …), found {preview_form(item)}", fix)
    if not clauses and len(program.problems) > problem_count:
        raise FormRejected
    if not 0 < len(clauses) <= MAX_CLAUSES:
        expected = f"1 to {MAX_CLAUSES} (on …) clauses"
        message = f"({form.head} …) takes {expected}, got {len(clauses)}"
        program.fail(form, message, "Write (on CONDITION BODY …).")
    return clauses, final


def compile_select(program: LispProgram, form: ListForm, env: Env) -> None:
    """Compile a select: wait for the first of several conditions, and run its clause."""
    clauses, late = split_clauses(program, form, TIMEOUT_CLAUSE)
    id, position = program.new_id("select"), form.position
    wait = make_node("wait", position, id=id)
    env.add_step(wait)
    conditions = LocatedList((), position)
    cases: dict[str, LocatedMap] = {}
    for test, forms in clauses:
        condition_map = compile_condition(program, test, env)
        used = {*cases, TIMEOUT_CLAUSE}
        label = condition_map.get("signal") or condition_map.get("response") or condition_map["fact"][0]
        name, number = str(label)[:100], 1
        while name in used:
            number += 1
            name = f"{str(label)[:100]}-{number}"
        conditions.append_at(condition_map.set_at("name", name, test.position), test.position)
        names, body = env.names, forms[1:]
        if len(body) > 1 and isinstance(body[0], Keyword) and body[0].name == "as":
            # `:as NAME` binds the value of the condition.
            names = names.new_child({program.require_symbol(body[1], "a name"): f"steps.{id}.output"})
            body = body[2:]
        cases[name] = compile_body_node(program, body, names, forms[0].position)
    wait.set_at("any", conditions, position)
    if late is not None:
        if len(late.items) < 2:
            program.fail(late, "The seconds of (timeout …) are missing", "Write (timeout SECONDS BODY …).")
        wait.set_at("timeout", program.require_seconds(late.items[1]), late.items[1].position)
        wait.set_at("on_timeout", TIMEOUT_CLAUSE, late.position)
        cases[TIMEOUT_CLAUSE] = compile_body_node(program, late.items[2:], env.names, late.position)
    env.add_step(switch_node(position, f"steps.{id}.attributes.which", cases))


def compile_with_timeout(program: LispProgram, form: ListForm, env: Env) -> None:
    if len(form.items) < 3:
        fix = "Write (with-timeout SECONDS BODY … (on-timeout BODY …))."
        program.fail(form, "The seconds or the body of (with-timeout …) are missing", fix)
    seconds = program.require_seconds(form.items[1])
    rest, last = form.items[2:], form.items[-1]
    late = last if isinstance(last, ListForm) and last.head == "on-timeout" else None
    steps = compile_body(program, rest[:-1] if late else rest, env.names)
    sequence_node = make_node(
        "sequence",
        form.position,
        steps=located_steps(steps or [join_steps([], form.position)], form.position),
    )
    sequence_node.set_at("timeout", seconds, form.items[1].position)
    if late is not None:
        instead = compile_body(program, late.items[1:], env.names)
        sequence_node.set_at(
            "on_timeout", join_steps(instead, late.position) if instead else "skip", late.position
        )
    env.add_step(sequence_node)


BLOCK_FORMS: Final[dict[str, Callable[[LispProgram, ListForm, Env], None]]] = {
    "action": compile_action,
    "let": compile_let,
    "loop": compile_loop,
    "branch": compile_branch,
    "select": compile_select,
    "with-timeout": compile_with_timeout,
}

MISPLACED_CLAUSE_FIXES: Final = {
    "on": "Use it in (branch …) or (select …).",
    "when": "Use it in (branch …) or (select …).",
    "otherwise": "Use it last in (branch …).",
    "timeout": "Use it last in (select …).",
    "on-timeout": "Use it last in (with-timeout …).",
    "state": "Use it in (workflow …).",
    "defn": "Use it in (workflow …), or before it.",
    **dict.fromkeys(SPECIAL_FORMS, "It is an expression; put it in (await …), (log …) or (let …)."),
}
