"""One example in each notation runs as it stands, and no example has errors."""

from pathlib import Path
from shutil import copytree

import pytest

from nerve import FunctionNode, Session
from nerve.notations import SUFFIXES, open_document
from nerve.spec.checker import check_document
from nerve.testing import ScriptedProvider

from .conftest import EXAMPLES

FILES = sorted(path for path in EXAMPLES.parent.rglob("*") if path.suffix in SUFFIXES)


def test_there_is_an_example_in_each_notation() -> None:
    assert {path.suffix for path in FILES} == {".json", ".lisp", ".yaml"}
    assert any("\nnodes:" in path.read_text() for path in FILES)
    assert any("\nsteps:" in path.read_text() for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_has_no_errors(path: Path) -> None:
    document, _ = open_document(path, path.parent)
    assert check_document(document).errors == []


@pytest.mark.parametrize(("outcome", "end"), [(None, "deployed"), (RuntimeError("red"), "told")])
async def test_the_json_example_deploys_only_what_passed(outcome: Exception | None, end: str) -> None:
    async with Session() as session:

        def tester(context: object) -> str:
            if outcome is not None:
                raise outcome
            return "green"

        FunctionNode("tester", session, tester)
        FunctionNode("deployer", session, lambda context: "deployed")
        FunctionNode("notifier", session, lambda context: "told")
        session.load(EXAMPLES / "json/smart-deploy.json")
        assert await (await session.start("smart-deploy", "v1")).wait() == end


async def test_the_graph_in_yaml_asks_between_two_reviews_and_the_summary() -> None:
    answers = {"^Look for": "no holes", "^Look at": "good names", "^Write": "merge it"}
    provider = ScriptedProvider(answers, "claude")
    async with Session(providers={"claude": provider}) as session:
        session.load(EXAMPLES / "yaml/two-opinions.yaml")
        run = await session.start("two-opinions", "Ada; touch nothing")
        await run.next_gate()
        await run.answer("approve")
        assert await run.wait() == "merge it"
    *reviews, summary = (call.prompt for call in provider.calls)
    assert all("changed by Ada; touch nothing" in prompt for prompt in reviews)
    assert "Security: no holes\nStyle: good names" in summary


async def test_the_chain_in_yaml_runs_with_its_prompts(tmp_path: Path) -> None:
    copytree(EXAMPLES.parent / "projects/feature-development", tmp_path, dirs_exist_ok=True)
    provider = ScriptedProvider(["planned", "implemented", "opened"], "claude")
    async with Session(providers={"claude": provider}, project=tmp_path) as session:
        session.load(tmp_path / ".archon/workflows/feature-development.yaml")
        assert await (await session.start("feature-development", "dark mode")).wait() == "opened"


async def test_the_lisp_example_rewrites_until_it_is_approved() -> None:
    provider = ScriptedProvider(["draft", "too long", "shorter", "APPROVED"], "claude")
    async with Session(providers={"claude": provider}) as session:
        session.load(EXAMPLES / "lisp/self-review.lisp")
        assert await (await session.start("self-review", "an ode")).wait() == "shorter"
