# ruff: noqa: E501
"""Mistakes in JSON files: each is one error, where it stands, with its fix."""

import pytest

from notations.mistakes.checking import Check

MISTAKES = [
    ("an empty file", "", '1:1: the file is empty. Start with \'{"id": …, "steps": […]}\'.'),
    ("nothing but a comment", "// to do\n", "1:1: JSON has no comments. Use a `description`."),
    (
        "a list instead of a workflow",
        "[]",
        '1:1: a workflow is an object, not a list. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    (
        "a text instead of a workflow",
        '"flow"',
        '1:1: a workflow is an object, not \'flow\'. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    ("YAML in a JSON file", "name: flow\n", "1:1: 'name' is not a JSON value. Put strings in double quotes."),
    (
        "Lisp in a JSON file",
        "(workflow flow (state a))\n",
        "1:1: this looks like lisp, and is read as json. Give the file the ending .lisp, or mend its beginning.",
    ),
    (
        "a block of Markdown",
        "```json\n{}\n```\n",
        "1:1: this is a block of Markdown. Remove the lines with ```.",
    ),
    (
        "a byte order mark",
        b'\xef\xbb\xbf{"id": "flow"}',
        "1:1: the file starts with a byte order mark. Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "UTF-16",
        b'\xff\xfe{\x00"\x00i\x00d\x00"\x00',
        "1:1: this is not UTF-8 text (it looks like UTF-16). Save the file as UTF-8, without a byte order mark.",
    ),
    ("a comma before a bracket", '{"id": "flow",}', "1:14: a comma before '}'. Remove it."),
    (
        "a comma before the end of a list",
        '{"id": "flow", "steps": [1,]}',
        "1:27: a comma before ']'. Remove it.",
    ),
    (
        "a missing comma",
        '{\n  "id": "flow"\n  "steps": []\n}',
        "3:3: a comma is missing before this. Put a ',' after the previous item.",
    ),
    ("a missing colon", '{"id" "flow"}', "1:7: expected ':' after the key 'id'. Write \"key\": value."),
    ("single quotes", "{'id': 'flow'}", "1:2: a string in single quotes. Use double quotes."),
    (
        "typographic quotes",
        "{“id”: “flow”}",
        "1:2: expected a key in double quotes, found '“'. Use plain double quotes: \"…\".",
    ),
    ("a key without quotes", '{id: "flow"}', '1:2: the key id is not in double quotes. Write "id".'),
    (
        "a text without quotes",
        '{"id": flow}',
        "1:8: 'flow' is not a JSON value. Put strings in double quotes.",
    ),
    ("a comment", '{\n  // to do\n  "id": "flow"\n}', "2:3: JSON has no comments. Use a `description`."),
    (
        "unclosed bracket",
        '{"id": "flow", "steps": [\n{"id": "a"}\n',
        "1:25: this '[' is never closed. Add a ']'.",
    ),
    (
        "a bracket of the wrong kind",
        '{"id": "flow", "steps": [1}',
        "1:27: expected ']' for the '[' at 1:25, found '}'. Change it.",
    ),
    (
        "a string that is never closed",
        '{"id": "flow,\n "steps": []}',
        "1:8: the string does not end on its line. Add a '\"', or write \\n inside it.",
    ),
    (
        "a line break in a string",
        '{"id": "flow", "description": "one\ntwo"}',
        "1:31: the string does not end on its line. Add a '\"', or write \\n inside it.",
    ),
    (
        "an escape that JSON has not",
        '{"id": "\\d"}',
        "1:9: invalid escape in a JSON string. Write a backslash as \\\\.",
    ),
    ("a word of Python", '{"parallel": True}', "1:14: 'True' is not a JSON value. Write true."),
    ("no value of Python", '{"parallel": None}', "1:14: 'None' is not a JSON value. Write null."),
    ("a number that is none", '{"max_iterations": NaN}', "1:20: NaN is not a number in JSON. Use null."),
    (
        "a number with a zero before it",
        '{"max_iterations": 03}',
        "1:20: invalid number. Write numbers like 12, -3.5 or 1e6.",
    ),
    (
        "a number that is too large",
        '{"max_iterations": 99999999999999999999}',
        '1:20: 99999999999999999999 is beyond ±2^53. Write it as a string: "…".',
    ),
    (
        "a key twice",
        '{"id": "flow",\n "id": "other"}',
        "2:2: the key 'id' is duplicated; it is also on line 1. Keep one.",
    ),
    (
        "two workflows",
        '{"id": "flow"}\n{"id": "other"}',
        "2:1: unexpected text after the end of the JSON value. Remove it.",
    ),
    (
        "no id",
        '{"steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        '1:1: the workflow has no \'id\'. Add "id": "a-name".',
    ),
    (
        "a name instead of an id",
        '{"name": "flow", "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:2: a workflow has no key 'name'. Did you mean 'id'?",
    ),
    (
        "an id that is a number",
        '{"id": 3, "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:8: 'id' of a workflow must be a text that is not empty, not 3. Put it in double quotes.",
    ),
    (
        "no steps",
        '{"id": "flow"}',
        '1:1: this is no workflow: it has neither \'steps\' nor a \'body\'. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    (
        "misspelt steps",
        '{"id": "flow", "stpes": []}',
        "1:16: a workflow has no key 'stpes'. Did you mean 'steps'?",
    ),
    (
        "nodes instead of steps",
        '{"id": "flow", "nodes": []}',
        "1:16: a workflow has no key 'nodes'. Did you mean 'steps'?",
    ),
    (
        "a misspelt body",
        '{"name": "flow", "bdy": {}}',
        "1:18: a workflow has no key 'bdy'. Did you mean 'body'?",
    ),
    (
        "steps and a body",
        '{"id": "flow", "steps": [], "body": {}}',
        "1:29: a workflow has either 'steps' or a 'body'. Remove one of them.",
    ),
    ("empty steps", '{"id": "flow", "steps": []}', "1:25: the workflow has no steps. Give it at least one."),
    (
        "steps that are an object",
        '{"id": "flow", "steps": {"a": {}}}',
        "1:25: 'steps' of a workflow must be a list of steps, not an object. Put the steps in brackets: [{…}, {…}].",
    ),
    ("a step that is a text", '+"a"', '2:1: a step is an object, not \'a\'. Write {"id": …, "type": …}.'),
    (
        "a misspelt key of the workflow",
        '{"id": "flow", "maxIterations": 3, "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:16: a workflow has no key 'maxIterations'. Did you mean 'max_iterations'?",
    ),
    (
        "a number in quotes",
        '{"id": "flow", "max_iterations": "3", "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:34: 'max_iterations' of a workflow must be a whole number that is not negative, not '3'. Write a number such as 3.",
    ),
    (
        "a step without an id",
        '+{"type": "agent", "agent": "claude"}',
        '2:1: step 1 of type agent has no \'id\'. Add "id": "a-name".',
    ),
    (
        "a step without a type",
        '+{"id": "a", "agent": "claude"}',
        "2:1: step 'a' has no 'type'. Types are: agent, approval, parallel, condition, transform.",
    ),
    (
        "a misspelt key for the type",
        '+{"id": "a", "tpye": "agent", "agent": "claude"}',
        "2:13: step 'a' has no key 'tpye'. Did you mean 'type'?",
    ),
    (
        "a kind instead of a type",
        '+{"id": "a", "kind": "agent", "agent": "claude"}',
        "2:13: step 'a' has no key 'kind'. Did you mean 'type'?",
    ),
    (
        "a misspelt type",
        '+{"id": "a", "type": "agnet", "agent": "claude"}',
        "2:21: Unknown step type: agnet. Did you mean 'agent'? Types are: agent, approval, parallel, condition, transform.",
    ),
    (
        "a type that is none",
        '+{"id": "a", "type": "prompt", "prompt": "Hello"}',
        "2:21: Unknown step type: prompt. Types are: agent, approval, parallel, condition, transform.",
    ),
    (
        "an id with a blank",
        '+{"id": "my step", "type": "agent", "agent": "claude"}',
        "2:8: 'id' of step 'my step' of type agent must be 1 to 128 letters, digits, '_', '-' and '.', the first a letter, digit or '_', not 'my step'. Write it like \"a-name\".",
    ),
    (
        "two steps with one id",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": "a"},\n{"id": "a", "type": "approval"}',
        "3:8: two steps have the id 'a'; the first is in line 2. Rename one of them.",
    ),
    (
        "a step without its agent",
        '+{"id": "a", "type": "agent"}',
        "2:1: step 'a' of type agent has no 'agent'. Add \"agent\": \"claude\".",
    ),
    (
        "a misspelt agent",
        '+{"id": "a", "type": "agent", "agnet": "claude"}',
        "2:30: step 'a' of type agent has no key 'agnet'. Did you mean 'agent'?",
    ),
    (
        "a prompt of an agent",
        '+{"id": "a", "type": "agent", "agent": "claude", "prompt": "Hello"}',
        "2:49: step 'a' of type agent has no key 'prompt'. What an agent is told stands in its file; it is given the input and the results.",
    ),
    (
        "a next step that is not there",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": "b"}',
        "2:57: Unknown step 'b'. Steps: a.",
    ),
    (
        "a misspelt next step",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": "plna"},\n{"id": "plan", "type": "agent", "agent": "claude"}',
        "2:57: Unknown step 'plna'. Did you mean 'plan'? Steps: a, plan.",
    ),
    (
        "a misspelt next",
        '+{"id": "a", "type": "agent", "agent": "claude", "nxt": "plan"},\n{"id": "plan", "type": "agent", "agent": "claude"}',
        "2:49: step 'a' of type agent has no key 'nxt'. Did you mean 'next'?",
    ),
    (
        "a list of next steps",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": ["plan"]},\n{"id": "plan", "type": "agent", "agent": "claude"}',
        "2:57: 'next' of step 'a' of type agent must be the id of a step, or null for the end, not a list. Name one step.",
    ),
    (
        "a step that nothing leads to",
        '+{"id": "a", "type": "agent", "agent": "claude"},\n{"id": "plan", "type": "agent", "agent": "claude"}',
        "3:1: Step 'plan' is unreachable. Name it in 'next' of another step, also where \"parallel\" is true, or remove it.",
    ),
    (
        "steps side by side without next",
        '{"id": "w", "parallel": true, "steps": [\n{"id": "a", "type": "agent", "agent": "claude", "input": []},\n{"id": "plan", "type": "agent", "agent": "claude", "input": []}]}',
        "3:1: Step 'plan' is unreachable. Name it in 'next' of another step, also where \"parallel\" is true, or remove it.",
    ),
    (
        "text without quotes in a condition",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": "c"},\n{"id": "c", "type": "condition", "condition": "context.a.output === ok", "then": null, "else": null}',
        "3:69: Invalid condition: context.a.output === ok: Unknown name `ok`. Put text in quotes: 'ok'.",
    ),
    (
        "a step beside this one",
        '+{"id": "p", "type": "parallel", "steps": [\n{"id": "a", "type": "agent", "agent": "claude"},\n{"id": "b", "type": "transform", "transform": "results.a"}]}',
        "4:48: Step 'a' runs in parallel with this one. Read it in a step after the parallel step.",
    ),
    (
        "a handler that is not there",
        '+{"id": "a", "type": "agent", "agent": "claude", "on_error": "b"}',
        "2:61: Unknown step 'b'. Steps: a.",
    ),
    (
        "no attempts",
        '+{"id": "a", "type": "agent", "agent": "claude", "max_retries": 0}',
        "2:64: 'max_retries' of step 'a' of type agent must be the number of attempts in all, at least 1 (1 is no retry), not 0. Write a number such as 3.",
    ),
    (
        "another word for attempts",
        '+{"id": "a", "type": "agent", "agent": "claude", "retries": 3}',
        "2:49: step 'a' of type agent has no key 'retries'. Did you mean 'max_retries'?",
    ),
    (
        "a time in words",
        '+{"id": "a", "type": "agent", "agent": "claude", "timeout_ms": "60s"}',
        "2:63: 'timeout_ms' of step 'a' of type agent must be milliseconds, more than 0, not '60s'. Write a number such as 60000, a minute.",
    ),
    (
        "a time without its unit",
        '+{"id": "a", "type": "agent", "agent": "claude", "timeout": 60}',
        "2:49: step 'a' of type agent has no key 'timeout'. Did you mean 'timeout_ms'?",
    ),
    (
        "an input that is no step",
        '+{"id": "a", "type": "agent", "agent": "claude", "input": "b"}',
        "2:58: 'input' of step 'a' names no step 'b'. Steps: a.",
    ),
    (
        "an input that is an object",
        '+{"id": "a", "type": "agent", "agent": "claude", "input": {"x": 1}}',
        '2:58: \'input\' of step \'a\' of type agent must be the id of a step, or a list of ids, not an object. Write "plan" or ["plan", "code"].',
    ),
    (
        "a misspelt limit",
        '+{"id": "a", "type": "agent", "agent": "claude", "limits": {"token": 1}}',
        "2:60: Unknown key 'token'. Did you mean 'tokens'?",
    ),
    (
        "a condition without ways",
        '+{"id": "a", "type": "condition", "condition": "input"}',
        '2:1: step \'a\' of type condition has no \'then\' and no \'else\'. Add "then": "a-step" or null, "else": "a-step" or null.',
    ),
    (
        "a misspelt way",
        '+{"id": "a", "type": "condition", "condition": "input", "then": null, "els": null}',
        "2:70: step 'a' of type condition has no key 'els'. Did you mean 'else'?",
    ),
    (
        "a condition with a next step",
        '+{"id": "a", "type": "condition", "condition": "input", "then": null, "else": null, "next": "a"}',
        "2:84: step 'a' of type condition has no key 'next'. A condition goes on by 'then' and 'else'.",
    ),
    (
        "a condition that is no text",
        '+{"id": "a", "type": "condition", "condition": true, "then": null, "else": null}',
        "2:47: 'condition' of step 'a' of type condition must be a text that is not empty, not true. Put it in double quotes.",
    ),
    (
        "a condition that ends too early",
        '+{"id": "a", "type": "condition", "condition": "context.a >", "then": null, "else": null}',
        "2:59: Invalid condition: context.a >: Unexpected end of the expression. See docs/reference/expressions.md for the syntax of expressions.",
    ),
    (
        "a condition in Python",
        '+{"id": "a", "type": "condition", "condition": "not input", "then": null, "else": null}',
        "2:48: Invalid condition: not input: Unknown name `not`; the logical not is `!`",
    ),
    (
        "an unknown name in a condition",
        '+{"id": "a", "type": "condition", "condition": "foo > 1", "then": null, "else": null}',
        "2:48: Invalid condition: foo > 1: Unknown name `foo`. Available names: context, given, input, inputs, results, roles, run, steps.",
    ),
    (
        "a step that is not there in a condition",
        '+{"id": "a", "type": "condition", "condition": "context.plan.success", "then": null, "else": null}',
        "2:48: Unknown step 'plan'. Known: a.",
    ),
    (
        "a parallel step without steps",
        '+{"id": "a", "type": "parallel"}',
        "2:1: step 'a' of type parallel has no 'steps'. Add \"steps\": [{…}].",
    ),
    (
        "branches instead of steps",
        '+{"id": "a", "type": "parallel", "branches": [{"id": "b", "type": "approval"}]}',
        "2:33: step 'a' of type parallel has no key 'branches'. Did you mean 'steps'?",
    ),
    (
        "a way out of a parallel step",
        '+{"id": "a", "type": "parallel", "steps": [{"id": "b", "type": "approval", "next": "a"}]}',
        "2:75: step 'b' of type approval has no key 'next'. A step in a parallel step leads nowhere: let the parallel step go on.",
    ),
    (
        "more successes than steps",
        '+{"id": "a", "type": "parallel", "min_success": 2, "steps": [{"id": "b", "type": "approval"}]}',
        "2:48: min_success of step 'a' is 2, of 1 steps. Lower it.",
    ),
    (
        "a prompt of an approval",
        '+{"id": "a", "type": "approval", "prompt": "Sure?"}',
        "2:33: step 'a' of type approval has no key 'prompt'. Did you mean 'message'?",
    ),
    (
        "an unknown name in a message",
        '+{"id": "a", "type": "approval", "message": "Publish {{ foo }}?"}',
        "2:56: Unknown name `foo`. Available names: context, given, input, inputs, results, roles, run, steps.",
    ),
    (
        "a rejection that leads nowhere",
        '+{"id": "a", "type": "approval", "on_reject": "b"}',
        "2:46: Unknown step 'b'. Steps: a.",
    ),
    (
        "an expression instead of a transform",
        '+{"id": "a", "type": "transform", "expression": "input"}',
        "2:34: step 'a' of type transform has no key 'expression'. Did you mean 'transform'?",
    ),
    (
        "a function in a transform",
        '+{"id": "a", "type": "transform", "transform": "function (x) { return x }"}',
        "2:48: `function` is not part of the language; write an arrow function `x => …`",
    ),
    (
        "a call of the world in a transform",
        '+{"id": "a", "type": "transform", "transform": "fetch(\'x\')"}',
        "2:48: Unknown function `fetch`. See docs/reference/expressions.md for the syntax of expressions.",
    ),
    (
        "a workflow without its name",
        '+{"id": "a", "type": "agent", "agent": "workflow:"}',
        "2:39: 'workflow:' names no workflow. Write workflow:<id>.",
    ),
    (
        "CRLF before a mistake",
        '+\r\n\r\n{"id": "a", "type": "agent", "agent": "claude", "next": "b"}',
        "4:57: Unknown step 'b'. Steps: a.",
    ),
    (
        "wide characters before a mistake",
        '+{"id": "a", "type": "agent", "agent": "claude", "description": "日本語", "next": "b"}',
        "2:79: Unknown step 'b'. Steps: a.",
    ),
    (
        "a misspelt kind in the full form",
        '{"name": "flow", "body": {"kind": "promt"}}',
        "1:35: Unknown kind 'promt'. Did you mean 'prompt'?",
    ),
    (
        "a misspelt kind on error",
        '{"name": "flow", "body": {"kind": "bash", "command": "ls", "on_error": {"kind": "bsh"}}}',
        "1:81: Unknown kind 'bsh'. Did you mean 'bash'?",
    ),
    (
        "no kind in the full form",
        '{"name": "flow", "body": {"text": "Hello"}}',
        "1:26: A node needs a 'kind'. Known: call, prompt, bash, gate, wait, graph, sequence, while, loop, branch, switch, map, reduce, parallel, machine, goto, transform, emit, assert, retract, workflow.",
    ),
    (
        "an id in the full form",
        '{"id": "flow", "body": {"kind": "prompt", "text": "Hello"}}',
        "1:2: Unknown key 'id'. Did you mean 'name'?",
    ),
    (
        "a body that is a text",
        '{"name": "flow", "body": "Hello"}',
        "1:26: 'body' must be an object, got \"Hello\". Write keys and values.",
    ),
    (
        "a number in the place of an object",
        '{"name": "flow", "body": {"kind": "prompt", "text": "Hello", "retry": 3}}',
        "1:71: 'retry' must be an object, got 3. Keys: attempts, delay, factor, cap, jitter, on.",
    ),
    (
        "a fraction in the place of a number",
        '{"name": "flow", "body": {"kind": "loop", "times": 1.5, "body": {"kind": "prompt", "text": "Hello"}}}',
        "1:52: 'times' must be an integer or a string, got 1.5. Write a number such as 3.",
    ),
]
"""What is wrong, the text (the steps of a workflow where it begins with a plus), and all that is told."""


@pytest.mark.parametrize(("text", "told"), [pytest.param(*row, id=what) for what, *row in MISTAKES])
def test_a_mistake_is_one_error_that_says_how_to_mend_it(
    nerve_check: Check, text: str | bytes, told: str
) -> None:
    if isinstance(text, str) and text.startswith("+"):
        text = f'{{"id": "flow", "steps": [\n{text[1:]}]}}'
    assert nerve_check(text, "flow.json") == (1, [told])
