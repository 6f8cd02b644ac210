"""The files for a Temporal cluster: their commands and scripts are executed, and refer to what exists."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from docs.pages import ROOT
from docs.test_deploy import check_command, read_documents
from nerve.project.engine_url import parse_engine_url
from postgresql_server import USER, PostgresqlServer, ServerMissing
from temporal_cluster import choose_low_port, find_folder

CLUSTER = ROOT / "deploy/cluster"
NERVE = Path(sys.executable).with_name("nerve")
PORTS = (
    *("FRONTEND_GRPC_PORT", "FRONTEND_HTTP_PORT", "FRONTEND_MEMBERSHIP_PORT"),
    *("MATCHING_GRPC_PORT", "MATCHING_MEMBERSHIP_PORT", "HISTORY_GRPC_PORT", "HISTORY_MEMBERSHIP_PORT"),
    *("WORKER_GRPC_PORT", "WORKER_MEMBERSHIP_PORT"),
)
"""The variables of the ports of the Temporal server."""


def check_program(words: list[str]) -> None:
    """Check a command of a container: of Nerve, or a script of the folder."""
    if words[0] == "serve.sh":
        words = ["nerve", "serve", *words[1:]]
    if words[0] == "nerve":
        check_command(words)
    elif words[0] == "/bin/sh":
        assert (CLUSTER / Path(words[1]).name).is_file()
    else:
        assert words[0] == "cp"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    [document] = read_documents(CLUSTER / "compose.yaml")
    return document


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    documents = read_documents(CLUSTER / "kubernetes.yaml")
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def test_the_services_of_compose_use_what_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    named: set[str] = set()
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (CLUSTER / source).exists() if source.startswith(".") else source in compose["volumes"]
            named |= {source} & compose["volumes"].keys()
        if command := service.get("entrypoint") or service.get("command"):
            check_program(command)
        if engine := service.get("environment", {}).get("NERVE_ENGINE"):
            namespace = services["temporal-namespace"]["environment"]["NAMESPACE"]
            assert tuple(parse_engine_url(engine)) == ("temporal:7233", namespace)
    assert named == set(compose["volumes"])


def test_the_containers_of_kubernetes_use_what_the_other_objects_define(
    objects: dict[tuple[str, str], dict[str, Any]],
) -> None:
    claims = {name for kind, name in objects if kind == "PersistentVolumeClaim"}
    for (kind, name), each in objects.items():
        if kind == "Service":
            [(label, app)] = each["spec"]["selector"].items()
            pods = [pod for pod in pods_of(objects) if pod["metadata"]["labels"].get(label) == app]
            ports = {port["containerPort"] for pod in pods for port in ports_of(pod)}
            assert {port.get("targetPort", port["port"]) for port in each["spec"]["ports"]} <= ports, name
    for template in pods_of(objects):
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            if command := container.get("command"):
                check_program([word.replace("$(POD_NAME)", "pod-0") for word in command])
            mounts = {mount["name"] for mount in container.get("volumeMounts", ())}
            assert mounts <= volumes.keys() | {"project"}
        used = [each["persistentVolumeClaim"] for each in volumes.values() if "persistentVolumeClaim" in each]
        assert {claim["claimName"] for claim in used} <= claims
    for kind in ("Deployment", "StatefulSet"):
        for each in (value for (of, _), value in objects.items() if of == kind):
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"] == labels


def pods_of(objects: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    templates = [each["spec"]["template"] for each in objects.values() if "template" in each["spec"]]
    return [{"metadata": {"labels": {}}, **template} for template in templates]


def ports_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]


def test_both_examples_have_the_same_versions(
    compose: dict[str, Any], objects: dict[tuple[str, str], dict[str, Any]]
) -> None:
    texts = json.dumps(compose), json.dumps(list(objects.values()))
    of_compose, of_kubernetes = (set(re.findall(r"temporalio/[a-z-]+:[\d.]+", text)) for text in texts)
    assert of_compose == of_kubernetes
    assert len(of_compose) == 2


def test_the_leaf_worker_keeps_its_name_when_its_pod_starts_again(
    objects: dict[tuple[str, str], dict[str, Any]],
) -> None:
    [container] = objects["StatefulSet", "nerve-leaves"]["spec"]["template"]["spec"]["containers"]
    options = dict(zip(container["command"], container["command"][1:], strict=False))
    assert (options["--place"], options["--host-name"]) == ("host", "$(POD_NAME)")


def test_servers_share_their_tokens(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "bin").mkdir()
    for name, program in (("nerve", NERVE), ("python3", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o700)
    tokens = [serve_once(project, tmp_path) for _ in range(2)]
    assert tokens[0] == tokens[1]
    assert tokens[0].keys() == {"read.token", "run.token", "answer.token", "admin.token"}


def serve_once(project: Path, folder: Path) -> dict[str, str]:
    """Return the tokens of a server that `serve.sh` starts in a container of its own, without its files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NERVE_")}
    variables = {
        "TOKENS": str(folder / "tokens"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(
        ["/bin/sh", str(CLUSTER / "serve.sh"), "--port", "0", "--json"],
        cwd=project,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "url" in json.loads(process.stdout.readline())
    private = project / ".nerve/private"
    tokens = {file.name: file.read_text() for file in private.glob("*.token")}
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    for file in private.glob("*.token"):
        file.unlink()
    return tokens


# -- Temporal itself -----------------------------------------------------------------------------------


@pytest.fixture
def programs() -> Path:
    try:
        return find_folder()
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def database() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@pytest.mark.full
def test_temporal_starts_with_these_scripts_and_variables(
    compose: dict[str, Any], programs: Path, database: PostgresqlServer
) -> None:
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    sql = {"SQL_HOST": "127.0.0.1", "SQL_PORT": str(database.port), "SQL_USER": USER}
    services = compose["services"]
    assert services["temporal-schema"]["environment"].keys() == {*sql, "SQL_PASSWORD"}
    for _ in range(2):
        run_script("create-schema.sh", {**sql, "SQL_PASSWORD": database.password, "PATH": path})
    for name in ("temporal", "temporal_visibility"):
        with psycopg.connect(database.url(name)) as db:
            [version] = db.execute("SELECT curr_version FROM schema_version").fetchone() or (None,)
            assert version not in (None, "0.0")
    check_dynamic_config(programs)
    ports = {name: str(choose_low_port()) for name in PORTS}
    of_machine = {
        "POSTGRES_SEEDS": "127.0.0.1",
        "DB_PORT": str(database.port),
        "POSTGRES_USER": USER,
        "POSTGRES_PWD": database.password,
        "BIND_ON_IP": "127.0.0.1",
        "DYNAMIC_CONFIG_FILE_PATH": str(CLUSTER / "dynamic-config.yaml"),
        "PROMETHEUS_ENDPOINT": "",
        # Fewer than in production, which needs longer to start.
        "NUM_HISTORY_SHARDS": "4",
    }
    variables = {**services["temporal"]["environment"], **of_machine, **ports}
    assert of_machine.keys() < services["temporal"]["environment"].keys()
    server = subprocess.Popen(
        [str(programs / "temporal-server"), "start"],
        env={"PATH": path, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = {"TEMPORAL_ADDRESS": f"127.0.0.1:{ports['FRONTEND_GRPC_PORT']}", "NAMESPACE": "nerve"}
        for _ in range(2):
            run_script("create-namespace.sh", {**address, "PATH": path, "HOME": "/nonexistent"})
        assert "7d" in describe_namespace(address, path) or "168h" in describe_namespace(address, path)
    finally:
        server.terminate()
        server.wait(30)


def describe_namespace(address: dict[str, str], path: str) -> str:
    command = ["temporal", "operator", "namespace", "describe", "--namespace", address["NAMESPACE"]]
    deadline = time.monotonic() + 30
    while True:
        variables = {**address, "PATH": path, "HOME": "/nonexistent"}
        described = subprocess.run(command, env=variables, capture_output=True, text=True)
        if described.returncode == 0 or time.monotonic() > deadline:
            assert described.returncode == 0, described.stderr
            return described.stdout
        time.sleep(0.2)


def run_script(name: str, variables: dict[str, str]) -> None:
    script = subprocess.run(
        ["/bin/sh", str(CLUSTER / name)], env=variables, capture_output=True, text=True, timeout=180
    )
    assert script.returncode == 0, script.stdout + script.stderr


def check_dynamic_config(programs: Path) -> None:
    command = [
        str(programs / "temporal-server"),
        "validate-dynamic-config",
        str(CLUSTER / "dynamic-config.yaml"),
    ]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "error" not in (checked.stdout + checked.stderr).lower()


@pytest.mark.full
def test_the_schemas_of_kubernetes_and_compose_accept_the_files() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    compose_spec = pytest.importorskip("compose_spec")
    for folder in ("cluster", "container", "kubernetes"):
        for file in (ROOT / "deploy" / folder).glob("*.yaml"):
            for document in read_documents(file):
                if "kind" in document:
                    kubernetes_validate.validate(document, "1.32", strict=True)
                elif "services" in document:
                    compose_spec.models.ComposeSpecification.model_validate(document)
