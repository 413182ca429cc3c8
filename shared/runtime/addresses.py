"""What an address of Kafka and of Redis must look like, checked before a library meets it."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

KAFKA_RULE = "must be HOST:PORT, or several of these with commas between, with ports from 1 to 65535"
REDIS_RULE = "must be a URL: redis://HOST:PORT/NUMBER, rediss://HOST:PORT/NUMBER (with TLS) or unix:///PATH"
REDIS_RULE += "; after ? it may give db, username and password, and with TLS ssl_ca_certs, ssl_certfile and ssl_keyfile"

PORT_MOST = 65_535
SCHEMES = ("redis", "rediss", "valkey", "valkeys")
WITH_TLS = ("rediss", "valkeys")
PLAIN_OPTIONS = frozenset({"db", "username", "password"})
TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})

_PASSWORD_OPTION = re.compile(r"((?:^|[?&])[^=&]*pass[^=&]*=)[^&]*", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def is_kafka(text: str) -> bool:
    """Whether this is a list of brokers to bootstrap from."""
    found = [_HOST_AND_PORT.fullmatch(part.strip()) for part in text.split(",")]
    return all(each is not None and 1 <= int(each[1]) <= PORT_MOST for each in found)


def is_redis(text: str) -> bool:
    """Whether this is the URL of a Redis or Valkey."""
    try:
        url = urlsplit(text)
        port, path, is_known = url.port, url.path.strip("/"), _are_options(url)
    except ValueError:
        return False
    if not is_known:
        return False
    if url.scheme == "unix":
        return bool(path)
    return url.scheme in SCHEMES and bool(url.hostname) and port != 0 and path.isdecimal() | (not path)


def _are_options(url: SplitResult) -> bool:
    """Whether what stands behind the ? are options that a connection takes. Raises ValueError where it is no query."""
    options = parse_qsl(url.query, keep_blank_values=True, strict_parsing=True) if url.query else []
    known = PLAIN_OPTIONS | (TLS_OPTIONS if url.scheme in WITH_TLS else frozenset())
    return all(name in known and (name != "db" or (value.isascii() and value.isdecimal())) for name, value in options)


def without_password(url: str) -> str:
    """The address as it may be shown: a password in it is not, neither that of its user nor one behind the `?`."""
    before, at, place = url.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    shown = f"{scheme if slashes else ''}{slashes}***@{place}" if at else url
    return _PASSWORD_OPTION.sub(r"\1***", shown)
