"""What an error of Redis means for its caller: wait, or wait and tell a person what has to be changed, or a bug.

One table, by the word that begins the error. Nothing in here ends a process: a view is shown again as soon as Redis
serves again.
"""

from __future__ import annotations

from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoAnswerInTime

from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.view.store import ViewMisused, ViewNeedsChange, ViewUnavailable

ONE_PRIMARY = "FALLOW_REDIS must name one primary that holds all keys; a cluster of several primaries cannot be used"
A_USER = "FALLOW_REDIS must name a user and a password that this Redis knows (redis://USER:PASSWORD@HOST:PORT/0)"

PASSES: dict[str, str] = {
    "LOADING": "Redis loads its data",
    "MASTERDOWN": "this Redis is a replica that has lost its primary",
    "READONLY": "this Redis is a replica; it serves again after a failover, or when FALLOW_REDIS names the primary",
    "CLUSTERDOWN": "the Redis cluster does not serve these keys now",
    "TRYAGAIN": "the Redis cluster moves these keys now",
    "OOM": "the memory of Redis is full; free some, or raise its maxmemory",
    "MISCONF": "Redis cannot write its data to the disk",
    "NOREPLICAS": "Redis has too few replicas to accept a write",
    "BUSY": "Redis runs another script",
}
"""Redis serves again by itself, or once there is room, a replica or a primary again."""

NEEDS: dict[str, str] = {
    "MOVED": ONE_PRIMARY,
    "ASK": ONE_PRIMARY,
    "CROSSSLOT": ONE_PRIMARY,
    "NOAUTH": A_USER,
    "WRONGPASS": A_USER,
    "NOPERM": "the user of FALLOW_REDIS lacks rights; shared/view/access/rights.py lists them",
    "DENIED": "Redis runs in protected mode and needs a password, or a bind to this network",
    "WRONGTYPE": "a key of the view holds something that is not Fallow's; delete that key",
}
"""Redis answers, and will refuse until a person changes what is set up."""

NEEDS_BY_TEXT: dict[str, str] = {
    "unknown command": "Redis 7 or Valkey 7.2 or newer is needed, with its function commands enabled",
    "DB index is out of range": "FALLOW_REDIS names a database that this Redis does not have",
    "invalid DB index": "FALLOW_REDIS names a database that this Redis does not have",
    "SELECT is not allowed in cluster mode": ONE_PRIMARY,
    "invalid password": A_USER,
    "'auth' command": A_USER,
    "'AUTH' command": A_USER,
}
"""What errors mean that begin with ERR, by a part of their text."""

DEFECTS = ("ERR", "FALLOW")
"""Beginnings of errors that our own functions raise, or that Redis gives to a command that is wrong."""


def eviction_told(policy: str) -> str | None:
    """What a person should know of a Redis with this `maxmemory-policy`; None where it takes no key of the view. The
    policies `volatile-*` take only keys that have a time to live, which no key of the view has.
    """
    if not policy.startswith("allkeys-"):
        return None
    return (
        f"maxmemory-policy of Redis is {policy}: a Redis that is full drops keys of the view, which is then built anew,"
        " again and again; set it to noeviction"
    )


def meaning_of(error: Exception, place: str) -> ViewUnavailable | ViewMisused:
    """What to raise in place of an error of redis-py, of its parser, or of the network. `place` is the address as it
    may be shown.
    """
    text, code, here = str(error) or type(error).__name__, code_of(error), f"Redis at {place}"
    if not code:
        return ViewUnavailable(f"no {here}: {_words_of(error)}")
    told = f"{code} {text.removeprefix(code).strip()}"
    if code in PASSES:
        return ViewUnavailable(f"{here}: {PASSES[code]} ({told})")
    need = NEEDS.get(code) or next((need for part, need in NEEDS_BY_TEXT.items() if part in text), None)
    if need is not None:
        return ViewNeedsChange(f"{here}: {need} ({told})")
    return ViewMisused(f"{here}: {text}") if code in DEFECTS else ViewUnavailable(f"{here}: {told}")


def _words_of(error: Exception) -> str:
    """Why nothing came from there. redis-py puts an error of its own before the system's."""
    if isinstance(error, NoAnswerInTime | TimeoutError):
        return "no answer in time"
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, OSError):
        # Without a number: of a name with several addresses, at each of which something else is wrong.
        return words_of_system(cause) if cause.errno is not None else "nothing answers there"
    return str(error).rstrip(".") or type(error).__name__


def code_of(error: Exception) -> str:
    """The word by which an error begins that Redis has sent; "" for an error that it has not sent. redis-py takes that
    word out of the text of the errors that it knows.
    """
    code = getattr(error, "status_code", None)
    if isinstance(code, str) and code:
        return code
    if not isinstance(error, ResponseError):
        return ""
    first = str(error).split(" ", 1)[0]
    return first if first.isupper() else "ERR"
