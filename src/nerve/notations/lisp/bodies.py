"""Bodies: what is done in a state, in order; the forms that hold other forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from nerve.notations.lisp.conditions import CONDITIONS, condition
from nerve.notations.lisp.expressions import SPECIAL, expression
from nerve.notations.lisp.program import Env, Names, Program, node, one, sequence
from nerve.notations.lisp.shape import count_of, glimpse, items_of, parts, seconds_of, symbol_of
from nerve.notations.lisp.steps import STEPS, VALUED, transform
from nerve.notations.lisp.telling import Refused
from nerve.notations.lisp.text import quoted
from nerve.notations.sexpr import Form, Keyword, ListForm, Number, VectorForm
from nerve.spec.source import Map, Place, Seq

MOST_CLAUSES: Final = 30
MAX_ITERATIONS: Final = 100
TIMEOUT: Final = "timeout"


def body(program: Program, forms: Sequence[Form], names: Names) -> list[Map]:
    """The steps of some forms; what is wrong with one does not keep the others from being read."""
    steps: list[Map] = []
    add_all(program, forms, Env(names, steps))
    for step, following in pairwise(steps):
        if step.get("kind") == "goto":
            program.tell.note(following, "this is never reached", "Nothing behind a goto is done.")
    return steps


def body_node(program: Program, forms: Sequence[Form], names: Names, place: Place) -> Map:
    return one(body(program, forms, names), place)


def add_all(program: Program, forms: Sequence[Form], env: Env) -> None:
    for form in forms:
        try:
            add(program, form, env)
        except Refused:
            continue


def add(program: Program, form: Form, env: Env) -> None:
    if not isinstance(form, ListForm) or not form.head:
        fix = "A body is made of forms in parentheses."
        program.tell.refuse(form, f"expected a form such as (log …), found {glimpse(form)}", fix)
    if form.head in STEPS:
        env.add(STEPS[form.head](program, form, env))
    elif form.head in BLOCKS:
        BLOCKS[form.head](program, form, env)
    else:
        hint = CLAUSES.get(form.head)
        if hint:
            program.tell.refuse(form, f"({form.head} …) cannot stand here", hint)
        program.tell.unknown(form, "form", form.head, [*STEPS, *BLOCKS])


def action(program: Program, form: ListForm, env: Env) -> None:
    parts(program.tell, form)
    add_all(program, form.items[1:], env)


def let(program: Program, form: ListForm, env: Env) -> None:
    """Each name sees those before it."""
    if len(form.items) < 2:
        program.tell.refuse(form, "(let …) without names", "Write (let ((name EXPR) …) BODY …).")
    inner = Env(env.names.new_child(), env.steps)
    for pair in pairs_of(program, items_of(program.tell, form.items[1], "the names of a let")):
        try:
            bind(program, pair, inner)
        except Refused:
            continue
    add_all(program, form.items[2:], inner)


def pairs_of(program: Program, items: Sequence[Form]) -> Sequence[Form]:
    """The names of a let, each with its value in a list; where they stand without, that is told once."""
    flat = next((item for item in items if not isinstance(item, ListForm | VectorForm)), None)
    if flat is None or len(items) % 2:
        return items
    fix = "Put each name and its value in parentheses: ((x 1) (y 2))."
    program.tell.tell(flat, f"expected (name EXPR), found {glimpse(flat)}", fix)
    return [ListForm(pair, pair[0].place) for pair in zip(items[::2], items[1::2], strict=True)]


def bind(program: Program, pair: Form, env: Env) -> None:
    items = items_of(program.tell, pair, "(name EXPR)")
    if len(items) != 2:
        program.tell.refuse(pair, f"expected (name EXPR), found {glimpse(pair)}", "Give one value to a name.")
    name = symbol_of(program.tell, items[0], "a name")
    asked = isinstance(items[1], ListForm) and items[1].head == "gate"
    id = program.own_id(name) if asked else program.new_id(name)
    reference = f"steps[{quoted(id)}].output"
    try:
        reference = add_value(program, items[1], id, env)
    finally:
        # A name whose value is refused is known all the same: nobody should be told about it twice.
        env.names[name] = reference


def add_value(program: Program, form: Form, id: str, env: Env) -> str:
    """Add the step that makes a value; gives the expression by which others see it."""
    if isinstance(form, ListForm) and form.head in (*CONDITIONS, "wait", "await"):
        return expression(program, form, env)
    if not isinstance(form, ListForm) or form.head not in VALUED:
        env.add(transform(program, form, env, id=id))
        return f"steps.{id}.output"
    step = VALUED[form.head](program, form, env)
    env.add(step)
    step.setdefault("id", id)
    return f"steps[{quoted(str(step['id']))}].output"


def loop(program: Program, form: ListForm, env: Env) -> None:
    found = parts(program.tell, form, ["max", "until", "times"])
    steps = body(program, found.rest, env.names)
    made = node("loop", form.place)
    until, times, most = found.option("until"), found.option("times"), found.option("max")
    if until is not None:
        made.put("until", expression(program, until, Env(env.names, steps, True)), until.place)
    elif times is None:
        made.put("until", "false", form.place)
        if not any(map(leaves, steps)):
            program.tell.note(made, "this loop ends only by failing", "Add :until, :times or a (goto …).")
    if times is not None:
        repeated(program, made, times, env)
    if most is not None:
        made.put("max_iterations", count_of(program.tell, most), most.place)
    env.add(made.put("body", one(steps, form.place), form.place))


def leaves(step: object) -> bool:
    """Whether a goto stands in a step."""
    if isinstance(step, Map):
        return step.get("kind") == "goto" or any(map(leaves, step.values()))
    return isinstance(step, Seq) and any(map(leaves, step))


def repeated(program: Program, made: Map, times: Form, env: Env) -> None:
    """Put how often: a number, or an expression that gives one."""
    if not isinstance(times, Number):
        made.put("times", expression(program, times, env), times.place)
        return
    count = count_of(program.tell, times, least=0)
    made.put("times", count, times.place)
    if count > MAX_ITERATIONS:
        made.put("max_iterations", count, times.place)


def branch(program: Program, form: ListForm, env: Env) -> None:
    """Conditions are tests here: they say what holds now."""
    clauses, otherwise = split(program, form, "otherwise")
    tests = [tested(program, test, env) for test, _ in clauses]
    bodies = [body_node(program, forms[1:], env.names, forms[0].place) for _, forms in clauses]
    last = otherwise and body_node(program, otherwise.items[1:], env.names, otherwise.place)
    if len(clauses) == 1:
        made = node("branch", form.place).put("condition", tests[0], clauses[0][0].place)
        made.put("then", bodies[0], bodies[0].place)
    else:
        names = [f"on{number}" for number in range(1, len(clauses) + 1)]
        key = " : ".join(f"{test} ? {quoted(name)}" for test, name in zip(tests, names, strict=True))
        made = switch(form.place, f'{key} : "otherwise"', dict(zip(names, bodies, strict=True)))
    if last:
        made.put("otherwise" if len(clauses) == 1 else "default", last, last.place)
    env.add(made)


def tested(program: Program, form: Form, env: Env) -> str:
    try:
        return expression(program, form, env.testing())
    except Refused:
        return "false"


def switch(place: Place, key: str, cases: dict[str, Map]) -> Map:
    found = Map((), place)
    for name, case in cases.items():
        found.put(name, case, case.place)
    return node("switch", place, key=key, cases=found)


Clause = tuple[Form, tuple[Form, ...]]
"""The condition, and the clause's name and body."""


def split(program: Program, form: ListForm, last: str) -> tuple[list[Clause], ListForm | None]:
    """The `on` or `when` clauses, and the one that stands last if there is one."""
    clauses: list[Clause] = []
    final: ListForm | None = None
    told = len(program.tell.problems)
    for item in form.items[1:]:
        head = item.head if isinstance(item, ListForm) else ""
        if final is not None:
            program.tell.tell(item, f"({last} …) must stand last", "Move it to the end.")
        if isinstance(item, ListForm) and head in ("on", "when") and len(item.items) > 1:
            clauses.append((item.items[1], (item.items[0], *item.items[2:])))
        elif isinstance(item, ListForm) and head == last:
            final = item
        elif len(program.tell.problems) == told:
            fix = f"Write (on CONDITION BODY …) or ({last} …)."
            program.tell.tell(item, f"expected a clause of ({form.head} …), found {glimpse(item)}", fix)
    if not clauses and len(program.tell.problems) > told:
        raise Refused
    if not 0 < len(clauses) <= MOST_CLAUSES:
        expected = f"1 to {MOST_CLAUSES} (on …) clauses"
        message = f"({form.head} …) takes {expected}, not {len(clauses)}"
        program.tell.refuse(form, message, "Write (on CONDITION BODY …).")
    return clauses, final


def select(program: Program, form: ListForm, env: Env) -> None:
    """Wait for the first of several conditions, and do what stands behind it."""
    clauses, late = split(program, form, TIMEOUT)
    id, place = program.new_id("select"), form.place
    wait = node("wait", place, id=id)
    env.add(wait)
    found = Seq((), place)
    cases: dict[str, Map] = {}
    for test, forms in clauses:
        made = condition(program, test, env)
        name = unused(made, {*cases, TIMEOUT})
        found.push(made.put("name", name, test.place), test.place)
        names, rest = named_value(program, forms, id, env)
        cases[name] = body_node(program, rest, names, forms[0].place)
    wait.put("any", found, place)
    if late is not None:
        cases[TIMEOUT] = timed_out(program, wait, late, env)
    env.add(switch(place, f"steps.{id}.attributes.which", cases))


def named_value(program: Program, forms: tuple[Form, ...], id: str, env: Env) -> tuple[Names, Sequence[Form]]:
    """The names a clause sees: with `:as NAME` also what its condition came with."""
    if len(forms) < 3 or not isinstance(forms[1], Keyword) or forms[1].name != "as":
        return env.names, forms[1:]
    name = symbol_of(program.tell, forms[2], "a name")
    return env.names.new_child({name: f"steps.{id}.output"}), forms[3:]


def timed_out(program: Program, wait: Map, form: ListForm, env: Env) -> Map:
    if len(form.items) < 2:
        program.tell.refuse(form, "(timeout …) without seconds", "Write (timeout SECONDS BODY …).")
    wait.put("timeout", seconds_of(program.tell, form.items[1]), form.items[1].place)
    wait.put("on_timeout", TIMEOUT, form.place)
    return body_node(program, form.items[2:], env.names, form.place)


def unused(made: Map, used: set[str]) -> str:
    """A name for a condition: what it waits for."""
    label = made.get("signal") or made.get("response") or made["fact"][0]
    name, number = str(label)[:100], 1
    while name in used:
        number += 1
        name = f"{str(label)[:100]}-{number}"
    return name


def with_timeout(program: Program, form: ListForm, env: Env) -> None:
    if len(form.items) < 3:
        fix = "Write (with-timeout SECONDS BODY … (on-timeout BODY …))."
        program.tell.refuse(form, "(with-timeout …) without seconds or body", fix)
    seconds = seconds_of(program.tell, form.items[1])
    rest, last = form.items[2:], form.items[-1]
    late = last if isinstance(last, ListForm) and last.head == "on-timeout" else None
    steps = body(program, rest[:-1] if late else rest, env.names)
    made = node("sequence", form.place, steps=sequence(steps or [one([], form.place)], form.place))
    made.put("timeout", seconds, form.items[1].place)
    if late is not None:
        instead = body(program, late.items[1:], env.names)
        made.put("on_timeout", one(instead, late.place) if instead else "skip", late.place)
    env.add(made)


BLOCKS: Final[dict[str, Callable[[Program, ListForm, Env], None]]] = {
    "action": action,
    "let": let,
    "loop": loop,
    "branch": branch,
    "select": select,
    "with-timeout": with_timeout,
}

CLAUSES: Final = {
    "on": "It stands in (branch …) or (select …).",
    "when": "It stands in (branch …) or (select …).",
    "otherwise": "It stands last in (branch …).",
    "timeout": "It stands last in (select …).",
    "on-timeout": "It stands last in (with-timeout …).",
    "state": "It stands in (workflow …).",
    "defn": "It stands in (workflow …), or before it.",
    **dict.fromkeys(SPECIAL, "It is an expression; write (await …), (log …) or (let …) around it."),
}
