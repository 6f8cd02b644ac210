"""`nerve serve` that cannot: one clear error with its code and what to do, for people and for programs."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Said


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        (["--port", "99999"], "99999 is no port", "--port"),
        (["--port", "65536"], "65536 is no port", "--port"),
        (["--port=-1"], "-1 is no port", "--port"),
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines", "--wide"),
        (["--host", "no such host", "--wide"], "'no such host' is no address of this machine", "--host"),
        (["--host", "x" * 300, "--wide"], "is no address of this machine", "--host"),
    ],
)
def test_a_server_that_is_asked_for_wrongly_is_bad_usage(
    do: Callable[..., Said], options: list[str], said: str, fix: str
) -> None:
    done = do("serve", "--json", *options)
    error = done.json["error"]
    assert (done.code, error["code"]) == (2, "bad_request")
    assert said in error["message"]
    assert fix in error["fix"]
    assert done.err == f"nerve: {error['message']}. {error['fix']}. [bad_request]\n"


def test_a_port_that_is_taken_is_a_conflict(do: Callable[..., Said]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = do("serve", "--json", "--port", str(taken.getsockname()[1]))
    error = done.json["error"]
    assert (done.code, error["code"], error["fix"]) == (1, "conflict", "Give another one: --port, or --host")


@pytest.mark.parametrize("spoilt", ["private", "nerve"])
def test_a_folder_that_is_not_as_it_must_be_is_said_with_a_fix(
    do: Callable[..., Said], project: Path, spoilt: str
) -> None:
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
