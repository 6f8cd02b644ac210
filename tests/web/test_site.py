"""What holds for every page: sign-in, scopes, origin, policy, errors, path prefix and static files."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from nerve.web.static_files import STATIC_FOLDER, load_static_files
from web.conftest import ORIGIN, WebServer, serve_web

OPEN_PATHS = {"/", "/static/{name:path}", "/sign-in", "/sign-out"}
MAX_SCRIPT_BYTES, MAX_STYLE_BYTES = 70_000, 30_000


def page_routes(web: WebServer, method: str) -> list[str]:
    return [
        re.sub(r"{[^}]+}", "some", route.path)
        for route in web.app.site.routes
        if method in route.methods and route.path not in OPEN_PATHS
    ]


async def test_no_page_is_shown_without_a_sign_in(web: WebServer) -> None:
    assert "/runs" in page_routes(web, "GET")
    for method in ("GET", "POST"):
        for path in page_routes(web, method):
            async with web.browser(None) as stranger:
                reply = await stranger.request(method, path)
                assert reply.status_code in (401, 429), (method, path)
                assert "nerve" in reply.text


async def test_a_read_caller_gets_403_from_every_action(web: WebServer) -> None:
    async with web.browser("read") as reader:
        for path in page_routes(web, "POST"):
            reply = await reader.post(path, data={"run": "some"})
            assert reply.status_code == 403, path


@pytest.mark.parametrize(
    ("origin", "is_accepted"),
    [
        ("", False),
        ("http://evil.example", False),
        ("null", False),
        ("http://127.0.0.1:1", False),
        (ORIGIN, True),
    ],
)
async def test_a_form_is_accepted_only_from_a_page_of_this_server(
    web: WebServer, origin: str, is_accepted: bool
) -> None:
    async with web.browser() as browser:
        del browser.headers["origin"]
        for path in page_routes(web, "POST"):
            headers = {"origin": origin} if origin else {}
            reply = await browser.post(path, data={"nothing": "known"}, headers=headers)
            assert (reply.status_code != 403) is is_accepted, path


async def test_the_first_page_leads_a_signed_in_browser_to_the_runs(web: WebServer) -> None:
    async with web.browser() as browser, web.browser(None) as stranger:
        assert (await browser.get("/")).headers["location"] == "/runs"
        shown = await stranger.get("/")
        assert shown.status_code == 200
        assert "nerve web" in shown.text


async def test_errors_are_pages_for_browsers_notices_for_htmx_and_json_for_programs(web: WebServer) -> None:
    async with web.browser() as browser:
        page = await browser.get("/nothing")
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<h1>Not found</h1>" in page.text
        notice = await browser.get("/nothing", headers={"hx-request": "true"})
        assert notice.text.startswith('<div class="notice bad"')
        program = await browser.get("/nothing", headers={"accept": "*/*"})
        assert program.json()["code"] == "not_found"
        assert (await browser.get("/api/nothing")).json()["code"] == "not_found"


async def test_pages_contain_no_inline_script_or_style(web: WebServer) -> None:
    await web.start("review", label="<b>x</b>")
    async with web.browser() as browser:
        for path in ("/", "/runs", "/nothing"):
            reply = await browser.get(path)
            assert "script-src 'self'; style-src 'self'" in reply.headers["content-security-policy"]
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", reply.text), path


async def test_links_have_the_prefix_of_the_proxy(tmp_path: Path) -> None:
    async with serve_web(tmp_path, prefix="/nerve") as web, web.browser() as browser:
        for path in ("/runs", "/nerve/runs"):  # a proxy may remove the prefix or not
            text = (await browser.get(path)).text
            addresses = re.findall(r'(?:href|src|action|connect|hx-post)="(/[^"]*)"', text)
            assert addresses
            assert all(address.startswith("/nerve/") for address in addresses)
        assert (await browser.get("/nerve")).headers["location"] == "/nerve/runs"


async def test_static_files_are_kept_by_browsers_under_their_version(web: WebServer) -> None:
    async with web.browser(None) as browser:
        text = (await browser.get("/")).text
        (style,) = re.findall(r'href="([^"]*nerve\.css[^"]*)"', text)
        reply = await browser.get(style)
        assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert reply.headers["content-type"].startswith("text/css")
        assert (await browser.get("/static/nerve.css")).headers["cache-control"] == "no-store"
        for path in ("/static/../site.py", "/static/vendor/vendor.json", "/static/"):
            assert (await browser.get(path)).status_code in (401, 404), path


def test_vendored_files_are_those_of_their_packages() -> None:
    folder = STATIC_FOLDER / "vendor"
    packages = json.loads((folder / "vendor.json").read_text())
    sums = {name: sum for package in packages for name, sum in package["files"].items()}
    assert set(sums) == {path.name for path in folder.iterdir()} - {"vendor.json"}
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sums} == sums


def test_scripts_and_styles_are_small() -> None:
    sizes = {name: len(gzip.compress(file.content, 9)) for name, file in load_static_files().items()}
    assert sum(size for name, size in sizes.items() if name.endswith(".js")) < MAX_SCRIPT_BYTES
    assert sum(size for name, size in sizes.items() if name.endswith(".css")) < MAX_STYLE_BYTES
