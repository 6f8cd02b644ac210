"""What a timeout does, beside what Archon's executor did with the same workflows.

The expectations were recorded from Archon's executor (version 0.9.0, newest commit of November 2026): the
state of each node, the text of its output, and the prompts that its agent received.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from nerve.notations.archon.workflow import FATAL_TEXTS
from notations.archon.support import errors_of, nodes_of, put_workflow, read, run_workflow

SILENCE = {"delay": 3600}
IDLE = "  - {id: a, prompt: Go, idle_timeout: 300%s}\n"
AFTER = "  - {id: b, bash: echo after, depends_on: [a], trigger_rule: all_done}\n"
LOOP = """\
  - id: a
    idle_timeout: 300
    loop: {prompt: 'Go [$LOOP_PREV_OUTPUT]', until: DONE, max_iterations: 3}
  - {id: b, bash: echo got $a.output, depends_on: [a]}
"""
GROUP = """\
  - id: a
    loop_group:
      max_iterations: 2
      until: DONE
      nodes:
        - {id: t, prompt: Go, idle_timeout: 300}
"""
FORMAT = "output_format: {type: object, properties: {x: {type: boolean}}, required: [x]}"
COUNTED = "  - {id: a, bash: 'echo x >> count; %s%s}\n" + AFTER.replace("echo after", "wc -l < count")
DONE = "<promise>DONE</promise> ready"


class Scene(NamedTuple):
    """A workflow, the turns of its agent, and what Archon's executor did with them."""

    name: str
    nodes: str
    state: str
    """How the run ended."""
    states: dict[str, str]
    texts: Mapping[str, str] = MappingProxyType({})
    turns: tuple[Any, ...] = ()
    prompts: tuple[str, ...] = ()


SCENES = [
    Scene(
        "a script that times out fails, and what joins failures runs",
        "  - {id: a, bash: 'echo begun; exec sleep 60', timeout: 300}\n" + AFTER,
        "failed",
        {"a": "failed", "b": "completed"},
        {"b": "after"},
    ),
    Scene(
        "a script that ends in time is not affected",
        "  - {id: a, bash: 'sleep 0.2; echo done', timeout: 60000}\n",
        "completed",
        {"a": "completed"},
        {"a": "done"},
    ),
    Scene(
        "a timeout of a script is not a transient failure",
        COUNTED % ("exec sleep 60', timeout: 300, ", "retry: {max_attempts: 1, delay_ms: 1000}"),
        "failed",
        {"a": "failed", "b": "completed"},
        {"b": "1"},
    ),
    Scene(
        "with on_error: all, a script that timed out is tried again",
        COUNTED
        % ("exec sleep 60', timeout: 300, ", "retry: {max_attempts: 1, delay_ms: 1000, on_error: all}"),
        "failed",
        {"a": "failed", "b": "completed"},
        {"b": "2"},
    ),
    Scene(
        "idle_timeout has no effect on a script",
        "  - {id: a, bash: 'sleep 0.5; echo fine', idle_timeout: 100}\n",
        "completed",
        {"a": "completed"},
        {"a": "fine"},
    ),
    Scene(
        "timeout has no effect on a prompt",
        "  - {id: a, prompt: Go, timeout: 100}\n",
        "completed",
        {"a": "completed"},
        {"a": "fine"},
        ([{"delay": 0.4}, "fine"],),
        ("Go",),
    ),
    Scene(
        "timeout has no effect on a loop",
        "  - {id: a, timeout: 100, loop: {prompt: Go, until: DONE, max_iterations: 1}}\n",
        "completed",
        {"a": "completed"},
        {},
        ([{"delay": 0.4}, DONE],),
        ("Go",),
    ),
    Scene(
        "what a silent agent has written is its answer",
        IDLE % "" + "  - {id: b, bash: echo got $a.output, depends_on: [a]}\n",
        "completed",
        {"a": "completed", "b": "completed"},
        {"a": "half an answer", "b": "got half an answer"},
        (["half an answer", SILENCE],),
        ("Go",),
    ),
    Scene(
        "an agent that is silent from the start is asked again",
        IDLE % ", retry: {max_attempts: 1, delay_ms: 1000}",
        "completed",
        {"a": "completed"},
        {"a": "fine"},
        ([SILENCE], "fine"),
        ("Go", "Go"),
    ),
    Scene(
        "an agent that is silent in every attempt fails",
        IDLE % ", retry: {max_attempts: 1, delay_ms: 1000}" + AFTER,
        "failed",
        {"a": "failed", "b": "completed"},
        {"b": "after"},
        ([SILENCE], [SILENCE]),
        ("Go", "Go"),
    ),
    Scene(
        "the structured answer of a silent agent is missing, and it is not asked again",
        IDLE % f", {FORMAT}",
        "failed",
        {"a": "failed"},
        {},
        (['{"x": true}', SILENCE],),
        ("Go",),
    ),
    Scene(
        "an agent that writes now and then is not silent",
        "  - {id: a, prompt: Go, idle_timeout: 3000}\n",
        "completed",
        {"a": "completed"},
        {},
        (["a", {"delay": 1.2}, "b", {"delay": 1.2}, "c", {"delay": 1.2}, "d"],),
        ("Go",),
    ),
    Scene(
        "an iteration ends with what a silent agent has written",
        LOOP,
        "completed",
        {"a": "completed", "b": "completed"},
        {"b": "got ready"},
        (["half", SILENCE], DONE),
        ("Go []", "Go [half]"),
    ),
    Scene(
        "an iteration whose agent has written the signal before it fell silent is the last one",
        LOOP,
        "completed",
        {"a": "completed", "b": "completed"},
        {"b": "got ready"},
        ([DONE, SILENCE],),
        ("Go []",),
    ),
    Scene(
        "an iteration may end without any text",
        LOOP,
        "completed",
        {"a": "completed", "b": "completed"},
        {"b": "got ready"},
        ([SILENCE], DONE),
        ("Go []", "Go []"),
    ),
    Scene(
        "silent iterations count",
        LOOP,
        "failed",
        {"a": "failed", "b": "skipped"},
        {},
        ([SILENCE], [SILENCE], [SILENCE]),
        ("Go []", "Go []", "Go []"),
    ),
    Scene(
        "a structured iteration of a silent agent fails the loop",
        "  - id: a\n    idle_timeout: 300\n    loop: {prompt: Go, until_field: x, max_iterations: 2}\n"
        f"    {FORMAT}\n",
        "failed",
        {"a": "failed"},
        {},
        (["x", SILENCE],),
        ("Go",),
    ),
    Scene(
        "a silent agent in a group ends its node",
        GROUP,
        "completed",
        {"a": "completed"},
        {},
        (["half", SILENCE], DONE),
        ("Go", "Go"),
    ),
]


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name.replace(" ", "-") for scene in SCENES])
async def test_a_timeout_does_what_it_does_in_archon(scene: Scene, tmp_path: Path) -> None:
    path = put_workflow(tmp_path, "nodes:\n" + scene.nodes)
    assert errors_of(path) == []
    outcome = await asyncio.wait_for(run_workflow(path, list(scene.turns)), 60)
    assert {id: outcome.state_of(id) for id in scene.states} == scene.states
    assert {id: outcome.text_of(id) for id in scene.texts} == scene.texts
    assert tuple(map(task_of, outcome.prompts)) == scene.prompts
    assert outcome.state == scene.state


def task_of(prompt: str) -> str:
    """Return a prompt without what tells the agent that it was interrupted, and without the schema."""
    return prompt.partition("\n\nAnswer with JSON only")[0].rpartition("\n")[2]


async def test_a_script_of_a_runtime_fails_when_it_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/bun"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    path = put_workflow(
        tmp_path, "nodes:\n  - {id: a, runtime: bun, script: 'console.log(1)', timeout: 300}\n" + AFTER
    )
    outcome = await run_workflow(path)
    assert (outcome.state, outcome.state_of("a"), outcome.text_of("b")) == ("failed", "failed", "after")
    assert "timed out after 0.3" in outcome.error


async def test_a_script_that_decides_about_a_loop_fails_it_when_it_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archon: the node failed after 120 seconds and one iteration, in a loop and in a group of nodes."""
    monkeypatch.setattr("nerve.notations.archon.workflow.SCRIPT_SECONDS", 0.3)
    for body in ("prompt: Go, until: NEVER", "nodes: [{id: t, prompt: Go}]"):
        kind = "loop_group" if "nodes" in body else "loop"
        path = put_workflow(
            tmp_path,
            f"nodes:\n  - id: a\n    {kind}: {{{body}, until_bash: exec sleep 60, max_iterations: 2}}\n",
        )
        outcome = await run_workflow(path)
        assert (outcome.state, len(outcome.prompts)) == ("failed", 1)
        assert "'until_bash' has timed out after 0.3 seconds" in outcome.error


def test_the_defaults_of_archon_are_those_of_its_executor(tmp_path: Path) -> None:
    """Archon: two minutes for a script, half an hour of silence, and two retries after 3 and 6 seconds."""
    path = put_workflow(
        tmp_path,
        "nodes:\n  - {id: a, bash: echo}\n  - {id: b, prompt: b}\n  - {id: c, command: tell}\n"
        "  - {id: d, prompt: d, retry: {max_attempts: 1, on_error: all}}\n"
        f"  - {{id: e, prompt: e, {FORMAT}}}\n"
        "  - {id: f, loop: {prompt: f, until: DONE, until_bash: 'true', max_iterations: 2}}\n",
        tell="Tell it.",
    )
    a, b, c, d, e, f = nodes_of(read(path).data)
    assert a["timeout"] == 120
    assert "retry" not in a
    assert b["idle_timeout"] == c["idle_timeout"] == 1800
    twice = {"attempts": 3, "delay": 3, "factor": 2.0}
    assert b["retry"] == c["retry"] == {**twice, "on": ["AgentEnded", "TimeoutError"]}
    assert d["retry"] == {"attempts": 2, "delay": 3, "factor": 2.0, "not_on_text": [*FATAL_TEXTS]}
    assert e["retry"] == {**twice, "on": ["AgentEnded"]}
    _, turn, check, *_ = f["body"]["steps"]
    assert (turn["idle_timeout"], turn.get("retry"), check["timeout"]) == (1800, None, 120)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("bash: echo, timeout: 0", "'timeout' must be a number of milliseconds"),
        ("bash: echo, timeout: '5'", "'timeout' must be a number of milliseconds"),
        ("prompt: x, idle_timeout: -1", "'idle_timeout' must be a number of milliseconds"),
        ("prompt: x, retry: {max_attempts: 1, on_error: never}", "'retry.on_error' must be transient or all"),
    ],
)
def test_a_time_that_the_loader_of_archon_refuses_is_refused(tmp_path: Path, node: str, message: str) -> None:
    [found] = errors_of(put_workflow(tmp_path, f"nodes:\n  - {{id: a, {node}}}\n"))
    assert message in found
