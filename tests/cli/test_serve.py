"""`nerve serve` that cannot: one clear error with its code and what to do, for people and for programs."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Said


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (["--port", "99999"], "Invalid port 99999", "--port"),
        (["--port", "65536"], "Invalid port 65536", "--port"),
        (["--port=-1"], "Invalid port -1", "--port"),
        (["--host", "0.0.0.0"], "0.0.0.0 is reachable from other machines", "--wide"),
        (["--host", "no such host", "--wide"], "'no such host' is not an address of this machine", "--host"),
        (["--host", "x" * 300, "--wide"], "is not an address of this machine", "--host"),
    ],
)
def test_invalid_server_options_are_usage_errors(
    do: Callable[..., Said], options: list[str], said: str, fix: str
) -> None:
    done = do("serve", "--json", *options)
    error = done.json["error"]
    assert (done.code, error["code"]) == (2, "bad_request")
    assert said in error["message"]
    assert fix in error["fix"]
    assert done.err == f"nerve: {error['message']}. {error['fix']}. [bad_request]\n"


def test_a_port_in_use_is_a_conflict(do: Callable[..., Said]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = do("serve", "--json", "--port", str(taken.getsockname()[1]))
    error = done.json["error"]
    assert (done.code, error["code"], error["fix"]) == (1, "conflict", "Use another --port or --host")


@pytest.mark.parametrize("spoilt", ["private", "nerve"])
def test_an_unsafe_folder_is_reported_with_a_fix(do: Callable[..., Said], project: Path, spoilt: str) -> None:
    folder = project / ".nerve/private"
    if spoilt == "private":
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    else:
        folder.parent.rename(project / "elsewhere")
        folder.parent.symlink_to(project / "elsewhere")
    done = do("serve", "--json", "--port", "0")
    error = done.json["error"]
    assert (done.code, error["code"]) == (1, "refused")
    assert error["message"]
    assert error["fix"]
