"""What holds for every page and template: no inline script or style, small files, and many open pages."""

import asyncio
import re
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import nerve.web
from web.conftest import WebServer

TEMPLATES = sorted((Path(nerve.web.__file__).parent / "templates").rglob("*.html"))
INLINE = re.compile(
    r"""<script(?![^>]*(?:\bsrc=|type="application/json"))|<style|\sstyle\s*=|\son[a-z]+\s*=|javascript:|\shx-on""",
    re.IGNORECASE,
)
"""What the policy of the server forbids: inline scripts, styles and handlers."""
UNESCAPED = re.compile(r"\|\s*safe\b|autoescape\s+false", re.IGNORECASE)
ACTION = re.compile(r'<[^>]*(?:method="post"|hx-post|formaction|name="run"|name="gate")')
OPEN_PAGES = 200
EXAMPLE_ATTACK = '"><script>alert(1)</script>'


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_inline_script_or_style_and_no_unescaped_value(path: Path) -> None:
    text = re.sub(r"{#.*?#}", "", path.read_text(), flags=re.DOTALL)
    assert not INLINE.search(text)
    assert not UNESCAPED.search(text)
    # Addresses come from url() and static(), since a proxy may add a prefix.
    assert not re.search(r"""(?:href|src|action|hx-post|hx-get)=["']/""", text)


def test_the_blocks_of_the_style_sheet_are_closed() -> None:
    text = (Path(nerve.web.__file__).parent / "static" / "nerve.css").read_text()
    assert text.count("{") == text.count("}")


async def test_no_page_has_inline_script_or_style_or_an_unescaped_value(web: WebServer) -> None:
    attack = EXAMPLE_ATTACK
    failed = await web.start("broken", label=attack[:40], input=attack, tags={"t": attack[:40]})
    paid = await web.start("paid", input=attack)
    asked = await web.start("review", input=attack)
    await web.api.assert_fact(fact=["note", {"text": attack, "by": attack}])
    pages = [
        "/", "/runs", f"/runs?search={attack}", "/agents", "/facts", "/facts?all=1",
        f"/facts?pattern={attack}", "/usage", f"/usage?days={attack}",
        "/compare", f"/compare?a={attack}&b={attack}",
        f"/compare?a={failed.run_id}&b={paid.run_id}", "/nothing", f"/runs/{attack}/rerun",
        f"/runs/{failed.run_id}/rerun", f"/runs/{failed.run_id}/rerun?from={attack}",
        f"/runs/{paid.run_id}/rerun?from=/writer", f"/runs/{asked.run_id}/rerun",
        *(f"/runs/{failed.run_id}{tab}" for tab in ("", "/graph", "/conversation", "/events", "/definition")),
        f"/runs/{paid.run_id}/steps/writer", "/inbox", "/workflows", "/workflows/review", "/ask",
    ]  # fmt: skip
    async with web.browser() as browser:
        for path in pages:
            reply = await browser.get(path)
            assert reply.status_code < 500, path
            policy = reply.headers["content-security-policy"]
            assert "script-src 'self'; style-src 'self'" in policy
            if reply.headers.get("content-type", "").startswith("text/html"):
                # The text of values may look like code; tags and attributes may not.
                assert "<script>alert" not in reply.text, path
                tags = re.findall(r"<[a-zA-Z][^<>]*(?:\"[^\"]*\"[^<>]*)*>", reply.text)
                found = [
                    tag for tag in tags if INLINE.search(re.sub(r'="(?!application/json)[^"]*"', '=""', tag))
                ]
                assert not found, (path, found[:3])


async def test_a_read_caller_sees_no_action_on_any_page(web: WebServer) -> None:
    failed, paid = await web.start("broken"), await web.start("paid")
    asked, steady = await web.start("publish", input="make"), await web.start("steady")
    await web.api.assert_fact(fact=["note", {"text": "x"}])
    home = f"/runs/{failed.run_id}"
    pages = [
        "/runs", "/runs?sort=cost", "/workflows", "/workflows/review", "/ask", "/agents", "/facts",
        "/facts?all=1", "/notifications", "/usage", "/inbox",
        f"/inbox/{asked.run_id}/{asked.gates[0].gate_id}",
        f"{home}/rerun", f"{home}/rerun?from=failed", f"/compare?a={failed.run_id}&b={paid.run_id}",
        *(f"{home}{tab}" for tab in ("", "/steps/fail", "/graph", "/conversation", "/events", "/definition")),
        f"/runs/{steady.run_id}", f"/runs/{steady.run_id}/stack", f"/runs/{asked.run_id}",
    ]  # fmt: skip
    async with web.browser("read") as reader, web.browser() as admin:
        found = False
        for path in pages:
            page = await reader.get(path)
            assert page.status_code == 200, path
            assert not ACTION.search(page.text), path
            found = found or 'method="post"' in (await admin.get(path)).text
        assert found


def test_no_file_of_the_page_is_left_out_of_the_package() -> None:
    """The wheel has the files of the package `nerve` that git does not ignore."""
    folder = Path(nerve.web.__file__).parent
    own = [str(file) for part in ("templates", "static") for file in (folder / part).rglob("*")]
    assert len(own) > 50
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", *own], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (ignored.returncode, ignored.stdout) == (1, "")


async def open_pages(web: WebServer, count: int) -> None:
    """Keep pages open while runs go on, and check that each sees the end of every run."""
    paths = ("/runs/stream", "/agents/stream", "/usage/stream")
    async with AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(web.stream(paths[number % len(paths)])) for number in range(count)
        ]
        await asyncio.gather(*(reader.until(lambda text: "data: " in text, 60) for reader in readers))
        runs = [await web.start("paid", input=number) for number in range(20)]
        assert {run.state for run in runs} == {"completed"}
        lists = readers[:: len(paths)]
        for reader in lists:
            for run in runs:
                row = rf'id="run-{run.run_id}"[^§]*?class="state completed"'
                await reader.until(lambda text, row=row: re.search(row, text), 60)
        total = f"${0.31 * len(runs):.2f}"
        for reader in readers[2 :: len(paths)]:
            await reader.until(lambda text: total in text, 60)


async def test_twelve_open_pages_see_the_end_of_every_run(web: WebServer) -> None:
    await open_pages(web, 12)


@pytest.mark.full
async def test_two_hundred_open_pages_see_the_end_of_every_run(web: WebServer) -> None:
    await open_pages(web, OPEN_PAGES)
