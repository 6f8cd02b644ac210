"""The syntax of expressions, and the errors for unsupported syntax."""

import re

import pytest

from expr.generator import SCOPE
from expr.oracle import Oracle, ours
from nerve.expr import EvalError, ExprError, compile, reserved_names

ORACLE = Oracle(SCOPE)


@pytest.mark.parametrize(
    "source",
    [
        "1 + 2 * 3 ** 2 ** 0 - -4 % 3",
        "1 < 2 === true != false && 3 >= 2 || 0",
        "null ?? undefined ?? 0 ?? 1",
        "(null || 1) ?? 2",
        "true ? false ? 1 : 2 : 3",
        "!!'' + +true - -'2'",
        "typeof null + typeof undefined + typeof [] + typeof '' + typeof 1 + typeof true",
        "inputs.missing?.deeper.still[0].length",
        "inputs?.['name']?.[0]",
        "inputs.items?.map(item => item.id)",
        "inputs?.5:1".replace("?.", " ? ."),
        "[...inputs.words, ...'ab', 1,]",
        "({...inputs.table, a: 0, ['b' + 1]: 1, 'c d': 2, 3: 4, index, ...null})",
        "`a${1}${`b${inputs.name}`}\\`\\${}`",
        "inputs.items.map(({id, name: called}, index) => [id, called, index])",
        "Object.entries(inputs.table).map(([key, value]) => `${key}:${value}`).join()",
        "inputs.numbers.map(x => inputs.numbers.map(y => x * y)).flat().filter(Boolean)",
        "[3, 1, 2].sort().concat([9, 8].reverse())",
        "'name' in inputs && !('nope' in inputs) && 0 in inputs.numbers",
        "0x1F + 0b11 + 0o17 + 1_000 + .5 + 5. + 1e3",
        "'\\x41\\u0042\\u{43}\\n\\'\\0'",
        "inputs\n  .items\n  .length",
        "((((1))))",
        "({}).a === undefined",
        "1..toFixed(1)",
        "[1, 2, 3].reduce((sum, x) => sum + x)",
    ],
)
def test_syntax_is_parsed_as_in_javascript(source: str) -> None:
    assert ours(source, SCOPE) == ORACLE(source)


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("a = 1", 3, "`=` assigns; compare with `===`"),
        ("a += 1", 3, "`+=` assigns; values are never changed"),
        ("new Date()", 1, "`new` is not part of the language"),
        ("this.a", 1, "`this` is not part of the language"),
        ("a & b", 3, "the logical and is `&&`"),
        ("/a/.test(b)", 1, "Regular expressions are not supported"),
        ("a ?? b || c", 3, "needs parentheses"),
        ("-a ** 2", 1, "Put parentheses around `-…` or around the power"),
        ("list.fliter(x => x)", 6, "Unknown method `fliter`; did you mean `filter`?"),
        ("list.push(1)", 6, "write `[...array, value]`"),
        ("list.sort()", 6, "`sort` changes its array in place; use `toSorted`"),
        ("list.map(1)", 10, "`map` takes an arrow function here"),
        ("list.map()", 6, "`map` takes an arrow function"),
        ("list.map(x => { x })", 15, "The body of an arrow function must be one expression"),
        ("x => x", 1, "An arrow function can only be passed to a method like `map` or `filter`"),
        ("Math.rnd(1)", 6, "Unknown function `Math.rnd`; did you mean `Math.round`?"),
        ("Math", 1, "`Math` can only be called, as in `Math.abs(…)`"),
        ("pareInt('1')", 1, "Unknown function `pareInt`; did you mean `parseInt`?"),
        ("a.constructor", 3, "`constructor` cannot be read"),
        ("a['__proto__']", 3, "`__proto__` cannot be read"),
        ("'abc", 1, "The string is not closed"),
        ("(1", 3, "`)` is missing at the end"),
        ("1 +", 4, "Unexpected end of the expression"),
        ("", 1, "Expected an expression"),
        ("a b", 3, "Unexpected `b`"),
        ("a and b", 3, "Unexpected `and`; the logical and is `&&`"),
        ("len(a)", 1, "Unknown function `len`; write `value.length`"),
        ("a.contains('x')", 3, "Unknown method `contains`; use `includes`"),
        ("{{ a }}", 2, "`{{` inside an expression; remove the braces"),
        ("10n", 1, "BigInt"),
        ("a // b", 3, "Comments are not part of the language"),
        ("f`x`", 2, "Tagged templates are not supported"),
        ("list.map(Number.", 10, "`map` takes an arrow function here"),
        ("Object.assign(a, b)", 1, "changes its first argument"),
    ],
)
def test_unsupported_syntax_is_reported_with_its_column(source: str, column: int, message: str) -> None:
    with pytest.raises(ExprError) as caught:
        compile(source)
    assert message in caught.value.message
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("not a", "Unknown name `not`; the logical not is `!`"),
        ("a === None", "Unknown name `None`; write `null`"),
        ("a === True", "Unknown name `True`; write `true`"),
    ],
)
def test_a_keyword_of_another_language_gets_a_hint(source: str, message: str) -> None:
    with pytest.raises(ExprError) as caught:
        compile(source, names=["a"])
    assert caught.value.message == message


@pytest.mark.parametrize("hint", [hint for hint in reserved_names.FUNCTION_HINTS.values() if "write" in hint])
def test_the_suggested_syntax_is_valid(hint: str) -> None:
    (code,) = re.findall("`([^`]+)`", hint)
    compile(code.replace("…", "x"), names=["value", "array", "text", "part"])


def test_an_unknown_name_is_found_before_anything_runs() -> None:
    with pytest.raises(ExprError, match="Unknown name `contxt`; did you mean `context`\\?"):
        compile("contxt.test.success", names={"context", "inputs"})
    assert compile("list.map(x => x + y)", names={"list", "y"}).names == {"list", "y"}


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(ExprError) as caught:
        compile("inputs.a &&\n  inputs.fliter(x => x)")
    assert str(caught.value).splitlines()[1:] == ["      inputs.fliter(x => x)", "             ^^^^^^"]
    assert (caught.value.line, caught.value.column, caught.value.offset) == (2, 10, 21)


def test_a_long_line_is_shown_around_the_caret() -> None:
    with pytest.raises(ExprError) as caught:
        compile(f"{'a + ' * 40}=")
    line, caret = str(caught.value).splitlines()[1:]
    assert len(line) < 110
    assert line[caret.index("^")] == "="


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("inputs.missing.deeper", "`inputs.missing` is undefined; write `?.deeper` if it may be missing"),
        ("inputs.nothing[0]", "Cannot read a property of null"),
        ("inputs.name.map(x => x)", "`map` is a method of arrays, not of a string"),
        ("inputs.missing.slice(1)", "`slice` is called on undefined"),
        ("nobody.there", "`nobody` is not defined"),
        ("[...inputs.count]", "Cannot spread a number"),
        ("'a'.repeat(-1)", "`repeat` takes a finite, non-negative count"),
        ("JSON.parse('{')", "Invalid JSON"),
        ("inputs['const' + 'ructor']", "`constructor` cannot be read"),
        ("inputs.name.slice", "methods can only be called"),
        ("[].reduce((a, b) => a)", "`reduce` of an empty array needs an initial value"),
        (
            "[2, 1].toSorted((a, b) => a > b)",
            "Inconsistent compare function: return a negative number, 0, or a positive number",
        ),
    ],
)
def test_an_evaluation_error_has_its_position(source: str, message: str) -> None:
    with pytest.raises(EvalError) as caught:
        compile(source)(SCOPE)
    assert message in caught.value.message
    assert "^" in str(caught.value)


def test_an_id_with_hyphens_is_known_after_a_dot() -> None:
    scope = {"context": {"check-results": {"success": True}, "check": 5, "2nd-try": 7}, "results": 2}
    known = {"check-results", "check-results-again", "2nd-try"}
    assert compile("context.check-results.success", hyphens=known)(scope) is True
    assert compile("context?.check-results?.success", hyphens=known)(scope) is True
    assert compile("context.2nd-try + 1", hyphens=known)(scope) == 8
    assert compile("context.check-results", hyphens={"other-one"})(scope) == 3
    assert compile("context.check -results", hyphens=known)(scope) == 3
    assert compile("context.check-results", hyphens=known).paths == {("context", "check-results")}


def test_the_same_text_is_compiled_once() -> None:
    assert compile("1 + 1", {"a"}) is compile("1 + 1", ["a"])
