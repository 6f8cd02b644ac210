"""A real browser signs in with OpenID Connect, answers a gate, and signs out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from e2e import world as e2e_world
from e2e.web.conftest import FLOWS
from e2e.world import World
from server.oidc_stand_in import CLIENT_ID, CLIENT_SECRET, StandInProvider


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A project whose server is not started yet."""
    monkeypatch.setattr(e2e_world, "FLOWS", FLOWS)
    monkeypatch.setenv("OIDC_SECRET", CLIENT_SECRET)
    world = World(tmp_path)
    yield world
    world.kill()


async def test_a_person_signs_in_with_a_provider_and_answers_by_it(chromium: Browser, project: World) -> None:
    async with StandInProvider().open() as provider:
        provider.is_confirmed = True
        oidc = {"issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": {"env": "OIDC_SECRET"}}
        (project.folder / ".nerve").mkdir()
        config = project.folder / ".nerve" / "config.json"
        config.write_text(json.dumps({"sign_in": {"oidc": oidc | {"name": "Example Login"}}}))
        project.start()
        async with project.client() as admin:
            person = {"person": "ann", "contacts": {"email": "ann@example.com"}}
            assert (await admin.http.post("/api/people", json=person)).status_code == 200
            run = (await admin.http.post("/api/runs", json={"workflow": "review", "wait": True})).json()
            page = await (await chromium.new_context()).new_page()
            # The server has another host name than the provider, so both are different sites.
            await page.goto(project.about["url"].replace("127.0.0.1", "localhost"))
            await page.get_by_role("link", name="Sign in with Example Login").click()
            await page.locator("#confirm").click()
            await page.wait_for_url("**/inbox")
            await expect(page.get_by_text("ann").first).to_be_visible()
            await page.reload()
            await expect(page.get_by_text("ann").first).to_be_visible()
            answered = await page.evaluate(
                """async run => (await fetch("/api/answers", {method: "POST", body: JSON.stringify(run),
                headers: {"content-type": "application/json", "x-nerve": "1"}})).json()""",
                {"run": run["run_id"], "answer": run["gates"][0]["choices"][0]},
            )
            assert (answered["by"], answered["via"]) == ("person:ann", "oidc")
            await page.get_by_title("Sign out").click()
            await expect(page.get_by_role("link", name="Sign in with Example Login")).to_be_visible()
