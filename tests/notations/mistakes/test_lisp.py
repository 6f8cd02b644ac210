# ruff: noqa: E501
"""Mistakes in Lisp files: each is one error, where it stands, with its fix."""

import pytest

from notations.mistakes.checking import Check

HEAD = '(workflow flow\n  (roles (writer :agent-kind "claude"))\n'

MISTAKES = [
    (
        "an empty file",
        "",
        "1:1: The file contains no workflow. Write (workflow NAME (state …) …), or (spec {…}).",
    ),
    (
        "nothing but a comment",
        "; to do\n",
        "1:1: The file contains no workflow. Write (workflow NAME (state …) …), or (spec {…}).",
    ),
    (
        "a word instead of a workflow",
        "hello\n",
        "1:1: Expected a workflow, found hello. Write (workflow NAME (state …) …), or (spec {…}).",
    ),
    (
        "JSON in a Lisp file",
        '{"id": "flow", "steps": []}\n',
        "1:1: This looks like json, but is parsed as lisp. Give the file the suffix .json, or fix its first line.",
    ),
    (
        "a block of Markdown",
        "```lisp\n(workflow flow)\n```\n",
        "1:1: This is a block of Markdown. Remove the lines with ```.",
    ),
    (
        "a byte order mark",
        b"\xef\xbb\xbf(workflow flow)",
        "1:1: The file starts with a byte order mark. Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "a comment as in a shell",
        "# to do\n(workflow flow (state a))\n",
        "1:1: '#' is not allowed in a name. Start a comment with ';'.",
    ),
    (
        "a comment as in C",
        "// to do\n(workflow flow (state a))\n",
        "1:1: Expected a workflow, found //. Start a comment with ';'.",
    ),
    (
        "a comment that is never closed",
        "#| to do\n(workflow flow (state a))\n",
        "1:1: '#|' is never closed. Add a '|#'.",
    ),
    (
        "a string that is never closed",
        '+(log "hello)\n    (log "you")',
        "4:10: The string is never closed. Add a '\"'; write \\\" inside a string.",
    ),
    (
        "a string that is never closed at the end",
        '+(log "hello)',
        "4:10: The string is never closed. Add a '\"'; write \\\" inside a string.",
    ),
    (
        "unclosed bracket",
        '(workflow flow\n  (state a\n    (log "hello")\n',
        "2:3: '(' is never closed. Add a ')'.",
    ),
    (
        "a bracket that is not closed in its line",
        '(workflow flow\n  (state a\n    (log "hello"\n  (state b\n    (log "you")))\n',
        "3:5: '(' is never closed. Add a ')'.",
    ),
    (
        "a bracket too many",
        '(workflow flow\n  (state a (log "hello"))))\n',
        "2:27: ')' has no matching opening bracket. Remove it.",
    ),
    (
        "a bracket too many in the middle",
        '(workflow flow\n  (state a (log "hello")))\n  (state b (log "you")))\n',
        "2:26: ')' has no matching opening bracket. Remove it.",
    ),
    (
        "a bracket of the wrong kind",
        '+(log "hello"]',
        "4:17: Expected ')' for the '(' at 4:5, found ']'. Change it.",
    ),
    (
        "a quote as in other Lisps",
        "+(result 'hello)",
        '4:13: "\'" is not allowed in a name. Put strings in double quotes.',
    ),
    (
        "typographic quotes",
        "+(log “hello”)",
        "4:10: '“' is not allowed in a name. Put strings in double quotes.",
    ),
    ("a comma", "+(result [1, 2])", "4:14: '1,' is not a number. Remove the comma: spaces separate items."),
    ("no blank between two texts", '+(log "a""b")', '4:10: Missing space after "a". Add one.'),
    (
        "an escape that is none",
        '+(log "\\d")',
        '4:11: Unknown escape \\d. Escapes: \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX.',
    ),
    (
        "half a character",
        '+(log "\\ud800")',
        "4:11: \\ud800 is an unpaired surrogate. Write the second half after it.",
    ),
    (
        "a name that begins with a digit",
        "+(result 3x)",
        "4:13: '3x' is not a number. Put strings in double quotes.",
    ),
    (
        "a number that is too large",
        "+(result 99999999999999999999)",
        "4:13: The number 99999999999999999999 is too large. Put numbers beyond ±2^53 in double quotes.",
    ),
    ("a colon without a name", "+(send-prompt : agent writer)", "4:18: A colon without a name. Write :name."),
    (
        "a map with a key and no value",
        "+(node {:kind})",
        "4:12: A key without a value. Write a map as {:key value …}.",
    ),
    (
        "a map with a key twice",
        '+(node {:kind "bash" :kind "gate"})',
        "4:25: The key 'kind' is duplicated. Remove one.",
    ),
    (
        "a map whose key is a word",
        '+(node {kind "bash"})',
        '4:12: A map key must be a keyword or a string. Write :key or "key".',
    ),
    (
        "a map as in JSON",
        '(spec {"name": "flow", "body": {}})\n',
        "1:8: This is JSON syntax. Write {:key value}, without commas.",
    ),
    (
        "a misspelt workflow",
        "(workflw flow (state a))\n",
        "1:1: Unknown form 'workflw'. Did you mean 'workflow'?",
    ),
    (
        "two workflows",
        "(workflow flow (state a))\n(workflow other (state a))\n",
        "2:1: A file must contain only one workflow. Put the others into separate files.",
    ),
    (
        "a workflow without a name",
        "(workflow (state a))\n",
        "1:11: Expected the name of a workflow, found (state a). A name is a symbol or a string.",
    ),
    (
        "a workflow without states",
        "(workflow flow)\n",
        "1:1: A workflow must have at least one state. Add (state NAME BODY …).",
    ),
    (
        "a misspelt state",
        "(workflow flow (stat a))\n",
        "1:16: Unknown form in a workflow 'stat'. Did you mean 'state'?",
    ),
    (
        "a state without a name",
        '(workflow flow (state (log "hello")))\n',
        '1:23: Expected the name of a state, found (log "hello"). A name is a symbol or a string.',
    ),
    (
        "two states with one name",
        "(workflow flow (state a) (state a))\n",
        "1:33: The state 'a' is duplicated. Rename one.",
    ),
    (
        "a state that is not there",
        "(workflow flow (state plan (goto plna)))\n",
        "1:34: Unknown state 'plna'. Did you mean 'plan'?",
    ),
    ("a goto to nowhere", "+(goto)", "4:5: (goto …) takes 1 argument, got 0. Add the missing arguments."),
    (
        "a state that nothing leads to",
        "(workflow flow (state a (terminal)) (state b))\n",
        "1:37: State 'b' is unreachable. Add a transition to it, or remove it.",
    ),
    (
        "something behind the end",
        '+(terminal)\n    (log "hello")',
        "4:5: (terminal) must be the last form of its state. Remove the forms after it.",
    ),
    ("an end with something in it", "+(terminal 1)", "4:5: (terminal) takes no arguments. Write (terminal)."),
    (
        "a section twice",
        "(workflow flow (roles (a)) (roles (b)) (state a))\n",
        "1:28: (roles …) is duplicated. Merge them into one.",
    ),
    (
        "roles without parentheses",
        "(workflow flow (roles writer) (state a))\n",
        '1:23: Expected (name :agent-kind "…"), found writer. Put it in parentheses.',
    ),
    (
        "a misspelt option of a role",
        '(workflow flow (roles (writer :agent-knd "claude")) (state a))\n',
        "1:31: Unknown option of (writer …) 'agent-knd'. Did you mean 'agent-kind'?",
    ),
    (
        "metadata without parentheses",
        '(workflow flow (metadata :label "x") (state a))\n',
        "1:26: Expected (key value), found :label. Put it in parentheses.",
    ),
    (
        "inputs without parentheses",
        "(workflow flow (inputs task) (state a))\n",
        "1:24: Expected (name :type string), found task. Put it in parentheses.",
    ),
    (
        "a misspelt type of an input",
        "(workflow flow (inputs (task :type strng)) (state a))\n",
        "1:36: 'type' must be 'string', 'number', 'integer', 'boolean', 'array', 'object' or 'any', got \"strng\". Did you mean 'string'?",
    ),
    (
        "a misspelt limit",
        "(workflow flow (limits :step 3) (state a))\n",
        "1:24: Unknown option of (limits …) 'step'. Did you mean 'steps'?",
    ),
    (
        "a limit that is a text",
        '(workflow flow (limits :steps "3") (state a))\n',
        "1:31: 'steps' must be an integer, got \"3\". Write it without quotes.",
    ),
    (
        "a misspelt form",
        '+(send-promt :agent writer :template "Go")',
        "4:5: Unknown form 'send-promt'. Did you mean 'send-prompt'?",
    ),
    ("a form of another Lisp", "+(setq x 1)", "4:5: Unknown form 'setq'. Did you mean 'let'?"),
    (
        "an if in the place of a branch",
        '+(if (= 1 1) (log "yes") (log "no"))',
        "4:5: Unknown form 'if'. Did you mean 'branch'?",
    ),
    ("another word for goto", "+(transition b)", "4:5: Unknown form 'transition'. Did you mean 'goto'?"),
    (
        "a text in the place of a form",
        '+"hello"',
        '4:5: Expected a form such as (log …), found "hello". Write a body as forms in parentheses.',
    ),
    (
        "forms in a list of their own",
        '+((log "a") (log "b"))',
        '4:5: Expected a form such as (log …), found ((log "a") (log "b")). Write a body as forms in parentheses.',
    ),
    (
        "a misspelt option",
        '+(send-prompt :agnt writer :template "Go")',
        "4:18: Unknown option of (send-prompt …) 'agnt'. Did you mean 'agent'?",
    ),
    (
        "a missing option",
        '+(send-prompt :template "Go")',
        '4:5: :agent of (send-prompt …) is missing. Write :agent ROLE :template "…".',
    ),
    (
        "an option without a value",
        "+(send-prompt :agent writer :template)",
        "4:32: :template has no value. Write (… :template VALUE).",
    ),
    (
        "an option twice",
        '+(send-prompt :agent writer :agent writer :template "Go")',
        "4:32: :agent is duplicated. Remove one.",
    ),
    (
        "a misspelt role",
        '+(send-prompt :agent wirter :template "Go")',
        "4:25: Unknown role 'wirter'. Did you mean 'writer'?",
    ),
    (
        "a role where there are none",
        '(workflow flow\n  (state a (send-prompt :agent writer :template "Go")))\n',
        "2:32: Unknown role 'writer'. Add (roles (writer)).",
    ),
    (
        "too few arguments of a template",
        '+(log "~a and ~a" 1)',
        "4:10: The template has 2 ~a, got 1 arguments. Pass one argument for each ~a.",
    ),
    (
        "a directive that is unknown",
        '+(log "~s" 1)',
        "4:10: Unknown directive '~s' in a template. Write ~a for a value, ~~ for a tilde.",
    ),
    (
        "an argument that is not in a list",
        '+(send-prompt :agent writer :template "~a" :args (input))',
        "4:54: Unknown name 'input'. Write (input), and in :args ((input)).",
    ),
    (
        "an answer that nobody asked for",
        "+(await (transcript-response :request-id go))",
        "4:45: No send-prompt above has the request id 'go'. Add :tag go to its send-prompt.",
    ),
    (
        "a misspelt condition",
        "+(await (sginal ready))",
        "4:12: Expected a condition, found (sginal ready). Did you mean 'signal'?",
    ),
    (
        "seconds instead of a condition",
        "+(wait 5)",
        "4:11: Expected a condition, found 5. Write (signal …) or (transcript-response …) or (fact …).",
    ),
    (
        "a misspelt function",
        '+(result (joinn (input) ", "))',
        "4:13: Unknown function 'joinn'. Did you mean 'join'?",
    ),
    (
        "a function of another Lisp",
        "+(result (equal 1 2))",
        "4:13: Unknown function 'equal'. Did you mean '='?",
    ),
    (
        "too few arguments of a function",
        "+(result (join (input)))",
        "4:13: (join …) takes 2 arguments, got 1. Add the missing arguments.",
    ),
    (
        "too many arguments of a function",
        "+(result (not true false))",
        "4:13: (not …) takes 1 argument, got 2. Remove the extra arguments.",
    ),
    (
        "an unknown name",
        "+(result foo)",
        "4:13: Unknown name 'foo'. Available: @workflow-id. Put strings in double quotes.",
    ),
    (
        "a misspelt name",
        '+(let ((counter 1)) (log "~a" conter))',
        "4:34: Unknown name 'conter'. Did you mean 'counter'? Put strings in double quotes.",
    ),
    (
        "a name out of its let",
        '+(let ((x 1)) (log "~a" x))\n    (log "~a" x)',
        "5:15: Unknown name 'x'. Available: @workflow-id. Put strings in double quotes.",
    ),
    (
        "names of a let without parentheses",
        '+(let (x 1) (log "~a" x))',
        "4:11: Expected (name EXPR), found x. Put each name and its value in parentheses: ((x 1) (y 2)).",
    ),
    (
        "names of a let in brackets",
        '+(let [x 1] (log "~a" x))',
        "4:11: Expected (name EXPR), found x. Put each name and its value in parentheses: ((x 1) (y 2)).",
    ),
    (
        "a branch without clauses",
        '+(branch (= 1 1) (log "yes"))',
        "4:13: Expected a clause of (branch …), found (= 1 1). Write (on CONDITION BODY …) or (otherwise …).",
    ),
    (
        "a clause behind the last",
        '+(branch (otherwise (log "no")) (on (= 1 1) (log "yes")))',
        "4:36: (otherwise …) must be the last clause. Move it to the end.",
    ),
    (
        "a select without clauses",
        "+(select)",
        "4:5: (select …) takes 1 to 30 (on …) clauses, got 0. Write (on CONDITION BODY …).",
    ),
    (
        "a bound of a loop that is a text",
        '+(loop (log "hello") :max "3")',
        '4:30: Expected an integer of at least 1, found "3". Write a number such as 3.',
    ),
    (
        "seconds that are a text",
        '+(with-timeout "3" (log "hello"))',
        '4:19: Expected seconds, found "3". Write a number such as 30 or 1.5.',
    ),
    (
        "choices without parentheses",
        '+(gate "Sure?" :choices yes)',
        "4:28: Expected a list of answers, found yes. Put it in parentheses.",
    ),
    (
        "a rejection that is no choice",
        '+(gate "Sure?" :choices (yes no) :reject (maybe))',
        "4:45: 'maybe' is not one of the choices ['yes', 'no']. Add it to choices.",
    ),
    (
        "a default that is never taken",
        '+(gate "Sure?" :choices (yes no) :default yes)',
        "4:46: A default answer has no effect without a timeout. Add a timeout.",
    ),
    (
        "two commands",
        '+(bash "ls" "pwd")',
        "4:5: (bash …) takes 1 argument, got 2. Remove the extra arguments.",
    ),
    (
        "variables that are no map",
        '+(bash "ls" :env ((A 1)))',
        "4:21: Expected a map, found ((A 1)). Write {:name value …}.",
    ),
    ("a misspelt kind of a node", '+(node {:kind "bsh"})', "4:18: Unknown kind 'bsh'. Did you mean 'bash'?"),
    (
        "a node whose kind is misspelt",
        '+(node {:knd "bash"})\n    (log "hello")',
        "4:12: Unknown key 'knd'. Did you mean 'kind'?",
    ),
    ("a node that is no map", '+(node "bash")', '4:11: Expected a map, found "bash". Write {:name value …}.'),
    (
        "an input that is not declared",
        "+(result (inputs task))",
        "4:21: Unknown input 'task'. Add (inputs (task)).",
    ),
    (
        "a misspelt input",
        "(workflow flow (inputs (task)) (state a (result (inputs taks))))\n",
        "1:57: Unknown input 'taks'. Did you mean 'task'?",
    ),
    (
        "a helper that calls itself",
        "(defn f (x) (f x))\n(workflow flow (state a (result (f 1))))\n",
        "1:13: The helper 'f' is not defined yet. A helper can only call helpers above it.",
    ),
    (
        "a helper with too many arguments",
        "(defn f (x) x)\n(workflow flow (state a (result (f 1 2))))\n",
        "2:33: (f …) takes 1 argument, got 2. Remove the extra arguments.",
    ),
    (
        "a helper as in Common Lisp",
        "(defun f (x) x)\n(workflow flow (state a (result (f 1))))\n",
        "1:1: Unknown form 'defun'. Did you mean 'defn'?",
    ),
    (
        "a spec that is no map",
        "(spec 3)\n",
        '1:7: (spec …) takes exactly one map. Write (spec {:name "…" :body {…}}).',
    ),
    (
        "a misspelt key of a spec",
        '(spec {:nmae "flow" :body {:kind "bash" :command "ls"}})\n',
        "1:8: Unknown key 'nmae'. Did you mean 'name'?",
    ),
    ("a spec without a body", '(spec {:name "flow"})\n', "1:7: 'body' is missing. Add body."),
    (
        "CRLF before a mistake",
        '(workflow flow\r\n  (state a\r\n    (lgo "hello")))\r\n',
        "3:5: Unknown form 'lgo'. Did you mean 'log'?",
    ),
    (
        "a tab before a mistake",
        '(workflow flow\n\t(state a\n\t\t(lgo "hello")))\n',
        "3:3: Unknown form 'lgo'. Did you mean 'log'?",
    ),
    (
        "wide characters before a mistake",
        '+(log "日本語") (lgo "hello")',
        "4:17: Unknown form 'lgo'. Did you mean 'log'?",
    ),
]
"""What is wrong, the text (the body of a state where it begins with a plus), and all that is told."""


@pytest.mark.parametrize(("text", "told"), [pytest.param(*row, id=what) for what, *row in MISTAKES])
def test_a_mistake_is_one_error_with_a_fix(nerve_check: Check, text: str | bytes, told: str) -> None:
    if isinstance(text, str) and text.startswith("+"):
        text = f"{HEAD}  (state a\n    {text[1:]}))\n"
    assert nerve_check(text, "flow.lisp") == (1, [told])
