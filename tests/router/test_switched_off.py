"""Workflows that the configuration switches off are neither listed nor offered."""

import json
from pathlib import Path

import pytest

from nerve import Session
from nerve.api import Api
from nerve.notations.workflow_files import discover
from nerve.project.config import project_config
from nerve.router import candidates_of, offers_in

pytestmark = pytest.mark.requirement("S2-22")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".nerve/workflows"
    folder.mkdir(parents=True)
    for name in ("on", "off", "inner"):
        step = {"id": "t", "type": "transform", "transform": "1"}
        (folder / f"{name}.json").write_text(json.dumps({"id": name, "steps": [step]}))
    config = {"workflows": {"off": {"enabled": False}, "inner": {"visible_to": ["on"]}}}
    (tmp_path / ".nerve/config.json").write_text(json.dumps(config))
    return tmp_path


async def test_the_router_offers_what_may_be_started(project: Path) -> None:
    async with Session(project=project) as session:
        for each in discover(project).workflows:
            session.load(each.path)
        assert {each.name for each in candidates_of(session)} == {"on", "inner"}
    offered = offers_in(discover(project), project_config(project))
    assert {each.name for each in offered} == {"on", "inner"}


async def test_the_list_has_them_marked_where_all_are_asked_for(project: Path) -> None:
    async with Session(project=project) as session:
        for each in discover(project).workflows:
            session.load(each.path)
        api = Api(session)
        assert {each.id for each in (await api.workflows()).workflows} == {"on", "inner"}
        told = (await api.workflows(all=True)).workflows
        assert {each.id: each.enabled for each in told} == {"on": True, "inner": True, "off": False}
