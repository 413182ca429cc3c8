"""`python -S -m fallow.shared.runtime.http.probe [PATH]`: exit code 0 if this container's service answers
PATH with 200.

It runs every few seconds beside each service, so it imports next to nothing. PATH is /readyz if none is given; the port
is FALLOW_HTTP_PORT, on this machine.
"""

from __future__ import annotations

import os
import socket
import sys

LOCAL = "127.0.0.1"
ANSWER_WAIT_S = 2.0
READY, NOT_READY = 0, 1
HEAD_BYTES_MAX = 65_536


def probe(port: int, path: str) -> tuple[bool, str]:
    """Whether the answer is 200, and its body; of no answer, why there is none."""
    request = f"GET {path} HTTP/1.1\r\nhost: {LOCAL}\r\nconnection: close\r\n\r\n"
    answer = b""
    try:
        with socket.create_connection((LOCAL, port), ANSWER_WAIT_S) as connection:
            connection.sendall(request.encode())
            while len(answer) < HEAD_BYTES_MAX and (part := connection.recv(HEAD_BYTES_MAX)):
                answer += part
    except OSError as error:
        return False, error.strerror or str(error) or "no answer in time"
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b" ", 2)[1:2] == [b"200"], body.decode("utf-8", "replace")


def main(arguments: list[str]) -> int:
    """Ask, tell what was answered (an engine keeps it with the state of the container), and say it as an exit code."""
    path = arguments[0] if arguments else "/readyz"
    is_good, text = probe(int(os.environ.get("FALLOW_HTTP_PORT", "0")), path)
    sys.stdout.write(f"{text}\n")
    return READY if is_good else NOT_READY


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
