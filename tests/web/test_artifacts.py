"""How pages show the files that steps have made."""

import re
from pathlib import Path

import httpx2

from nerve.web.site import Site
from web.conftest import WebServer, serve_web

IMPORT = '{% from "parts/artifact.html" import artifact, artifact_at, artifact_list with context %}'


def render(site: Site, text: str, **values: object) -> str:
    return site.environment.from_string(IMPORT + text).render(**values)


async def make_artifact(web: WebServer, name: str, content: bytes) -> str:
    run = await web.start("hello")
    path = web.api.session.project / ".nerve/artifacts" / run.run_id / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return str(run.run_id)


async def test_an_image_is_shown_in_place_and_served_to_the_signed_in_browser(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run_id = await make_artifact(web, "charts/cost 1.png", b"pixels")
    page = await web.api.artifacts(run=run_id)
    html = render(web.app.site, "{{ artifact_list(page) }}", page=page)
    (source,) = re.findall(r'<img src="([^"]+)" alt="charts/cost 1.png"', html)
    assert (await browser.get(source)).content == b"pixels"
    assert 'download="cost 1.png">charts/cost 1.png</a> <span class="muted number">6 B</span>' in html


async def test_another_file_is_a_link_that_saves_it(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run_id = await make_artifact(web, "page.html", b"<script>alert(1)</script>" * 100)
    page = await web.api.artifacts(run=run_id)
    html = render(web.app.site, "{{ artifact_list(page) }}", page=page)
    assert "<img" not in html
    assert "2.5 kB" in html
    (address,) = re.findall(r'href="([^"]+)"', html)
    reply = await browser.get(address)
    assert reply.headers["content-disposition"].startswith("attachment")
    assert reply.headers["content-type"] == "application/octet-stream"


async def test_a_path_in_an_output_is_a_link_only_to_an_artifact(web: WebServer) -> None:
    text = "{{ artifact_at(path, is_image=true) }}"
    html = render(web.app.site, text, path="/srv/app/.archon/artifacts/01a1df45-8732/a/b.png")
    assert 'src="/api/runs/01a1df45-8732/artifacts/a%2Fb.png"' in html
    others = ["src/main.py", "/etc/passwd", ".nerve/artifacts/01a1df45-8732/../../nerve.db", "<script>"]
    for path in [*others, ".nerve/artifacts/../x", "javascript:alert(1)", ".nerve/artifacts/01a1df45-8732/"]:
        html = render(web.app.site, text, path=path)
        assert not re.search("href|src=", html), path
        assert "<script>" not in html


async def test_names_are_escaped_and_addresses_have_the_prefix_of_the_proxy(tmp_path: Path) -> None:
    async with serve_web(tmp_path, prefix="/nerve") as web:
        name = '"><script>alert(1)</script>/x?#.png'
        html = render(web.app.site, "{{ artifact('run', name, 3, true) }}", name=name)
        assert "<script>" not in html
        assert all(
            address.startswith("/nerve/api/runs/run/artifacts/%22%3E%3Cscript%3E")
            for address in re.findall(r'(?:src|href)="([^"]*)"', html)
        )
