"""The files in the folder "deploy" name commands, options and paths that exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages import ROOT
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, run_row

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
NERVE = Path(sys.executable).with_name("nerve")


def check_command(words: list[str]) -> None:
    """Check that a command line of Nerve can be parsed."""
    from nerve.cli.parser import app

    assert words[0] == "nerve"
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/nerve/bin/nerve", str(NERVE)))
    checked = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            "--recursive-errors=no",
            *(str(tmp_path / each.name) for each in UNITS),
        ],
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_every_command_of_a_unit_exists() -> None:
    texts = [unit.read_text() for unit in UNITS]
    commands = [
        command for text in texts for command in re.findall(r"/opt/nerve/bin/(nerve [^\n$]*)\n", text)
    ]
    # That of the backup is executed below.
    assert sorted(command.split()[1] for command in commands) == ["init", "serve", "worker", "worker"]
    for command in commands:
        check_command(shlex.split(command))


def test_the_backup_service_writes_a_backup_and_deletes_old_ones(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd/nerve-backup.service").read_text()
    project, state = tmp_path / "project", tmp_path / "state"
    (project / ".nerve").mkdir(parents=True)
    store = SqliteStore(project / ".nerve/nerve.db")
    store.append([append("r", 0, 3, run_row("r"))])
    store.close()
    old = state / "backups/20200101-000000.db"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    commands = re.findall(r"^Exec(?:StartPre|Start|StartPost)=(.*)$", unit, re.MULTILINE)
    assert len(commands) == 3
    for command in sorted(commands, key=lambda each: ("mkdir" not in each, "find" in each)):
        text = command.replace("/var/lib/nerve", str(state)).replace("/opt/nerve/bin/nerve", str(NERVE))
        subprocess.run(shlex.split(text.replace("%%", "%")), cwd=project, check=True)
    [backup] = (state / "backups").glob("*.db")
    assert re.fullmatch(r"\d{8}-\d{6}\.db", backup.name)
    copy = SqliteStore(backup)
    assert len(copy.events("r")) == 3
    copy.close()


def read_documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def test_the_containers_run_commands_that_exist() -> None:
    [compose] = read_documents(DEPLOY / "container/compose.yaml")
    service = compose["services"]["nerve"]
    assert (ROOT / "deploy/container" / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    check_command(service["command"])
    *_, last = (DEPLOY / "container/Dockerfile").read_text().splitlines()
    check_command(yaml.safe_load(last.removeprefix("CMD ")))


def test_the_pod_uses_what_the_other_objects_define() -> None:
    claim, deployment, service = read_documents(DEPLOY / "kubernetes/nerve.yaml")
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    check_command(container["args"])
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert (
        service["spec"]["selector"]
        == deployment["spec"]["selector"]["matchLabels"]
        == pod["metadata"]["labels"]
    )
    ports = {port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    assert container["readinessProbe"]["httpGet"]["port"] in ports


@pytest.mark.parametrize(
    "file",
    [
        "container/Dockerfile",
        "container/compose.yaml",
        "kubernetes/nerve.yaml",
        "cluster/compose.yaml",
        "cluster/kubernetes.yaml",
    ],
)
def test_a_file_that_was_not_run_says_so(file: str) -> None:
    assert re.search(r"^# .*Not (run|built) in the tests", (DEPLOY / file).read_text(), re.MULTILINE)
