# ruff: noqa: E501
"""Mistakes in YAML files: each is one error, where it stands, with its fix."""

import pytest

from notations.mistakes.checking import Check

HEAD = "name: flow\ndescription: What it is for.\n"

MISTAKES = [
    ("an empty file", "", "1:1: The file is empty. Start with 'name: …'."),
    ("a file of comments", "# to do\n", "1:1: The file is empty. Start with 'name: …'."),
    (
        "a list instead of a workflow",
        "- step: plan\n",
        "1:1: A workflow must be a mapping, got a list. Start with 'name: …'.",
    ),
    (
        "a text instead of a workflow",
        "hello\n",
        "1:1: A workflow must be a mapping, got 'hello'. Start with 'name: …'.",
    ),
    (
        "Lisp in a YAML file",
        "(workflow flow (state a))\n",
        "1:1: This looks like lisp, but is parsed as yaml. Give the file the suffix .lisp, or fix its first line.",
    ),
    (
        "a block of Markdown",
        "```yaml\nname: flow\n```\n",
        "1:1: This is not YAML: this is a block of Markdown. Remove the lines with ```.",
    ),
    (
        "a byte order mark",
        b"\xef\xbb\xbfname: flow\n",
        "1:1: The file starts with a byte order mark. Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "UTF-16",
        b"\xff\xfen\x00a\x00m\x00e\x00:\x00 \x00f\x00l\x00o\x00w\x00\n\x00",
        "1:1: This is not UTF-8 text (it looks like UTF-16). Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "Latin-1",
        b"name: fl\xf6w\n",
        "1:9: This is not UTF-8 text: the byte 0xf6. Save the file as UTF-8, without a byte order mark.",
    ),
    (
        "a control character",
        "name: flow\x07\n",
        "1:11: The character U+0007 is not allowed. Remove it, or escape it in quotes.",
    ),
    (
        "a second document",
        "name: flow\n---\nname: other\n",
        "2:1: A second document is not allowed. Keep one workflow in a file.",
    ),
    (
        "a tab as indentation",
        "+nodes:\n\t- id: a\n",
        "4:1: This is not YAML: a tab in the indentation. Indent with spaces, not tabs.",
    ),
    (
        "a tab behind spaces",
        "+nodes:\n  - id: a\n  \tprompt: Hello\n",
        "5:3: This is not YAML: a tab in the indentation. Indent with spaces, not tabs.",
    ),
    (
        "a no-break space as indentation",
        "+nodes:\n  \xa0- id: a\n",
        "4:3: A no-break space (U+00A0) in the indentation. Indent with plain spaces.",
    ),
    (
        "no blank behind a colon",
        "name:flow\ndescription: What it is for.\n",
        "1:5: This is not YAML: missing space after the colon of a key. Write 'key: value'.",
    ),
    (
        "no blank behind a dash",
        "+steps:\n  -step: plan\n",
        "4:3: 'steps' must be a list, got a mapping. Write '- step', with a dash and a space before each.",
    ),
    (
        "a line between two indentations",
        "+nodes:\n  - id: a\n   prompt: Hello\n",
        "5:4: This is not YAML: inconsistent indentation. Indent the line like the other lines of its block.",
    ),
    (
        "a line that is indented too far",
        "+nodes:\n  - id: a\n     prompt: Hello\n",
        "5:12: This is not YAML: a ': ' where a key is not allowed. Put quotes around a string that contains ': ', or fix the indentation.",
    ),
    (
        "a colon in a text without quotes",
        "+nodes:\n  - id: a\n    prompt: Look here: now\n",
        "5:22: This is not YAML: a ': ' where a key is not allowed. Put quotes around a string that contains ': ', or fix the indentation.",
    ),
    (
        "a quote in a text with quotes",
        "+nodes:\n  - id: a\n    prompt: 'it's'\n",
        "5:17: This is not YAML: expected a key here. Check the indentation, and put quotes around a string that contains quotes.",
    ),
    (
        "unclosed quote",
        '+nodes:\n  - id: a\n    prompt: "Hello\n  - id: b\n    bash: ls\n',
        "5:13: This is not YAML: unclosed quote. Close the quote.",
    ),
    (
        "unclosed bracket",
        "+nodes:\n  - id: a\n    prompt: Hello\n    depends_on: [b\n  - id: b\n    bash: ls\n",
        "6:17: This is not YAML: unclosed bracket. Close the bracket, or put quotes around the string.",
    ),
    (
        "a text that starts with @",
        "+nodes:\n  - id: a\n    prompt: @you\n",
        "5:13: This is not YAML: a string cannot start with @. Put quotes around it.",
    ),
    (
        "a text that starts with a star",
        "+nodes:\n  - id: a\n    prompt: **now**\n",
        "5:14: This is not YAML: a string cannot start with * or &. Put quotes around it; aliases and anchors are not allowed.",
    ),
    (
        "braces without quotes",
        "+nodes:\n  - id: a\n    prompt: {{ input }}\n",
        "5:14: A key must be a string. Put quotes around '{{ … }}' and around braces.",
    ),
    (
        "a backslash in double quotes",
        '+nodes:\n  - id: a\n    prompt: "\\d"\n',
        "5:14: This is not YAML: unknown escape sequence. Use single quotes around a string with backslashes.",
    ),
    (
        "a long text in the line of its bar",
        "+nodes:\n  - id: a\n    prompt: | Hello\n      you\n",
        "5:15: This is not YAML: unexpected text after the | or > of a block scalar. Start the text on the next line, indented.",
    ),
    (
        "a long text that is not indented",
        "+nodes:\n  - id: a\n    prompt: |\n    Hello\n    you\n",
        "7:5: This is not YAML: a key without ':'. Write 'key: value', with a space after the colon, and indent the lines of a block scalar.",
    ),
    (
        "a key twice",
        "+nodes:\n  - id: a\n    id: b\n    prompt: Hello\n",
        "5:5: The key 'id' is duplicated (first on line 4). Keep one.",
    ),
    (
        "an anchor",
        "+nodes:\n  - &one\n    id: a\n    prompt: Hello\n",
        "4:5: The anchor &one is not allowed. Write the value out.",
    ),
    (
        "a merge key",
        "+nodes:\n  - id: a\n    <<: {timeout: 3}\n    prompt: Hello\n",
        "5:5: The merge key << is not allowed. Write the keys out.",
    ),
    (
        "a tag",
        "+nodes:\n  - id: a\n    prompt: !!str Hello\n",
        "5:13: The tag tag:yaml.org,2002:str is not allowed. Remove it; put quotes around a string.",
    ),
    (
        "a line separator in a long text",
        "+nodes:\n  - id: a\n    prompt: |\n      one\u2028two\n",
        "6:10: This is not YAML: the character U+2028 ends a line. Write a line break or a space.",
    ),
    (
        "a number that is too large",
        "+steps:\n  - step: plan\n    timeout: 99999999999999999999\n",
        "5:14: The number 99999999999999999999 cannot be represented exactly. Put quotes around it if it is a string.",
    ),
    (
        "no name",
        "description: What it is for.\nsteps:\n  - step: plan\n",
        "1:1: 'name' is missing. Add a name: letters, digits, '-' and '_'.",
    ),
    (
        "a misspelt name",
        "nmae: flow\ndescription: What it is for.\nsteps:\n  - step: plan\n",
        "1:1: Unknown key 'nmae'. Did you mean 'name'?",
    ),
    (
        "no description",
        "name: flow\nsteps:\n  - step: plan\n",
        "1:1: 'description' is missing. Say what the workflow does, and when to use it.",
    ),
    (
        "a misspelt description",
        "name: flow\ndescripton: What it is for.\nsteps:\n  - step: plan\n",
        "2:1: Unknown key 'descripton'. Did you mean 'description'?",
    ),
    ("no steps", "+", "1:1: 'steps' is missing. Add at least one '- step: name'."),
    ("empty steps", "+steps: []\n", "3:8: 'steps' is empty. Add at least one '- step: name'."),
    ("misspelt steps", "+stpes:\n  - step: plan\n", "3:1: Unknown key 'stpes'. Did you mean 'steps'?"),
    (
        "one node instead of nodes",
        "+node:\n  - id: a\n    prompt: Hello\n",
        "3:1: Unknown key 'node'. Did you mean 'nodes'?",
    ),
    (
        "another word for steps",
        "+tasks:\n  - step: plan\n",
        "3:1: Unknown key 'tasks'. Did you mean 'steps'?",
    ),
    (
        "steps and nodes",
        "+steps:\n  - step: plan\nnodes:\n  - id: a\n",
        "5:1: A workflow must have only one of steps, nodes. Remove all but one.",
    ),
    (
        "steps that are no list",
        "+steps:\n  step: plan\n",
        "4:3: 'steps' must be a list, got a mapping. Write '- step', with a dash and a space before each.",
    ),
    (
        "a step that is a text",
        "+steps:\n  - plan\n",
        "4:5: A step must be a mapping, got 'plan'. Write '- step: name'.",
    ),
    ("a misspelt key of a step", "+steps:\n  - stp: plan\n", "4:5: Unknown key 'stp'. Did you mean 'step'?"),
    (
        "a step called by its name",
        "+steps:\n  - name: plan\n",
        "4:5: Unknown key 'name'. Did you mean 'step'?",
    ),
    (
        "a prompt in a step",
        "+steps:\n  - id: a\n    prompt: Hello\n",
        "5:5: Unknown key 'prompt'. A step names a Markdown file; write 'nodes' instead of 'steps' for inline prompts.",
    ),
    (
        "a step that depends on another",
        "+steps:\n  - step: plan\n    depends_on: [a]\n",
        "5:5: Unknown key 'depends_on'. Steps run one after the other; write 'nodes' instead of 'steps' for a graph.",
    ),
    (
        "a step with the ending of its file",
        "+steps:\n  - step: plan.md\n",
        "4:11: Step prompt not found: plan.md.md. Omit '.md': plan.",
    ),
    (
        "a prompt that is not there",
        "+steps:\n  - step: plna\n",
        "4:11: Step prompt not found: plna.md. Did you mean 'plan'? Create steps/plna.md.",
    ),
    (
        "a path instead of a name",
        "+steps:\n  - step: ../plan\n",
        "4:11: '../plan' is not a valid file name: up to 128 letters, digits, '.', '_' and '-', the first a letter or a digit. Name a Markdown file in the folder 'steps', without '.md'.",
    ),
    (
        "a flag in quotes",
        "+steps:\n  - step: plan\n    clearContext: 'true'\n",
        "5:20: 'clearContext' must be true or false, got 'true'. Write true or false, without quotes.",
    ),
    (
        "a flag that YAML once had",
        "+steps:\n  - step: plan\n    clearContext: yes\n",
        "5:19: 'clearContext' must be true or false, got 'yes'. Write true or false, without quotes.",
    ),
    (
        "a flag with an underscore",
        "+steps:\n  - step: plan\n    clear_context: true\n",
        "5:5: Unknown key 'clear_context'. Write clearContext.",
    ),
    (
        "another word for retry",
        "+steps:\n  - step: plan\n    retries: 3\n",
        "5:5: Unknown key 'retries'. Did you mean 'retry'?",
    ),
    (
        "attempts as a word",
        "+steps:\n  - step: plan\n    retry: three\n",
        "5:12: 'retry' must be a number of attempts or a mapping, got 'three'. Write 'retry: 3'.",
    ),
    (
        "a time with its unit",
        "+steps:\n  - step: plan\n    timeout: 30s\n",
        "5:14: 'timeout' must be a number, got \"30s\". Write a number such as 30 or 1.5.",
    ),
    (
        "a time in quotes",
        "+steps:\n  - step: plan\n    timeout: '30'\n",
        "5:15: 'timeout' must be a number, got \"30\". Write it without quotes.",
    ),
    (
        "a time before now",
        "+steps:\n  - step: plan\n    timeout: -1\n",
        "5:14: 'timeout' must be at least 0, got -1. Change the value.",
    ),
    (
        "an unknown word on error",
        "+steps:\n  - step: plan\n    on_error: ignore\n",
        "5:15: 'on_error' must be 'fail' or 'skip' or an object, got \"ignore\". Change the value.",
    ),
    (
        "an unknown effect",
        "+steps:\n  - step: plan\n    effect: never\n",
        "5:13: 'effect' must be 'repeat' or 'once', got \"never\". Change the value.",
    ),
    (
        "a text instead of a list",
        "+steps:\n  - step: plan\n    tools: Read\n",
        "5:12: 'tools' must be a list, got \"Read\". Put it in brackets: […].",
    ),
    (
        "a misspelt limit of a step",
        "+steps:\n  - step: plan\n    limits: {token: 3}\n",
        "5:14: Unknown key 'token'. Did you mean 'tokens'?",
    ),
    (
        "a misspelt permission",
        "+steps:\n  - step: plan\n    permissions: {alow: [Read]}\n",
        "5:19: Unknown key 'alow'. Did you mean 'allow'?",
    ),
    (
        "a misspelt check",
        "+steps:\n  - step: plan\n    expect: [{fil: plan.md}]\n",
        "5:15: Unknown key 'fil'. Did you mean 'file'?",
    ),
    (
        "a file outside the artifacts",
        "+steps:\n  - step: plan\n    expect: ../plan.md\n",
        "5:13: The file '../plan.md' leads out of the artifacts. Name a file in the artifacts of the run.",
    ),
    (
        "a node with a misspelt approval",
        "+nodes:\n  - id: a\n    aproval: Merge it?\n",
        "5:5: Unknown key 'aproval'. Did you mean 'approval'?",
    ),
    (
        "a node with a misspelt prompt",
        "+nodes:\n  - id: a\n    promt: Hello\n",
        "5:5: Unknown key 'promt'. Did you mean 'prompt'?",
    ),
    (
        "another word for a script",
        "+nodes:\n  - id: a\n    run: ls\n",
        "5:5: Unknown key 'run'. Did you mean 'bash'?",
    ),
    (
        "a node that does nothing",
        "+nodes:\n  - id: a\n",
        "4:5: The node has no action. Give it exactly one of: prompt, command, bash, gate, approval, merge.",
    ),
    (
        "a node that does two things",
        "+nodes:\n  - id: a\n    prompt: Hello\n    bash: ls\n",
        "4:5: The node has prompt and bash. Give it exactly one of: prompt, command, bash, gate, approval, merge.",
    ),
    (
        "a node without an id",
        "+nodes:\n  - prompt: Hello\n",
        "4:5: 'id' is missing. Give the node a unique name.",
    ),
    (
        "an id that is a number",
        "+nodes:\n  - id: 1\n    prompt: Hello\n",
        "4:9: 'id' must be a string, got 1. Give the node a unique name.",
    ),
    (
        "two nodes with one id",
        "+nodes:\n  - id: a\n    prompt: Hello\n  - id: a\n    prompt: Hello\n",
        "6:9: Duplicate id 'a'. Rename one of them.",
    ),
    (
        "a key of another kind of node",
        "+nodes:\n  - id: a\n    approval: Merge it?\n    model: opus\n",
        "6:5: Unknown key 'model'. Known: id, depends_on, approval, description, when, retry, timeout, idle_timeout, on_error, effect, expect, workspace, on_reject.",
    ),
    (
        "a misspelt depends_on",
        "+nodes:\n  - id: a\n    prompt: Hello\n  - id: b\n    bash: ls\n    dependsOn: [a]\n",
        "8:5: Unknown key 'dependsOn'. Did you mean 'depends_on'?",
    ),
    (
        "another word for depends_on",
        "+nodes:\n  - id: a\n    prompt: Hello\n  - id: b\n    bash: ls\n    needs: [a]\n",
        "8:5: Unknown key 'needs'. Did you mean 'depends_on'?",
    ),
    (
        "a dependency that is not there",
        "+nodes:\n  - id: a\n    prompt: Hello\n  - id: b\n    bash: ls\n    depends_on: [c]\n",
        "8:18: 'b' depends on unknown step 'c'. Known: a.",
    ),
    (
        "a misspelt dependency",
        "+nodes:\n  - id: alpha\n    prompt: Hello\n  - id: b\n    bash: ls\n    depends_on: [alhpa]\n",
        "8:18: 'b' depends on unknown step 'alhpa'. Did you mean 'alpha'?",
    ),
    (
        "dependencies with a comma and no brackets",
        "+nodes:\n  - id: a\n    prompt: Hello\n  - id: b\n    bash: ls\n  - id: c\n    bash: ls\n    depends_on: a, b\n",
        "10:17: 'c' depends on unknown step 'a, b'. Write [a, b].",
    ),
    (
        "a node that depends on itself",
        "+nodes:\n  - id: a\n    prompt: Hello\n    depends_on: [a]\n",
        "6:17: Dependency cycle: a -> a. Remove one of these dependencies, or write a loop.",
    ),
    (
        "nodes that wait for each other",
        "+nodes:\n  - id: a\n    prompt: Hello\n    depends_on: [b]\n  - id: b\n    bash: ls\n    depends_on: [a]\n",
        "6:17: Dependency cycle: a -> b -> a. Remove one of these dependencies, or write a loop.",
    ),
    (
        "a script that is a list",
        "+nodes:\n  - id: a\n    bash: [ls, -l]\n",
        "5:11: 'bash' must be a string, got a list. Write a shell command.",
    ),
    (
        "variables that are a list",
        "+nodes:\n  - id: a\n    bash: ls\n    env: [A=1]\n",
        "6:10: 'env' must be an object, got [\"A=1\"]. Write keys and values.",
    ),
    (
        "a variable that is a number",
        "+nodes:\n  - id: a\n    bash: ls\n    env: {A: 1}\n",
        "6:14: 'A' must be a string, got 1. Put it in double quotes.",
    ),
    (
        "a quote of a script that is not closed",
        '+nodes:\n  - id: a\n    bash: echo "{{ input }}\n',
        "5:20: This script cannot be parsed as bash. Check its quotes and brackets, or run a script file, `bash script.sh {{ … }}`.",
    ),
    (
        "a gate that is a list",
        "+nodes:\n  - id: a\n    gate: [yes, no]\n",
        "5:11: 'gate' must be a question, got a list. Write the question, or a mapping with prompt, message, choices, options, form, reject, default, approvers, quorum, veto, self_approval, author, claim, remind, escalate.",
    ),
    (
        "a misspelt key of a gate",
        "+nodes:\n  - id: a\n    gate: {promt: Sure?}\n",
        "5:12: Unknown key 'promt'. Did you mean 'prompt'?",
    ),
    (
        "a default that is no choice",
        "+nodes:\n  - id: a\n    gate: {prompt: Sure?, choices: [a, b], default: c}\n    timeout: 3\n",
        "5:53: 'c' is not one of the choices ['a', 'b']. Add it to choices.",
    ),
    (
        "a default that is never taken",
        "+nodes:\n  - id: a\n    gate: {prompt: Sure?, choices: [a, b], default: a}\n",
        "5:53: A default answer has no effect without a timeout. Add a timeout.",
    ),
    (
        "an unknown kind of context",
        "+nodes:\n  - id: a\n    prompt: Hello\n    context: new\n",
        "6:14: 'context' must be fresh or shared, got 'new'. Write 'thread: name' for a named conversation.",
    ),
    (
        "inputs that are a list",
        "+inputs: [a]\nsteps:\n  - step: plan\n",
        "3:9: 'inputs' must be a mapping, got a list. Write 'name: string', one per line, or 'name:' with type, description, required and default.",
    ),
    (
        "a misspelt type of an input",
        "+inputs: {a: strng}\nsteps:\n  - step: plan\n",
        "3:13: The input 'a' must be a type or a mapping, got 'strng'. Did you mean 'string'?",
    ),
    (
        "the short name of a type",
        "+inputs: {a: {type: str}}\nsteps:\n  - step: plan\n",
        "3:20: 'type' must be 'string', 'number', 'integer', 'boolean', 'array', 'object' or 'any', got \"str\". Did you mean 'string'?",
    ),
    (
        "a misspelt key of an input",
        "+inputs: {a: {tpye: string}}\nsteps:\n  - step: plan\n",
        "3:14: Unknown key 'tpye'. Did you mean 'type'?",
    ),
    (
        "a default of another type",
        "+inputs: {a: {type: integer, default: x}}\nsteps:\n  - step: plan\n",
        "3:38: The default of input 'a' must be an integer, got 'x'. Change the default or the type.",
    ),
    (
        "an input with a hyphen",
        "+inputs: {my-input: string}\nsteps:\n  - step: plan\n",
        "3:20: Input name 'my-input' is not valid in an expression. Use letters, digits and _.",
    ),
    (
        "limits that are a number",
        "+limits: 3\nsteps:\n  - step: plan\n",
        "3:9: 'limits' must be an object, got 3. Keys: steps, iterations, errors, wall_time, depth, tokens, cost, turns, agents.",
    ),
    (
        "a misspelt limit",
        "+limits: {walltime: 3}\nsteps:\n  - step: plan\n",
        "3:10: Unknown key 'walltime'. Did you mean 'wall_time'?",
    ),
    (
        "an expression that ends too early",
        "+steps:\n  - step: plan\n    when: inputs.x >\n",
        "5:21: Unexpected end of the expression. See docs/reference/expressions.md for the syntax of expressions.",
    ),
    (
        "an assignment",
        "+steps:\n  - step: plan\n    when: input = 'x'\n",
        "5:17: `=` assigns; compare with `===`",
    ),
    (
        "an expression in Python",
        "+steps:\n  - step: plan\n    when: input and true\n",
        "5:17: Unexpected `and`; the logical and is `&&`",
    ),
    (
        "a function of Python",
        "+steps:\n  - step: plan\n    when: len(input) > 1\n",
        "5:11: Unknown function `len`; write `value.length`",
    ),
    (
        "braces around an expression",
        "+steps:\n  - step: plan\n    when: '{{ input }}'\n",
        "5:13: `{{` inside an expression; remove the braces",
    ),
    (
        "a variable of prompts in an expression",
        "+steps:\n  - step: plan\n    when: $ARGUMENTS === 'x'\n",
        "5:11: Unknown name `$ARGUMENTS`. Write input.",
    ),
    (
        "an unknown name in an expression",
        "+steps:\n  - step: plan\n    when: foo > 1\n",
        "5:11: Unknown name `foo`. Available names: context, fields, given, input, inputs, outputs, results, roles, run, steps.",
    ),
    (
        "an input that is not declared",
        "+steps:\n  - step: plan\n    when: inputs.depth > 1\n",
        "5:11: Unknown input 'depth'. Declare it under inputs.",
    ),
    (
        "braces that are not closed",
        "+nodes:\n  - id: a\n    prompt: 'Look at {{ input'\n",
        "5:22: `{{` is not closed; add `}}`, or write `\\{{` for the braces themselves",
    ),
    (
        "a step that is not there in a text",
        "+nodes:\n  - id: a\n    prompt: 'Look at {{ steps.b.output }}'\n",
        "5:25: Unknown step 'b'. Known: a.",
    ),
    (
        "a step beside this one in a text",
        "+nodes:\n  - id: a\n    prompt: 'Look at {{ steps.b.output }}'\n  - id: b\n    bash: ls\n",
        "5:25: Step 'b' runs in parallel with this one. Make this step depend on it.",
    ),
    (
        "an input that is not declared in a text",
        "+nodes:\n  - id: a\n    prompt: Look at $INPUTS.depth\n",
        "5:21: Unknown input 'depth'. Declare it under inputs.",
    ),
    (
        "CRLF before a mistake",
        "+nodes:\r\n  - id: a\r\n    promt: Hello\r\n",
        "5:5: Unknown key 'promt'. Did you mean 'prompt'?",
    ),
    (
        "wide characters before a mistake",
        "+nodes:\n  - id: a\n    prompt: '日本 {{ foo }}'\n",
        "5:20: Unknown name `foo`. Available names: args, context, fields, given, input, inputs, outputs, results, roles, run, steps.",
    ),
    (
        "a misspelt kind in the full form",
        "name: flow\nbody: {kind: sequenc, steps: []}\n",
        "2:14: Unknown kind 'sequenc'. Did you mean 'sequence'?",
    ),
    (
        "no kind in the full form",
        "name: flow\nbody: {steps: []}\n",
        "2:7: A node needs a 'kind'. Known: call, prompt, bash, gate, cancel, wait, graph, sequence, while, loop, branch, switch, map, reduce, parallel, machine, goto, transform, emit, assert, retract, workflow, merge, file.",
    ),
    (
        "a loop without an end",
        "name: flow\nbody:\n  kind: loop\n  body: {kind: prompt, text: Hello}\n",
        "3:3: A loop needs 'times' or 'until'; without them it never ends. Add one of them.",
    ),
    (
        "a state that is not there",
        "name: flow\nbody:\n  kind: machine\n  states:\n    - name: a\n      next: [{to: b}]\n",
        "6:19: Unknown state 'b'. States: a.",
    ),
    (
        "a state that nothing leads to",
        "name: flow\nbody:\n  kind: machine\n  states:\n    - name: a\n    - name: b\n",
        "6:7: State 'b' is unreachable. Add a transition to it, or remove it.",
    ),
]
"""What is wrong, the text (below `HEAD` where it begins with a plus), and all that is told."""


@pytest.mark.parametrize(("text", "told"), [pytest.param(*row, id=what) for what, *row in MISTAKES])
def test_a_mistake_is_one_error_with_a_fix(nerve_check: Check, text: str | bytes, told: str) -> None:
    if isinstance(text, str) and text.startswith("+"):
        text = HEAD + text[1:]
    assert nerve_check(text, "flow.yaml") == (1, [told])
