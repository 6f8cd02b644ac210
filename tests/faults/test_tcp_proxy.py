"""The proxy of the fault tests does to connections what their names say."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from faults.tcp_proxy import TcpProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """The port of a server that returns what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_echoes, args=[listener], daemon=True).start()
        yield listener.getsockname()[1]


def serve_echoes(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=[connection], daemon=True).start()


def echo(connection: socket.socket) -> None:
    with closing(connection):
        try:
            while data := connection.recv(1000):
                connection.sendall(data)
        except OSError:
            return


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(1000)


def use_new_connection(proxy: TcpProxy) -> None:
    """Exchange something twice: a reset that comes late shows the second time."""
    with connect(proxy) as connection:
        exchange(connection, b"one")
        exchange(connection, b"two")


def test_a_proxy_forwards_in_both_directions_until_the_end(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy, connect(proxy) as connection:
        assert exchange(connection, b"one") == b"one"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""


def test_a_cut_resets_old_and_new_connections_until_it_is_restored(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy, connect(proxy) as connection:
        assert exchange(connection, b"one") == b"one"
        proxy.cut()
        with pytest.raises(ConnectionError):
            connection.recv(1000)
        with pytest.raises(ConnectionError):
            use_new_connection(proxy)
        proxy.restore()
        with connect(proxy) as other:
            assert exchange(other, b"three") == b"three"


def test_a_stalled_connection_stays_and_its_data_arrives_later(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy, connect(proxy) as connection:
        assert exchange(connection, b"one") == b"one"
        proxy.stall()
        connection.sendall(b"two")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1000)
        connection.settimeout(10)
        proxy.restore()
        assert connection.recv(1000) == b"two"


def test_a_delay_is_added_in_each_direction(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy, connect(proxy) as connection:
        proxy.delay(0.05)
        started = time.monotonic()
        assert exchange(connection, b"one") == b"one"
        assert time.monotonic() - started >= 0.1


def test_a_target_that_is_gone_looks_like_a_cut(echo_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed_port: int = listener.getsockname()[1]
    with TcpProxy(closed_port) as proxy:
        with pytest.raises(ConnectionError):
            use_new_connection(proxy)
        proxy.target_port = echo_port
        with connect(proxy) as connection:
            assert exchange(connection, b"two") == b"two"
