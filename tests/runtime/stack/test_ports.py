"""The ports of servers that are started here."""

from __future__ import annotations

import socket

from fallow.shared.runtime.stack.ports import LOCAL, OUTGOING, free_ports


def test_ports_differ_and_can_be_taken() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as server:
            server.bind((LOCAL, port))


def test_no_outgoing_connection_is_given_the_port_of_a_server() -> None:
    lowest = int(OUTGOING.read_text(encoding="ascii").split()[0]) if OUTGOING.exists() else 32_768
    assert all(port < lowest for port in free_ports(50)) or lowest < 11_000
