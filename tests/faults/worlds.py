"""What schedules of faults act on: a database, the programs that use it, and the networks between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from faults import flows, networked_nerve
from faults.clients import PATIENCE_S, Address, Clients
from faults.invariants import Disturbance, find_violations
from faults.orders import Order, choose_orders, place_orders
from faults.programs import ClusterFaults, Program, faults_of_server
from faults.schedule import Effect, PlayedFault
from faults.tcp_proxy import TcpProxy
from postgresql_server import PostgresqlServer, choose_port
from temporal_cluster import TemporalCluster
from temporal_server import TemporalServer

SECONDS = 8.0
"""Time in which faults begin and orders arrive."""
ORDERS = 8
STEP_SLOTS = 3


@dataclass
class World:
    """The programs, what can happen to them, the clients, and what the programs have written."""

    folder: Path
    url: str
    """The URL of the database."""
    seed: int
    programs: list[Program] = field(default_factory=list)
    targets: dict[str, Mapping[str, Effect]] = field(default_factory=dict)
    disturbed: dict[str, Sequence[str]] = field(default_factory=dict)
    """The programs that a fault of each target cuts off from others."""
    addresses: list[Address] = field(default_factory=list)
    orders: Sequence[Order] = field(default_factory=lambda: choose_orders(ORDERS))
    seconds: float = SECONDS
    patience: float = PATIENCE_S

    @property
    def executed(self) -> Path:
        return self.folder / "executed"

    @cached_property
    def clients(self) -> Clients:
        return Clients(self.addresses, self.executed)

    def place_orders(self) -> None:
        """Let the clients place all orders, and return when they are completed."""
        asyncio.run(place_orders(self.clients, self.orders, self.seconds, self.seed, self.patience))

    def add_program(
        self, name: str, environment: Mapping[str, str], *arguments: str, module: str | None = None
    ) -> Program:
        own = {"NERVE_TEST_EXECUTED": str(self.executed), "NERVE_TEST_PROGRAM": name.replace(" ", "-")}
        program = Program(self.folder / name, arguments, {**own, **environment}, module)
        self.programs.append(program)
        self.targets[name] = program.faults()
        self.disturbed[name] = [name]
        return program

    def add_server(
        self, name: str, environment: Mapping[str, str], *arguments: str, module: str | None = None
    ) -> None:
        """Add an API server; `module` executes the command line, if it is not the usual one."""
        port = choose_port()
        serve = ["serve", "--port", str(port), "--json", "--with", flows.__file__]
        server = self.add_program(name, environment, *arguments, *serve, module=module)
        self.addresses.append(Address(port, server.folder / ".nerve/private/admin.token"))

    def add_network(self, stack: ExitStack, program: str, name: str, port: int) -> int:
        """Return the port at which a program reaches a server over a network that can be cut."""
        network = stack.enter_context(TcpProxy(port))
        target = f"network of {program} to {name}"
        self.targets[target] = network.faults()
        self.disturbed[target] = [program]
        return network.port

    def add_database_network(self, stack: ExitStack, program: str) -> str:
        """Return the URL at which a program reaches the database over a network that can be cut."""
        port = urlsplit(self.url).port
        assert port is not None
        return replace_port(self.url, self.add_network(stack, program, "the database", port))

    def keep_running(self) -> None:
        for program in self.programs:
            program.keep_running()

    def end(self) -> None:
        """End all programs: a paused one first has to continue."""
        for program in self.programs:
            program.resume()
            program.end()

    def find_violations(self, played: Sequence[PlayedFault] = ()) -> list[str]:
        """Return everything that is not as it must be after the faults; all programs have ended."""
        disturbances = [
            Disturbance(program.replace(" ", "-"), fault.began, fault.ended)
            for fault in played
            for program in self.disturbed.get(fault.target, ())
        ]
        return find_violations(self.url, self.clients, self.folder, self.executed, disturbances)


def replace_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))


@contextmanager
def create_owners(folder: Path, seed: int, database: PostgresqlServer) -> Iterator[World]:
    """Two servers with one database: one owns the session, the other one waits to take over."""
    with ExitStack() as stack:
        stack.callback(database.keep_running)
        world = World(folder, database.create_database(), seed)
        world.targets["database"] = faults_of_server(database)
        names = "alpha", "beta"
        world.disturbed["database"] = names
        for name in names:
            world.add_server(name, {"NERVE_STORE": world.add_database_network(stack, name)})
        stack.callback(world.end)
        yield world


@contextmanager
def create_temporal_workers(
    folder: Path,
    seed: int,
    database: PostgresqlServer,
    server: TemporalServer,
    mistakes: Mapping[str, str] | None = None,
) -> Iterator[World]:
    """Two workers for bodies, two for leaves, two API servers, Temporal, and a database for the journals.

    The seed decides whether the leaf workers are on one host, on two, or share the files. `mistakes` has the
    one that programs make, by the first word of their name; see `broken_nerve`.
    """
    with ExitStack() as stack:
        for each in database, server:
            stack.callback(each.keep_running)
        world = World(folder, database.create_database(), seed)
        world.targets |= {"database": faults_of_server(database), "temporal": faults_of_server(server)}
        if isinstance(server, TemporalCluster):
            world.targets |= ClusterFaults(server).targets()
        engine = server.url(server.create_namespace())
        tests = Path(networked_nerve.__file__).parents[1]

        def environment_of(program: str) -> dict[str, str]:
            port = world.add_network(stack, program, "temporal", server.port)
            return {
                "NERVE_STORE": world.add_database_network(stack, program),
                "NERVE_ENGINE": engine,
                networked_nerve.ADDRESS_VARIABLE: f"127.0.0.1:{port}",
                "PYTHONPATH": str(tests),
            }

        def program_of(role: str) -> tuple[list[str], str]:
            """Return the first arguments of the program of a role, and its module."""
            mistake = (mistakes or {}).get(role)
            return ([], "faults.networked_nerve") if mistake is None else ([mistake], "faults.broken_nerve")

        for name in "server 1", "server 2":
            arguments, module = program_of("server")
            world.add_server(name, environment_of(name), *arguments, module=module)
        hosts = ["--host-name=a"] * 2, ["--host-name=a", "--host-name=b"], ["--place=shared"] * 2
        roles = {"bodies": ["--bodies"] * 2, "leaves": hosts[seed % len(hosts)]}
        for role, options in roles.items():
            for number, option in enumerate(options, 1):
                name = f"{role} {number}"
                chosen = (
                    ["--leaves=bash,scripted", f"--slots={STEP_SLOTS}", option]
                    if role == "leaves"
                    else [option]
                )
                worker = ["worker", *chosen, "--with", flows.__file__, "--quiet"]
                arguments, module = program_of(role)
                world.add_program(name, environment_of(name), *arguments, *worker, module=module)
        stack.callback(world.end)
        yield world
