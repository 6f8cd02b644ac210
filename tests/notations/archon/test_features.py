"""Each feature of Archon: it is read, checked and run with Archon's meaning, or refused by name."""

import json
import os
from pathlib import Path

import pytest

from nerve.cli.convert import load_file_spec, render_notation
from nerve.notations.workflow_files import discover
from nerve.spec.validation import plain_form
from notations.archon.support import HEAD, errors_of, nodes_of, problems_of, put_workflow, read, run_workflow

JSON_STEP = """
  - id: data
    bash: |
      echo '{"kind": "BUG", "count": 12, "text": "it is", "nothing": null}'
"""


async def test_an_output_is_inserted_into_prompts_conditions_and_commands(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        f"""nodes:{JSON_STEP}
  - id: ask
    prompt: "Kind $data.output.kind of $data.output.count, from $ARGUMENTS, for $5 and \\\\$1 {{{{ x }}}}."
    depends_on: [data]
    when: "$data.output.kind == 'BUG' && $data.output.count >= '9'"
  - id: say
    command: tell
    depends_on: [ask]
""",
        tell="---\ndescription: Tell it.\n---\nThe answer was: $ask.output\nawk '{print $1}'",
    )
    outcome = await run_workflow(path, ["an answer\n", "told"])
    assert outcome.prompts == [
        "Kind BUG of 12, from the message, for $5 and \\$1 {{ x }}.",
        "The answer was: an answer\nawk '{print $1}'",
    ]
    assert outcome.state == "completed"


async def test_the_configuration_names_a_further_folder_with_commands(tmp_path: Path) -> None:
    path = put_workflow(tmp_path, "nodes:\n  - {id: one, command: plan}\n  - {id: two, command: tell}\n")
    for file, text in (
        (".archon/config.yaml", "commands: {folder: prompts/library}"),
        (".archon/commands/tell.md", "Tell it."),
        ("prompts/library/plan.md", "Plan it."),
        ("prompts/library/tell.md", "not used"),
        (".claude/commands/other/plan.md", "not used"),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert (await run_workflow(path, ["planned", "told"])).prompts == ["Plan it.", "Tell it."]


@pytest.mark.parametrize("folder", ["../outside", "/etc", "''", "5"])
def test_a_folder_of_commands_outside_the_project_is_not_read(tmp_path: Path, folder: str) -> None:
    project = tmp_path / "project"
    path = put_workflow(project, "nodes:\n  - {id: one, command: plan}\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/plan.md").write_text("Plan it.")
    (project / ".archon/config.yaml").write_text(f"commands: {{folder: {folder}}}")
    assert errors_of(path) == ["Step prompt not found: plan.md"]


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("echo got $data.output.text", "got it is"),
        ('echo "got $data.output.text"', "got 'it is'"),
        ("echo got '$data.output.text'", "got it is"),
        ('echo "got $data.output.count"', "got 12"),
        ("cat <<EOF\ngot $data.output.text\nEOF", "got 'it is'"),
        (
            "cat <<'EOF'\ngot $data.output.text of $data.output.count ${HOME}\nEOF",
            "got 'it is' of 12 ${HOME}",
        ),
        ("cat <<'A_B' | tr a-z A-Z\n{{ $data.output.text }}\nA_B", "{{ 'IT IS' }}"),
        ("cat <<'EOF'\nin $WORKFLOW_ID, not $ARGUMENTS\nEOF", "in RUN, not $ARGUMENTS"),
        ("cat <<'EOF'\n`nothing` $HOME\nEOF", "`nothing` $HOME"),
        ("echo $((  $data.output.count + 1 ))", "13"),
        ("# $data.output.text\necho no $data.output.nothing", "no null"),
        ("echo '{{.Ports}}' $WORKFLOW_ID | cut -d' ' -f1", "{{.Ports}}"),
        ('echo "$ARGUMENTS" in "$(basename $STATE_DIR)"', "the message in state"),
        ('echo x > $ARTIFACTS_DIR/file && cat "$ARTIFACTS_DIR/file"', "x"),
        ("set -- a b; echo $2", "b"),
    ],
)
async def test_an_output_in_a_script_is_the_text_that_archon_puts_there(
    tmp_path: Path, script: str, printed: str
) -> None:
    lines = "".join(f"      {line}\n" for line in script.split("\n"))
    path = put_workflow(
        tmp_path, f"nodes:{JSON_STEP}\n  - id: say\n    depends_on: [data]\n    bash: |\n{lines}"
    )
    outcome = await run_workflow(path)
    assert (outcome.error, outcome.text_of("say")) == ("", printed.replace("RUN", outcome.run_id))


@pytest.mark.parametrize(
    ("rule", "states"),
    [
        ("", ["skipped", "skipped", "skipped", "completed"]),
        ("all_success", ["skipped", "skipped", "skipped", "completed"]),
        ("one_success", ["completed", "skipped", "completed", "completed"]),
        ("none_failed_min_one_success", ["skipped", "skipped", "completed", "completed"]),
        ("all_done", ["completed", "completed", "completed", "completed"]),
    ],
)
async def test_a_trigger_rule_decides_after_failed_and_skipped_nodes(
    tmp_path: Path, rule: str, states: list[str]
) -> None:
    joins = [["good", "bad"], ["bad", "left"], ["good", "left"], ["good", "fine"]]
    rule_line = f"    trigger_rule: {rule}\n" if rule else ""
    nodes = "".join(
        f"  - id: join{n}\n    bash: echo joined\n    depends_on: [{', '.join(names)}]\n{rule_line}"
        for n, names in enumerate(joins)
    )
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: good, bash: echo good}\n  - {id: fine, bash: echo fine}\n"
        "  - {id: bad, bash: exit 1}\n  - id: left\n    bash: echo left\n    depends_on: [good]\n"
        f"    when: \"$good.output == 'x'\"\n{nodes}",
    )
    outcome = await run_workflow(path)
    assert [outcome.state_of(f"join{n}") for n in range(4)] == states
    assert outcome.state == "failed"  # a failed node fails the run, whatever its joins do


async def test_a_failed_node_has_no_output_that_can_be_used(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: bad, bash: echo stale; exit 1}\n"
        "  - {id: use, prompt: Use $bad.output, depends_on: [bad], trigger_rule: all_done}\n",
    )
    outcome = await run_workflow(path)
    assert (outcome.state_of("use"), outcome.prompts) == ("failed", [])


async def test_a_loop_ends_by_its_signal_and_reads_the_previous_output(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop:\n      prompt: 'Go on. Before: $LOOP_PREV_OUTPUT'\n"
        "      until: DONE\n"
        "      max_iterations: 5\n  - {id: after, bash: echo $work.output, depends_on: [work]}\n",
    )
    outcome = await run_workflow(path, ["not DONE yet", "still", "ready <promise>DONE</promise>"])
    assert outcome.prompts == ["Go on. Before: ", "Go on. Before: not DONE yet", "Go on. Before: still"]
    assert outcome.text_of("after") == "ready"
    assert [call.resume for call in outcome.calls] == [None, "thread-1", "thread-1"]


async def test_a_loop_with_fresh_context_starts_new_conversations_and_fails_at_its_maximum(
    tmp_path: Path,
) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop: {prompt: Go, until: DONE, max_iterations: 2, fresh_context: true}\n",
    )
    outcome = await run_workflow(path)
    assert [call.resume for call in outcome.calls] == [None, None]
    assert (outcome.state, outcome.state_of("work")) == ("failed", "failed")


async def test_a_loop_ends_by_a_script(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop:\n      prompt: Go\n      max_iterations: 5\n"
        '      until_bash: echo x >> count && [ "$(wc -l < count)" -ge 3 ]'
        ' && [ "$LOOP_PREV_OUTPUT" = two ]\n',
    )
    outcome = await run_workflow(path, ["one", "two", "three"])
    assert (outcome.error, outcome.output) == ("", "three")


async def test_a_loop_ends_by_a_field_of_its_answer(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop: {prompt: Go, until_field: done, max_iterations: 5}\n"
        "    output_format: {type: object, properties: {done: {type: boolean}}, required: [done]}\n"
        "  - {id: say, bash: 'echo $work.output.done', depends_on: [work]}\n",
    )
    outcome = await run_workflow(path, ['{"done": false}', '{"done": true}'])
    assert (outcome.error, outcome.text_of("say"), len(outcome.prompts)) == ("", "true", 2)


async def test_an_interactive_loop_asks_after_each_iteration(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop:\n      prompt: 'Said: $LOOP_USER_INPUT.'\n      until: DONE\n"
        "      max_iterations: 5\n      interactive: true\n      gate_message: What now?\n",
    )
    outcome = await run_workflow(path, ["DONE", "better", "DONE"], gates=("make it better", "approve"))
    assert outcome.prompts == ["Said: .", "Said: make it better.", "Said: Approved."]
    accepted = await run_workflow(path, ["DONE"], gates=("approve",))
    assert (accepted.state, len(accepted.prompts)) == ("completed", 1)
    rejected = await run_workflow(path, ["DONE"], gates=("reject",))
    assert rejected.state == "cancelled"


async def test_a_group_of_nodes_repeats_and_reads_its_previous_iteration(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - id: build
    loop_group:
      until: CLEAN
      max_iterations: 4
      nodes:
        - {id: write, prompt: "Write. Findings: $LOOP_PREV.review.output"}
        - {id: test, bash: echo tested, depends_on: [write]}
        - {id: review, prompt: "Review $test.output", depends_on: [test]}
  - {id: end, bash: echo $build.output, depends_on: [build]}
""",
    )
    outcome = await run_workflow(path, ["w1", "a bug", "w2", "<promise>CLEAN</promise>"])
    assert outcome.prompts == [
        "Write. Findings: ",
        "Review tested",
        "Write. Findings: a bug",
        "Review tested",
    ]
    assert outcome.state == "completed"


async def test_a_group_ends_by_the_text_of_any_last_node(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - id: build
    loop_group:
      until: CLEAN
      until_bash: echo x >> checks && [ $(wc -l < checks) -ge 9 ]
      max_iterations: 5
      nodes:
        - id: count
          bash: echo x >> count; [ $(wc -l < count) -lt 3 ] || echo '<promise>CLEAN</promise> 3'
        - {id: other, bash: 'true'}
  - {id: end, bash: echo got $build.output, depends_on: [build]}
""",
    )
    outcome = await run_workflow(path)
    assert (outcome.error, outcome.text_of("end")) == ("", "got 3")
    # A script is not asked when the signal has ended the loop.
    assert (tmp_path / "checks").read_text() == "x\nx\n"


async def test_a_loop_that_its_signal_ends_does_not_ask_its_script(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: work\n    loop: {prompt: Go, until: DONE, until_bash: echo x >> checks; false,"
        " max_iterations: 3}\n",
    )
    outcome = await run_workflow(path, ["not yet", "<promise>DONE</promise>"])
    assert (outcome.error, (tmp_path / "checks").read_text()) == ("", "x\n")


async def test_agents_inside_a_step_are_its_subagents(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - id: ask\n    prompt: Go\n    allowed_tools: [Task]\n    agents:\n"
        "      brief-gen: {description: Sums up., prompt: Be brief., model: haiku, tools: [Read],"
        " disallowedTools: [Bash], maxTurns: 3}\n",
    )
    outcome = await run_workflow(path, ["done"])
    assert outcome.calls[0].options["subagents"] == {
        "brief-gen": {
            "description": "Sums up.",
            "prompt": "Be brief.",
            "model": "haiku",
            "tools": ["Read"],
            "denied_tools": ["Bash"],
            "max_turns": 3,
        }
    }


def test_agents_inside_a_step_of_codex_have_no_effect_as_in_archon(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, prompt: x, provider: codex, agents: {a: {description: x, prompt: y}}}\n",
    )
    assert errors_of(path) == []
    assert "'agents' has no effect with provider codex, as in Archon" in [
        problem.message for problem in problems_of(path)
    ]
    assert "subagents" not in nodes_of(read(path).data)[0]


async def test_a_script_reads_the_previous_iteration_of_its_group(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - id: build
    loop_group:
      until_bash: test $count.output = xxx
      max_iterations: 4
      nodes:
        - {id: count, bash: 'echo x$LOOP_PREV.count.output'}
        - {id: say, bash: 'echo "before: $LOOP_PREV.count.output"', depends_on: [count]}
""",
    )
    outcome = await run_workflow(path)
    assert (outcome.error, outcome.text_of("count"), outcome.text_of("say")) == ("", "xxx", "before: 'xx'")


async def test_an_output_that_cannot_be_there_yet_is_empty(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, prompt: 'A [$a.output$b.output]'}\n  - {id: b, bash: 'echo \"[$c.output]\"'}\n"
        "  - {id: c, command: tell, depends_on: [b]}\n",
        tell="C [$elsewhere.output] after $b.output",
    )
    warnings = [problem.message for problem in problems_of(path) if problem.severity == "warning"]
    assert sorted(warnings) == [
        "'$a.output' is read by 'a', which does not depend on 'a': it is empty, as in Archon",
        "'$b.output' is read by 'a', which does not depend on 'b': it is empty, as in Archon",
        "'$c.output' is read by 'b', which does not depend on 'c': it is empty, as in Archon",
        "'$elsewhere.output' names no node: it is empty, as in Archon",
    ]
    assert sorted((await run_workflow(path)).prompts) == ["A []", "C [] after ['']"]


async def test_a_step_without_the_file_of_its_servers_fails_only_if_it_runs(tmp_path: Path) -> None:
    node = "\n  - {id: notify, prompt: x, mcp: .archon/mcp/ntfy.json, depends_on: [ask]"
    path = put_workflow(tmp_path, f"nodes:\n  - {{id: ask, bash: echo no}}{node}}}\n")
    assert errors_of(path) == []
    outcome = await run_workflow(path)
    assert outcome.state_of("notify") == "failed"
    assert "'.archon/mcp/ntfy.json', which does not exist" in outcome.error
    condition = ", when: \"$ask.output == 'yes'\""
    path = put_workflow(tmp_path, f"nodes:\n  - {{id: ask, bash: echo no}}{node}{condition}}}\n")
    assert (await run_workflow(path)).state == "completed"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            "prompt: 'See $data.output.kin'",
            "The output_format of 'data' declares no field 'kin'",
        ),
        ("bash: echo $data.output.size", "The output_format of 'data' declares no field 'size'"),
        ("bash: echo x, when: \"$data.output.size == '1'\"", "The output_format of 'data' declares no field"),
        ("prompt: 'For $INPUTS.who'", "'$INPUTS.who' is not an input"),
    ],
)
async def test_a_field_or_input_that_is_not_declared_fails_the_step_that_reads_it(
    tmp_path: Path, node: str, message: str
) -> None:
    schema = "{type: object, properties: {kind: {type: string}}, required: [kind]}"
    path = put_workflow(
        tmp_path,
        f"nodes:\n  - {{id: data, prompt: x, output_format: {schema}}}\n"
        f"  - {{id: bad, {node}, depends_on: [data]}}\n"
        "  - {id: after, bash: echo after, depends_on: [bad], trigger_rule: all_done}\n"
        f"  - {{id: not_run, {node.partition(', when')[0]}, depends_on: [data],"
        " when: \"$data.output.kind == 'FEATURE'\"}\n",
    )
    told = [problem.message for problem in problems_of(path) if problem.severity == "warning"]
    assert [each for each in told if each.startswith(message) and "fails if it runs" in each], told
    outcome = await run_workflow(path, ['{"kind": "BUG"}'])
    assert outcome.state == "failed"
    states = [outcome.state_of(id) for id in ("bad", "after", "not_run")]
    assert states == ["failed", "completed", "skipped"]


async def test_approvals_capture_the_response_and_rework_after_a_rejection(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: plan, prompt: Plan}
  - id: ok
    depends_on: [plan]
    approval:
      message: "Good? $plan.output"
      capture_response: true
      on_reject: {prompt: "Change it: $REJECTION_REASON", max_attempts: 2}
  - {id: go, prompt: "Do it: $ok.output", depends_on: [ok]}
""",
    )
    outcome = await run_workflow(
        path, ["a plan", "changed", "did"], gates=("reject", "shorter", "with tests")
    )
    assert outcome.prompts == ["Plan", "Change it: shorter", "Do it: with tests"]
    stopped = await run_workflow(path, ["a plan", "changed"], gates=("reject", "no", "reject"))
    assert stopped.state == "cancelled"


async def test_a_plain_approval_has_no_output_and_its_rejection_cancels(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: ok, approval: {message: Good?}}\n"
        '  - {id: say, bash: \'echo "["$ok.output"]"\', depends_on: [ok]}\n'
        "  - {id: mark, output_type: x, bash: echo}\n",
    )
    assert (await run_workflow(path, gates=("approve",))).text_of("say") == "[]"
    assert (await run_workflow(path, gates=("reject",))).state == "cancelled"


async def test_cancel_ends_the_run_with_its_reason_and_starts_nothing_more(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, bash: echo no}\n  - {id: stop, cancel: Because of $a.output, depends_on: [a]}\n"
        "  - {id: late, bash: echo late, depends_on: [stop], trigger_rule: all_done}\n",
    )
    outcome = await run_workflow(path)
    assert outcome.state == "cancelled"
    assert outcome.results["stop"].error == "Because of no"
    assert outcome.state_of("late") == "skipped"


async def test_nodes_alone_in_their_layer_continue_the_conversation(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: a, prompt: a}
  - {id: b, prompt: b, depends_on: [a]}
  - {id: c, prompt: c, depends_on: [b], context: fresh}
  - {id: d, prompt: d, depends_on: [c]}
  - {id: e1, prompt: e, depends_on: [d]}
  - {id: e2, bash: echo, depends_on: [d]}
  - {id: f, prompt: f, depends_on: [e1, e2]}
  - {id: g, prompt: g, depends_on: [f]}
""",
    )
    outcome = await run_workflow(path)
    resumed = [call.resume for call in outcome.calls]
    assert resumed == [None, "thread-1", None, "thread-2", None, None, "thread-4"]


async def test_an_approval_ends_the_conversation(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: a, prompt: a}
  - {id: ask, approval: {message: Go on?}, depends_on: [a]}
  - {id: b, prompt: b, depends_on: [ask]}
  - {id: c, prompt: c, depends_on: [b]}
""",
    )
    outcome = await run_workflow(path, gates=("approve",))
    assert [call.resume for call in outcome.calls] == [None, None, "thread-2"]


async def test_a_called_workflow_and_a_fan_out_give_their_outputs(tmp_path: Path) -> None:
    put_workflow(
        tmp_path,
        "name: child\ndescription: A child.\nnodes:\n"
        '  - {id: check, bash: \'test "$ARGUMENTS" != bad && echo "done $ARGUMENTS"\'}\n',
        "child",
    )
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: list, bash: "echo '[\\"one\\", \\"bad\\"]'"}
  - {id: one, workflow: child, input: "x $list.output", depends_on: [list]}
  - {id: each, workflow: child, depends_on: [list], fan_out: {items: $list.output, max_parallel: 2}}
  - {id: say, prompt: "$one.output / $each.output", depends_on: [one, each]}
""",
    )
    outcome = await run_workflow(path)
    first, each = outcome.prompts[0].split(" / ")
    assert first == 'done x ["one", "bad"]'
    done, failed = json.loads(each)
    assert done == "done one"
    assert (failed["archon_failed"], failed["status"]) == (True, "failed")


async def test_an_include_inserts_the_nodes_of_another_workflow(tmp_path: Path) -> None:
    put_workflow(
        tmp_path,
        """name: block
description: A block.
inputs: {tone: {default: kind}}
returns: first
nodes:
  - {id: first, bash: "echo first $INPUTS_TONE"}
  - {id: second, prompt: "Be $INPUTS.tone after $first.output", depends_on: [first]}
""",
        "block",
    )
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: start, bash: echo 'very short'}
  - {id: part, include: block, with: {tone: $start.output}, depends_on: [start]}
  - {id: say, bash: echo $part.output, depends_on: [part]}
""",
    )
    outcome = await run_workflow(path)
    assert outcome.prompts == ["Be very short after first very short"]
    assert (outcome.error, outcome.text_of("say")) == ("", "first very short")


def test_a_conversion_writes_our_form_with_the_commands(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, bash: echo}\n  - {id: b, command: one, depends_on: [a]}\n",
        one="$a.output",
    )
    spec = load_file_spec(path)
    text, _ = render_notation(plain_form(spec), "yaml")
    ours = put_workflow(tmp_path, text, "ours")
    assert read(ours).dialect is None
    assert (errors_of(ours), "{{ outputs.a }}" in text, "file:" in text) == ([], True, False)


async def test_a_script_runs_with_its_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uv", "bun"):
        (programs / name).write_text(f'#!/bin/bash\nprintf "{name} %s|" "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / ".archon/scripts").mkdir(parents=True)
    (tmp_path / ".archon/scripts/report.ts").write_text("")
    path = put_workflow(
        tmp_path,
        """nodes:
  - {id: data, bash: "echo '{}'"}
  - {id: code, script: "console.log($data.output)", runtime: bun, depends_on: [data]}
  - {id: file, script: report, runtime: bun, depends_on: [data]}
  - {id: python, script: "print('$ARGUMENTS')", runtime: uv, deps: [rich], depends_on: [data]}
""",
    )
    outcome = await run_workflow(path)
    assert outcome.text_of("code") == "bun --no-env-file|bun -e|bun console.log({})|"
    assert outcome.text_of("file") == "bun --no-env-file|bun run|bun .archon/scripts/report.ts|"
    assert outcome.text_of("python") == "uv run|uv --with|uv rich|uv python|uv -c|uv print('$ARGUMENTS')|"


def test_times_are_milliseconds_and_have_the_defaults_of_archon(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, bash: echo, timeout: 90000}\n"
        "  - {id: b, bash: echo $a.output, depends_on: [a]}\n"
        "  - {id: c, prompt: c, idle_timeout: 600000, retry: {max_attempts: 2, delay_ms: 5000}}\n"
        "  - {id: d, prompt: d}\n",
    )
    a, b, c, d = nodes_of(read(path).data)
    assert (a["timeout"], b["timeout"], c["idle_timeout"], d["idle_timeout"]) == (90, 120, 600, 1800)
    assert c["retry"] == {"attempts": 3, "delay": 5, "factor": 2, "on": ["AgentEnded", "TimeoutError"]}


@pytest.mark.parametrize(
    ("message", "on_error", "attempts"),
    [
        ("HTTP 503", "transient", 2),
        ("connect ECONNREFUSED 127.0.0.1:80", "transient", 2),
        ("No such file", "transient", 1),
        ("No such file", "all", 2),
        ("401 Unauthorized: 503", "transient", 1),
        ("Permission denied", "all", 1),
        ("", "transient", 1),
        ("", "all", 2),
    ],
)
async def test_the_error_output_of_a_script_decides_whether_it_is_retried(
    tmp_path: Path, message: str, on_error: str, attempts: int
) -> None:
    path = put_workflow(
        tmp_path,
        f"""nodes:
  - id: a
    bash: "echo x >> count; echo '{message}' >&2; exit 1"
    retry: {{max_attempts: 1, delay_ms: 1, on_error: {on_error}}}
""",
    )
    assert errors_of(path) == []
    outcome = await run_workflow(path)
    assert outcome.state_of("a") == "failed"
    assert (tmp_path / "count").read_text() == "x\n" * attempts


def test_tools_budgets_and_models_are_settings_of_the_step(tmp_path: Path) -> None:
    config = tmp_path / ".archon/config.yaml"
    config.parent.mkdir()
    config.write_text("aliases:\n  '@mini': {provider: codex, model: tiny}\nworktree: {baseBranch: dev}\n")
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, prompt: Onto $BASE_BRANCH, model: '@mini', allowed_tools: [Read],"
        " maxBudgetUsd: 2}\n"
        "  - {id: b, prompt: b, allowed_tools: []}\n  - {id: c, prompt: c, denied_tools: [WebFetch]}\n",
    )
    body = read(path).data["body"]["steps"]
    assert (body[0]["id"], body[0]["expression"]) == ("_base_branch", "'dev'")
    a, b, c = nodes_of({"body": body[1]})
    assert (a["model"], a["provider"], a["limits"]) == ("tiny", "codex", {"cost": 2})
    assert a["permissions"] == {"allow": ["Read"], "otherwise": "deny"}
    assert b["permissions"] == {"allow": [], "otherwise": "deny"}
    assert c["permissions"] == {"deny": ["WebFetch"]}
    assert errors_of(path) == []


def test_the_world_of_an_agent_is_that_of_its_step(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"github": {"command": "gh-mcp", "env": {"TOKEN": "$GH_TOKEN"}}}')
    hooks = "{PreToolUse: [{matcher: Write, response: {decision: block}}]}"
    path = put_workflow(
        tmp_path,
        f"effort: high\nnodes:\n  - {{id: a, prompt: x, mcp: servers.json, skills: [review],"
        f" hooks: {hooks}}}\n"
        "  - {id: b, prompt: x, effort: low, systemPrompt: 'You know $a.output', depends_on: [a]}\n",
    )
    assert errors_of(path) == []
    a, b = nodes_of(read(path).data)
    assert (a["effort"], b["effort"], a["skills"]) == ("high", "low", ["review"])
    assert a["mcp"] == {"github": {"command": "gh-mcp", "env": {"TOKEN": "${GH_TOKEN}"}}}
    assert b["system"] == "You know {{ outputs.a }}"
    assert a["hooks"]["PreToolUse"][0]["matcher"] == "Write"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("prompt: 'See $other.output'", "'$other.output' names no node"),
        ("prompt: 'See $b.output.kind'", "'$b.output.kind' reads a node that has not run at that point"),
        (
            "prompt: 'See $c.output', depends_on: [b]",
            "'$c.output' is read by 'a', which does not depend on 'c'",
        ),
        (
            "prompt: x, provider: opencode, agents: {helper: {description: x, prompt: y}}",
            "'agents' of a step of OpenCode",
        ),
        (
            "prompt: x, agents: {Helper: {description: x, prompt: y}}",
            "'agents': 'Helper' must be lowercase letters",
        ),
        ("prompt: x, agents: {a: {description: x, prompt: y, skills: [z]}}", "'agents.a.skills'"),
        ("prompt: x, agents: [a]", "'agents' must be a mapping"),
        ("prompt: x, agents: {a: {prompt: y}}", "'description' is missing"),
        ("prompt: x, context: {resume: b}", "'context.resume'"),
        ("approval: {message: x, decisions: [{id: ship}]}", "'approval.decisions'"),
        ("prompt: x, persist_session: true", "'persist_session':"),
        ("prompt: x, trigger_rule: any", "Unknown trigger_rule 'any'"),
        ("prompt: x, when: $b.output is good", "The condition '$b.output is good' cannot be read"),
        ("prompt: x, bash: y", "The node has prompt and bash"),
        ("bash: x, timeout: soon", "'timeout' must be a number of milliseconds"),
        ("script: x, runtime: ruby", "'script' must be a source or a name"),
        ("loop: {prompt: x, max_iterations: 3}", "The loop has no end"),
        ("include: nowhere", "The included workflow 'nowhere' is not found"),
        ("prompt: x, model: '@big'", "The model alias '@big' is not in .archon/config.yaml"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, node: str, message: str) -> None:
    path = put_workflow(
        tmp_path,
        f"nodes:\n  - {{id: a, {node}}}\n  - {{id: b, prompt: x, output_type: y}}\n"
        "  - {id: c, prompt: x}\n",
    )
    assert [error for error in errors_of(path) if error.startswith(message)], errors_of(path)


def test_keys_without_effect_are_reported(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "worktree: {enabled: false}\nnodes:\n  - {id: a, bash: echo, allowed_tools: [], always_run: true}\n",
    )
    messages = [problem.message for problem in problems_of(path) if problem.severity == "warning"]
    assert len(messages) == 2
    assert "'allowed_tools' has no effect" in messages[0] + messages[1]


async def test_the_older_forms_are_chains_and_loops(tmp_path: Path) -> None:
    path = put_workflow(
        tmp_path,
        "steps:\n  - command: one\n  - command: two\n  - parallel: [{command: three}, {command: four}]\n"
        "  - {command: five, clearContext: true}\n",
        **{name: f"{name} $ARGUMENTS" for name in ("one", "two", "three", "four", "five")},
    )
    outcome = await run_workflow(path)
    assert sorted(outcome.prompts) == sorted(
        f"{name} the message" for name in ("one", "two", "three", "four", "five")
    )
    assert [call.resume for call in outcome.calls] == [None, "thread-1", None, None, None]
    path = put_workflow(tmp_path, "loop: {until: DONE, max_iterations: 3, fresh_context: true}\nprompt: Go\n")
    assert (await run_workflow(path, ["a", "DONE"])).output == "DONE"


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("nodes:\n  - {id: a, prompt: x}\n", "archon"),
        ("nodes:\n  - {id: a, prompt: x, timeout: 5000}\n", "archon"),
        ("nodes:\n  - {id: a, prompt: '{{ input }}'}\n", None),
        ("nodes:\n  - {id: a, prompt: x, thread: y}\n", None),
        ("steps:\n  - step: one\n", None),
        ("steps:\n  - command: one\n", "archon"),
        ("body: {kind: bash, command: echo}\n", None),
    ],
)
def test_a_file_is_archons_or_ours(tmp_path: Path, text: str, dialect: str | None) -> None:
    path = put_workflow(tmp_path, text, one="x")
    (tmp_path / ".archon/steps").mkdir()
    (tmp_path / ".archon/steps/one.md").write_text("x")
    found = read(path).dialect
    assert (found and found.name) == dialect


def test_files_in_folders_below_are_found(tmp_path: Path) -> None:
    put_workflow(tmp_path, "nodes:\n  - {id: a, command: one}\n", "deep/er/flow", one="x")
    found = discover(tmp_path)
    assert ([workflow.name for workflow in found.workflows], found.problems) == (["flow"], [])
    assert found.workflows[0].folder == tmp_path / ".archon"
    assert errors_of(found.workflows[0].path) == []


def test_a_workflow_without_an_id_or_nodes_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    for text in (
        "nodes: 3\n",
        "nodes: [1]\n",
        "nodes:\n  - prompt: $x.output\n",
        "loop: 3\nprompt: x\n",
        "steps: {command: x}\nworktree: 1\n",
    ):
        assert errors_of(put_workflow(tmp_path, HEAD + text))
