# ruff: noqa: E501
"""Mistakes in JSON files: each is one error, where it stands, with its fix."""

import pytest

from notations.mistakes.checking import Check

MISTAKES = [
    ("an empty file", "", '1:1: The file is empty. Start with \'{"id": …, "steps": […]}\'.'),
    ("nothing but a comment", "// to do\n", "1:1: JSON has no comments. Use a `description`."),
    (
        "a list instead of a workflow",
        "[]",
        '1:1: A workflow must be an object, got a list. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    (
        "a text instead of a workflow",
        '"flow"',
        '1:1: A workflow must be an object, got \'flow\'. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    ("YAML in a JSON file", "name: flow\n", "1:1: 'name' is not a JSON value. Put strings in double quotes."),
    (
        "Lisp in a JSON file",
        "(workflow flow (state a))\n",
        "1:1: This looks like lisp, but is parsed as json. Give the file the suffix .lisp, or fix its first line.",
    ),
    (
        "a block of Markdown",
        "```json\n{}\n```\n",
        "1:1: This is a block of Markdown. Remove the lines with ```.",
    ),
    (
        "a byte order mark",
        b'\xef\xbb\xbf{"id": "flow"}',
        "1:1: The file starts with a byte order mark. Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "UTF-16",
        b'\xff\xfe{\x00"\x00i\x00d\x00"\x00',
        "1:1: This is not UTF-8 text (it looks like UTF-16). Save the file as UTF-8, without a byte order mark.",
    ),
    ("a comma before a bracket", '{"id": "flow",}', "1:14: A comma before '}'. Remove it."),
    (
        "a comma before the end of a list",
        '{"id": "flow", "steps": [1,]}',
        "1:27: A comma before ']'. Remove it.",
    ),
    (
        "a missing comma",
        '{\n  "id": "flow"\n  "steps": []\n}',
        "3:3: A comma is missing before this. Put a ',' after the previous item.",
    ),
    ("a missing colon", '{"id" "flow"}', "1:7: Expected ':' after the key 'id'. Write \"key\": value."),
    ("single quotes", "{'id': 'flow'}", "1:2: A string in single quotes. Use double quotes."),
    (
        "typographic quotes",
        "{“id”: “flow”}",
        "1:2: Expected a key in double quotes, found '“'. Use plain double quotes: \"…\".",
    ),
    ("a key without quotes", '{id: "flow"}', '1:2: The key id is not in double quotes. Write "id".'),
    (
        "a text without quotes",
        '{"id": flow}',
        "1:8: 'flow' is not a JSON value. Put strings in double quotes.",
    ),
    ("a comment", '{\n  // to do\n  "id": "flow"\n}', "2:3: JSON has no comments. Use a `description`."),
    (
        "unclosed bracket",
        '{"id": "flow", "steps": [\n{"id": "a"}\n',
        "1:25: This '[' is never closed. Add a ']'.",
    ),
    (
        "a bracket of the wrong kind",
        '{"id": "flow", "steps": [1}',
        "1:27: Expected ']' for the '[' at 1:25, found '}'. Change it.",
    ),
    (
        "a string that is never closed",
        '{"id": "flow,\n "steps": []}',
        "1:8: The string does not end on its line. Add a '\"', or write \\n inside it.",
    ),
    (
        "a line break in a string",
        '{"id": "flow", "description": "one\ntwo"}',
        "1:31: The string does not end on its line. Add a '\"', or write \\n inside it.",
    ),
    (
        "an escape that JSON has not",
        '{"id": "\\d"}',
        "1:9: Invalid escape in a JSON string. Write a backslash as \\\\.",
    ),
    ("a word of Python", '{"parallel": True}', "1:14: 'True' is not a JSON value. Write true."),
    ("no value of Python", '{"parallel": None}', "1:14: 'None' is not a JSON value. Write null."),
    ("a number that is none", '{"max_iterations": NaN}', "1:20: NaN is not a number in JSON. Use null."),
    (
        "a number with a zero before it",
        '{"max_iterations": 03}',
        "1:20: Invalid number. Write numbers like 12, -3.5 or 1e6.",
    ),
    (
        "a number that is too large",
        '{"max_iterations": 99999999999999999999}',
        '1:20: 99999999999999999999 is beyond ±2^53. Write it as a string: "…".',
    ),
    (
        "a key twice",
        '{"id": "flow",\n "id": "other"}',
        "2:2: The key 'id' is duplicated; it is also on line 1. Keep one.",
    ),
    (
        "two workflows",
        '{"id": "flow"}\n{"id": "other"}',
        "2:1: Unexpected text after the end of the JSON value. Remove it.",
    ),
    (
        "no id",
        '{"steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        '1:1: \'id\' of the workflow is missing. Add "id": "a-name".',
    ),
    (
        "a name instead of an id",
        '{"name": "flow", "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:2: Unknown key 'name' in a workflow. Did you mean 'id'?",
    ),
    (
        "an id that is a number",
        '{"id": 3, "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:8: 'id' of a workflow must be a non-empty string, got 3. Put it in double quotes.",
    ),
    (
        "no steps",
        '{"id": "flow"}',
        '1:1: A workflow must have \'steps\' or \'body\'. Write {"id": "a-name", "steps": [{…}]}.',
    ),
    (
        "misspelt steps",
        '{"id": "flow", "stpes": []}',
        "1:16: Unknown key 'stpes' in a workflow. Did you mean 'steps'?",
    ),
    (
        "nodes instead of steps",
        '{"id": "flow", "nodes": []}',
        "1:16: Unknown key 'nodes' in a workflow. Did you mean 'steps'?",
    ),
    (
        "a misspelt body",
        '{"name": "flow", "bdy": {}}',
        "1:18: Unknown key 'bdy' in a workflow. Did you mean 'body'?",
    ),
    (
        "steps and a body",
        '{"id": "flow", "steps": [], "body": {}}',
        "1:29: A workflow must have either 'steps' or 'body', not both. Remove one of them.",
    ),
    ("empty steps", '{"id": "flow", "steps": []}', "1:25: No steps in the workflow. Add at least one step."),
    (
        "steps that are an object",
        '{"id": "flow", "steps": {"a": {}}}',
        "1:25: 'steps' of a workflow must be a list of steps, got an object. Put the steps in brackets: [{…}, {…}].",
    ),
    (
        "a step that is a text",
        '+"a"',
        '2:1: A step must be an object, got \'a\'. Write {"id": …, "type": …}.',
    ),
    (
        "a misspelt key of the workflow",
        '{"id": "flow", "maxIterations": 3, "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:16: Unknown key 'maxIterations' in a workflow. Did you mean 'max_iterations'?",
    ),
    (
        "a number in quotes",
        '{"id": "flow", "max_iterations": "3", "steps": [{"id": "plan", "type": "agent", "agent": "claude"}]}',
        "1:34: 'max_iterations' of a workflow must be a non-negative integer, got '3'. Write a number such as 3.",
    ),
    (
        "a step without an id",
        '+{"type": "agent", "agent": "claude"}',
        '2:1: Missing \'id\' in step 1 of type agent. Add "id": "a-name".',
    ),
    (
        "a step without a type",
        '+{"id": "a", "agent": "claude"}',
        "2:1: Missing 'type' in step 'a'. Valid types: agent, approval, parallel, condition, transform, merge.",
    ),
    (
        "a misspelt key for the type",
        '+{"id": "a", "tpye": "agent", "agent": "claude"}',
        "2:13: Unknown key 'tpye' in step 'a'. Did you mean 'type'?",
    ),
    (
        "a kind instead of a type",
        '+{"id": "a", "kind": "agent", "agent": "claude"}',
        "2:13: Unknown key 'kind' in step 'a'. Did you mean 'type'?",
    ),
    (
        "a misspelt type",
        '+{"id": "a", "type": "agnet", "agent": "claude"}',
        "2:21: Unknown step type: agnet. Did you mean 'agent'? Valid types: agent, approval, parallel, condition, transform, merge.",
    ),
    (
        "a type that is none",
        '+{"id": "a", "type": "prompt", "prompt": "Hello"}',
        "2:21: Unknown step type: prompt. Valid types: agent, approval, parallel, condition, transform, merge.",
    ),
    (
        "an id with a blank",
        '+{"id": "my step", "type": "agent", "agent": "claude"}',
        "2:8: 'id' of step 'my step' of type agent must be 1 to 128 letters, digits, '_', '-' and '.', the first a letter, digit or '_', got 'my step'. Write it like \"a-name\".",
    ),
    (
        "two steps with one id",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": "a"},\n{"id": "a", "type": "approval"}',
        "3:8: Duplicate step id 'a'; the first is on line 2. Rename one of them.",
    ),
    (
        "a step without its agent",
        '+{"id": "a", "type": "agent"}',
        "2:1: Missing 'agent' in step 'a' of type agent. Add \"agent\": \"claude\".",
    ),
    (
        "a misspelt agent",
        '+{"id": "a", "type": "agent", "agnet": "claude"}',
        "2:30: Unknown key 'agnet' in step 'a' of type agent. Did you mean 'agent'?",
    ),
    (
        "a prompt of an agent",
        '+{"id": "a", "type": "agent", "agent": "claude", "prompt": "Hello"}',
        "2:49: Unknown key 'prompt' in step 'a' of type agent. Put the prompt in the agent file; the agent gets the input and the results.",
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
        "2:49: Unknown key 'nxt' in step 'a' of type agent. Did you mean 'next'?",
    ),
    (
        "a list of next steps",
        '+{"id": "a", "type": "agent", "agent": "claude", "next": ["plan"]},\n{"id": "plan", "type": "agent", "agent": "claude"}',
        "2:57: 'next' of step 'a' of type agent must be the id of a step, or null for the end, got a list. Name one step.",
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
        "2:64: 'max_retries' of step 'a' of type agent must be the total number of attempts, at least 1 (1 means no retry), got 0. Write a number such as 3.",
    ),
    (
        "another word for attempts",
        '+{"id": "a", "type": "agent", "agent": "claude", "retries": 3}',
        "2:49: Unknown key 'retries' in step 'a' of type agent. Did you mean 'max_retries'?",
    ),
    (
        "a time in words",
        '+{"id": "a", "type": "agent", "agent": "claude", "timeout_ms": "60s"}',
        "2:63: 'timeout_ms' of step 'a' of type agent must be positive milliseconds, got '60s'. Write a number such as 60000 for a minute.",
    ),
    (
        "a time without its unit",
        '+{"id": "a", "type": "agent", "agent": "claude", "timeout": 60}',
        "2:49: Unknown key 'timeout' in step 'a' of type agent. Did you mean 'timeout_ms'?",
    ),
    (
        "an input that is no step",
        '+{"id": "a", "type": "agent", "agent": "claude", "input": "b"}',
        "2:58: 'input' of step 'a' names the unknown step 'b'. Steps: a.",
    ),
    (
        "an input that is an object",
        '+{"id": "a", "type": "agent", "agent": "claude", "input": {"x": 1}}',
        '2:58: \'input\' of step \'a\' of type agent must be the id of a step, or a list of ids, got an object. Write "plan" or ["plan", "code"].',
    ),
    (
        "a misspelt limit",
        '+{"id": "a", "type": "agent", "agent": "claude", "limits": {"token": 1}}',
        "2:60: Unknown key 'token'. Did you mean 'tokens'?",
    ),
    (
        "a condition without ways",
        '+{"id": "a", "type": "condition", "condition": "input"}',
        '2:1: Missing \'then\' and \'else\' in step \'a\' of type condition. Add "then": "a-step" or null, "else": "a-step" or null.',
    ),
    (
        "a misspelt way",
        '+{"id": "a", "type": "condition", "condition": "input", "then": null, "els": null}',
        "2:70: Unknown key 'els' in step 'a' of type condition. Did you mean 'else'?",
    ),
    (
        "a condition with a next step",
        '+{"id": "a", "type": "condition", "condition": "input", "then": null, "else": null, "next": "a"}',
        "2:84: Unknown key 'next' in step 'a' of type condition. Route a condition with 'then' and 'else'.",
    ),
    (
        "a condition that is no text",
        '+{"id": "a", "type": "condition", "condition": true, "then": null, "else": null}',
        "2:47: 'condition' of step 'a' of type condition must be a non-empty string, got true. Put it in double quotes.",
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
        "2:48: Invalid condition: foo > 1: Unknown name `foo`. Available names: context, fields, given, input, inputs, outputs, results, roles, run, steps.",
    ),
    (
        "a step that is not there in a condition",
        '+{"id": "a", "type": "condition", "condition": "context.plan.success", "then": null, "else": null}',
        "2:48: Unknown step 'plan'. Known: a.",
    ),
    (
        "a parallel step without steps",
        '+{"id": "a", "type": "parallel"}',
        "2:1: Missing 'steps' in step 'a' of type parallel. Add \"steps\": [{…}].",
    ),
    (
        "branches instead of steps",
        '+{"id": "a", "type": "parallel", "branches": [{"id": "b", "type": "approval"}]}',
        "2:33: Unknown key 'branches' in step 'a' of type parallel. Did you mean 'steps'?",
    ),
    (
        "a way out of a parallel step",
        '+{"id": "a", "type": "parallel", "steps": [{"id": "b", "type": "approval", "next": "a"}]}',
        "2:75: Unknown key 'next' in step 'b' of type approval. A step in a parallel step has no routes: set the route of the parallel step.",
    ),
    (
        "more successes than steps",
        '+{"id": "a", "type": "parallel", "min_success": 2, "steps": [{"id": "b", "type": "approval"}]}',
        "2:48: min_success of step 'a' is 2, of 1 steps. Lower it.",
    ),
    (
        "a prompt of an approval",
        '+{"id": "a", "type": "approval", "prompt": "Sure?"}',
        "2:33: Unknown key 'prompt' in step 'a' of type approval. Did you mean 'message'?",
    ),
    (
        "an unknown name in a message",
        '+{"id": "a", "type": "approval", "message": "Publish {{ foo }}?"}',
        "2:56: Unknown name `foo`. Available names: context, fields, given, input, inputs, outputs, results, roles, run, steps.",
    ),
    (
        "a rejection that leads nowhere",
        '+{"id": "a", "type": "approval", "on_reject": "b"}',
        "2:46: Unknown step 'b'. Steps: a.",
    ),
    (
        "an expression instead of a transform",
        '+{"id": "a", "type": "transform", "expression": "input"}',
        "2:34: Unknown key 'expression' in step 'a' of type transform. Did you mean 'transform'?",
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
        "2:39: 'workflow:' does not name a workflow. Write workflow:<id>.",
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
        "1:26: A node needs a 'kind'. Known: call, prompt, bash, gate, cancel, wait, graph, sequence, while, loop, branch, switch, map, reduce, parallel, machine, goto, transform, emit, assert, retract, workflow, merge, file.",
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
        "1:71: 'retry' must be an object, got 3. Keys: attempts, delay, factor, cap, jitter, on, on_text, not_on_text.",
    ),
    (
        "a fraction in the place of a number",
        '{"name": "flow", "body": {"kind": "loop", "times": 1.5, "body": {"kind": "prompt", "text": "Hello"}}}',
        "1:52: 'times' must be an integer or a string, got 1.5. Write a number such as 3.",
    ),
]
"""What is wrong, the text (the steps of a workflow where it begins with a plus), and all that is told."""


@pytest.mark.parametrize(("text", "told"), [pytest.param(*row, id=what) for what, *row in MISTAKES])
def test_a_mistake_is_one_error_with_a_fix(nerve_check: Check, text: str | bytes, told: str) -> None:
    if isinstance(text, str) and text.startswith("+"):
        text = f'{{"id": "flow", "steps": [\n{text[1:]}]}}'
    assert nerve_check(text, "flow.json") == (1, [told])
