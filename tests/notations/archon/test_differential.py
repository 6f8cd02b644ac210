"""Random workflows of Archon do the same here as in an interpreter of Archon's rules."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notations.archon.reference import MESSAGE, Reference
from notations.archon.support import errors_of, put_workflow, run_workflow

RULES = ["all_success", "one_success", "none_failed_min_one_success", "all_done"]
OUTPUTS = [
    "echo plain",
    "printf '%s' \"it's\"",
    'echo \'{"kind": "BUG", "count": 12, "text": "it is", "ok": true}\'',
    "exit 1",
    "echo stale; exit 3",
    "echo 7",
]


@st.composite
def workflows(draw: st.DrawFn) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = []
    for n in range(draw(st.integers(2, 7))):
        names = [node["id"] for node in nodes]
        node: dict[str, Any] = {"id": draw(st.sampled_from(["n", "step-", "s_"])) + str(n)}
        ups = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
        if ups:
            node["depends_on"] = ups
            if (rule := draw(st.sampled_from([None, *RULES]))) is not None:
                node["trigger_rule"] = rule
        references = [f"${up}.output" for up in ups]
        fields = [f"${up}.output.{name}" for up in ups for name in ("kind", "count", "ok")]
        if ups and draw(st.integers(0, 3)) == 0:
            node["when"] = draw(conditions([*references, *fields]))
        text = draw(st.sampled_from(["", *references, *references, *fields]))
        match draw(st.integers(0, 4)):
            case 0 | 1 if not text:
                node["bash"] = draw(st.sampled_from(OUTPUTS))
            case 0:
                node["bash"] = f"echo got {text}"
            case 1:
                node["bash"] = f'printf "%s" "<{text}>"'
            case 2 | 3:
                node["prompt"] = f"{node['id']}: {text} $ARGUMENTS"
            case _:
                node["loop"] = {
                    "prompt": f"{node['id']}: {text} again [$LOOP_PREV_OUTPUT]",
                    "until": "DONE",
                    "max_iterations": draw(st.integers(1, 3)),
                }
        nodes.append(node)
    return nodes


@st.composite
def conditions(draw: st.DrawFn, references: list[str]) -> str:
    def atom() -> str:
        reference = draw(st.sampled_from(references))
        texts = st.sampled_from(["BUG", "plain", "true"])
        if draw(st.booleans()):
            return f"{reference} {draw(st.sampled_from(['==', '!=']))} '{draw(texts)}'"
        return f"{reference} {draw(st.sampled_from(['<', '>=']))} '{draw(st.sampled_from(['5', '12']))}'"

    atoms = [atom() for _ in range(draw(st.integers(1, 3)))]
    text = atoms[0]
    for each in atoms[1:]:
        text += draw(st.sampled_from([" && ", " || "])) + each
    return text


def agent_answer(prompt: str) -> str:
    """The same prompt always has the same answer; a loop ends after two answers, or never."""
    if "again [" in prompt:
        return "<promise>DONE</promise> ready" if "again [not" in prompt else "not DONE yet"
    return f"answer of {len(prompt)}"


async def compare(nodes: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put_workflow(
            Path(folder), json.dumps({"name": "flow", "description": "d", "nodes": nodes}), "flow"
        )
        assert errors_of(path) == []
        outcome = await run_workflow(path, lambda call: agent_answer(call.prompt), MESSAGE)

    def shell(script: str) -> tuple[bool, str]:
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout.removesuffix("\n")

    reference = Reference(shell, agent_answer)
    state = reference.run(nodes)
    assert {node["id"]: outcome.state_of(node["id"]) for node in nodes} == {
        id: each.state for id, each in reference.ended.items()
    }
    for id, each in reference.ended.items():
        if each.state == "completed":
            assert outcome.text_of(id) == each.output
    assert sorted(outcome.prompts) == sorted(reference.prompts)
    assert outcome.state == state


QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
@given(nodes=workflows())
async def test_random_workflows_have_the_outcome_of_archon(nodes: list[dict[str, Any]]) -> None:
    await compare(nodes)


@pytest.mark.full
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(nodes=workflows())
async def test_many_random_workflows_have_the_outcome_of_archon(nodes: list[dict[str, Any]]) -> None:
    await compare(nodes)
