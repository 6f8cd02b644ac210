"""Values that a user, an agent or a file fills with markup: no page of a real browser executes them."""

from playwright.async_api import Page

from e2e.web.conftest import start_until
from e2e.world import World
from web.run_flows import ATTACK

FILE_NAME = '"><img src=x onerror=alert(1)>.png'


async def test_no_page_executes_a_value(page: Page, server: World) -> None:
    """The fixture of the page fails if the policy has blocked a script, so none was even attempted."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    short = ATTACK[:60]
    given = {"input": {ATTACK: ATTACK}, "label": short, "tags": {"t": short}}
    names = ("hostile", "hostile_form", "hostile_wait")
    runs = [await start_until(server, name, "waiting", **given) for name in names]
    async with server.client() as client:
        reply = await client.post("/api/facts", fact=["note", {"text": ATTACK, "by": ATTACK}])
        assert reply.status_code == 200
    gates = [(run["run_id"], gate["gate_id"]) for run in runs for gate in run["gates"]]
    assert len(gates) == 2
    folder = server.folder / ".nerve" / "artifacts" / runs[0]["run_id"]
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(b"pixels")
    steps = ("", "/graph", "/conversation", "/events", "/definition", "/stack", "/rerun", "/steps/attacker")
    paths = [f"/runs/{run['run_id']}{step}" for run in runs for step in steps[:-1]]
    paths += [f"/runs/{runs[0]['run_id']}/steps/{step}" for step in ("attacker", "work", "print_attack")]
    paths += ["/runs", "/runs?sort=cost", "/inbox", *(f"/inbox/{run}/{gate}" for run, gate in gates)]
    paths += [f"/compare?a={runs[0]['run_id']}&b={runs[1]['run_id']}", "/facts", "/facts?all=1", "/usage"]
    paths += ["/usage?measure=tokens", "/agents", "/workflows", "/workflows/hostile_form", "/ask"]
    for path in paths:
        await page.goto(f"{server.about['url']}{path}")
        await page.locator("main").wait_for()
        assert await page.locator("main :is(img[onerror], script:not([type]), [onmouseover])").count() == 0, (
            path
        )
    assert dialogs == []
