"""The users of the view at Redis: what is declared of each, as a file of Redis's ACL, and what differs from it.

The rights stand in `rights.py`. A server that was given the file requires a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from fallow.shared.view.access.rights import loader_rights, reader_rights, writer_rights

ADMIN = "admin"
"""The user that makes and checks the others. No service has its password."""

UNCOUNTED = frozenset({"sanitize-payload", "resetkeys"})
"""What servers tell of a user beside its rights, or leave out."""


def declared_users(namespace: str) -> dict[str, str]:
    """Each user with its rights, in the words of Redis's ACL."""
    return {
        "projector": writer_rights(namespace),  # writes the view
        "reader": reader_rights(namespace),  # people at the command line, and what answers them
        "loader": loader_rights(),  # `fallow view load`
    }


def acl_file(namespace: str, passwords: Mapping[str, str]) -> str:
    """The lines of an ACL file for the declared users and the administrator, with the hashes of their passwords."""
    users = {ADMIN: "~* &* +@all", **declared_users(namespace)}
    lines = [f"user {name} on #{_hashed(passwords[name])} {rights}" for name, rights in users.items()]
    return "\n".join(["user default off resetkeys resetchannels -@all", *lines, ""])


@dataclass(frozen=True, slots=True)
class UserDifference:
    """One user that is not as declared, and how."""

    user: str
    text: str


def user_differences(namespace: str, told: Iterable[str]) -> list[UserDifference]:
    """How the users of a server differ from the declared ones. `told` is its answer to ACL LIST, a user a line."""
    found = dict(map(_user_of, told))
    differences = [
        UserDifference(name, text)
        for name, rights in declared_users(namespace).items()
        for text in _differences_of(name, found.get(name), frozenset(rights.split()))
    ]
    if "nopass" in found.get(ADMIN, frozenset()):
        differences.append(UserDifference(ADMIN, f"user {ADMIN} needs no password"))
    others = found.keys() - declared_users(namespace).keys() - {ADMIN}
    return differences + [
        UserDifference(name, text) for name in sorted(others) for text in _of_another(name, found[name])
    ]


def _user_of(line: str) -> tuple[str, frozenset[str]]:
    _, name, *words = line.split()
    return name, frozenset(words) - UNCOUNTED


def _differences_of(name: str, words: frozenset[str] | None, rights: frozenset[str]) -> Iterable[str]:
    if words is None:
        yield f"missing: user {name}"
        return
    if "on" not in words:
        yield f"user {name} is switched off"
    if "nopass" in words:
        yield f"user {name} needs no password"
    actual = frozenset(word for word in words if word not in {"on", "off", "nopass"} and not word.startswith("#"))
    for word in sorted(rights - UNCOUNTED - actual):
        yield f"missing: user {name} has no {word}"
    for word in sorted(actual - rights):
        yield f"not declared: user {name} has {word}"


def _of_another(name: str, words: frozenset[str]) -> Iterable[str]:
    """A user that is not declared is reported if it can do anything."""
    is_open = "on" in words and any(word.startswith("+") for word in words)
    if is_open and "nopass" in words:
        yield f"beside the declared ones: user {name} needs no password"
    elif is_open:
        yield f"beside the declared ones: user {name}"


def _hashed(password: str) -> str:
    return sha256(password.encode()).hexdigest()
