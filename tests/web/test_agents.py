"""The agents: providers and their slots, agent files, and the conversations of open runs."""

from pathlib import Path

import httpx2

from web.conftest import WebServer
from web.page_text import element, text_of


async def test_the_page_shows_providers_with_slots_and_how_to_install_the_others(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    await web.start("paid")
    text = text_of(element((await browser.get("/agents")).text, "providers", "ul"))
    assert "scripted ready" in text
    assert "0 of 4 agents at once" in text
    overview = await web.api.agents()
    for provider in overview.providers:
        assert provider.name in text
        if provider.found is None:
            assert provider.fix in text


async def test_the_page_shows_agent_files_and_their_problems(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    folder = Path(web.api.session.project) / ".nerve" / "agents"
    folder.mkdir(parents=True)
    fields = "name: critic\ndescription: Finds <b>bugs</b>\nprovider: claude\nmodel: large\ntools: [Read]\n"
    (folder / "critic.md").write_text(f"---\n{fields}max_turns: 7\n---\nYou find bugs.")
    (folder / "wrong.md").write_text("---\nmax_turns: many\n---\n")
    page = (await browser.get("/agents")).text
    for part in (
        "critic",
        "Finds &lt;b&gt;bugs",
        "claude",
        "large",
        "Read",
        "7 turns",
        ".nerve/agents/critic.md",
    ):
        assert part in page
    assert "Some agent files are not valid." in page
    assert "must be an integer of at least 1" in page


async def test_a_limited_provider_shows_when_its_limit_ends(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    web.api.session.provider_slots.rate_limits.limited["scripted"] = 4_102_444_800.0
    text = (await browser.get("/agents")).text
    assert "2100-01-01" in text


async def test_the_slots_change_while_the_page_is_open(web: WebServer) -> None:
    async with web.stream("/agents/stream") as live:
        await live.until(lambda text: "providers" in text)
        before = len(live.messages)
        await web.start("paid")
        await live.until(lambda text: len(live.messages) > before)
        assert "scripted" in live.messages[-1]
