"""What an address of Kafka and of Redis must look like, checked before a library meets it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from fallow.shared.runtime.errors.system_words import words_of_system

KAFKA_RULE = "must be HOST:PORT, or several of these with commas between, with ports from 1 to 65535"
HOST_RULE = "; between the dots of a host's name stand 1 to 63 characters"
KAFKA_RULE += HOST_RULE
REDIS_RULE = "must be a URL: redis://HOST:PORT/NUMBER, rediss://HOST:PORT/NUMBER (with TLS) or unix:///PATH"
REDIS_RULE += "; before HOST it may give USER:PASSWORD@, in which # is written %23, / %2F, ? %3F, @ %40 and % %25"
REDIS_RULE += "; after ? it may give db, username and password, and with TLS ssl_ca_certs, ssl_certfile and ssl_keyfile"
REDIS_RULE += HOST_RULE

PORT_MAX = 65_535
SCHEMES = ("redis", "rediss", "valkey", "valkeys")
WITH_TLS = ("rediss", "valkeys")
PLAIN_OPTIONS = frozenset({"db", "username", "password"})
TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})

_MAY_HOLD_OPTIONS = re.compile(r"[?#;&=\s]|%3[BDF]|%2[36]", re.IGNORECASE)
"""What an option begins with or names its value by, written or escaped."""
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|(?<=,) |[^?#;&=%\s])*")
_OPTIONS = re.compile(rf"\?(?:(?:db|username|{'|'.join(sorted(TLS_OPTIONS))})=[^?#;&=\s]*(?:&|\Z))*(?:[A-Za-z_]+=)?")
"""Behind the place: those that hold no secret, up to the value of the first other one."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*:)?//")
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def is_kafka(text: str) -> bool:
    """Whether this is a list of brokers to bootstrap from."""
    found = [_HOST_AND_PORT.fullmatch(part.strip()) for part in text.split(",")]
    return all(each is not None and is_host(each[1]) and 1 <= int(each[2]) <= PORT_MAX for each in found)


def is_host(name: str) -> bool:
    """Whether a host can have this name. A look-up of another name meets an error that no network makes."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False


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
    return url.scheme in SCHEMES and is_host(url.hostname or "") and port != 0 and path.isdecimal() | (not path)


def _are_options(url: SplitResult) -> bool:
    """Whether what stands behind the ? are options that a connection takes. Raises ValueError where it is no query."""
    options = parse_qsl(url.query, keep_blank_values=True, strict_parsing=True) if url.query else []
    known = PLAIN_OPTIONS | (TLS_OPTIONS if url.scheme in WITH_TLS else frozenset())
    return all(name in known and (name != "db" or (value.isascii() and value.isdecimal())) for name, value in options)


def unusable_file(url: str) -> str | None:
    """The first file that the URL of a Redis names and that cannot be read: its option, its path and why."""
    for name, path in parse_qsl(urlsplit(url).query):
        why = _why_not_read(path) if name in TLS_OPTIONS else ""
        if why:
            return f"{name} = {path}: {why}"
    return None


def _why_not_read(path: str) -> str:
    """Empty where it can be read. It is not opened: a pipe would be waited for."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        return words_of_system(error)
    if not stat.S_ISREG(mode):
        return "is no file"
    return "" if os.access(path, os.R_OK) else "may not be read"


def without_password(url: str) -> str:
    """The address as it may be shown, up to where a password could begin: behind the `@` of a user, to a port that is
    none, or to an option of which it is not known that it holds no secret. Where a password would end cannot be told.
    """
    scheme = _SCHEME.match(url)  # not just what stands before `//`: a password may hold that
    start = scheme[0] if scheme else ""
    before, at, behind = url[len(start) :].rpartition("@")
    if _MAY_HOLD_OPTIONS.search(before):  # a password of a user, or an option with an `@`
        return f"{start}***"
    return f"{start}{'***@' if at else ''}{_without_secret_end(behind)}"


def _without_secret_end(text: str) -> str:
    """Places and options, up to what may be a secret."""
    place = _PLACE.match(text)
    assert place is not None, "it may be empty"
    if not _are_places(place[0].partition("/")[0]):
        return f"{text.partition(':')[0]}:***"
    options = _OPTIONS.match(text, place.end())
    end = place.end() if options is None else options.end()
    return text[:end] + ("***" if end < len(text) else "")


def _are_places(text: str) -> bool:
    """Whether a port, and no password, stands behind each colon."""
    return all(":" not in each or _HOST_AND_PORT.fullmatch(each.strip()) for each in text.split(","))
