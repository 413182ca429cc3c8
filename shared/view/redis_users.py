"""Asks a Redis which users it has, and which functions."""

from __future__ import annotations

from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewMisused


async def users_told(functions: RedisFunctions) -> list[str]:
    """A line of ACL for each user. Raises ViewUnavailable, ViewMisused where this user may not see the others."""
    told = await functions.ask("ACL LIST")
    if not isinstance(told, list):
        raise ViewMisused("ACL LIST: what answers at this address is no Redis")
    return [str(line) for line in told]


async def users_and_source(url: str) -> tuple[list[str], str | None]:
    """The users as above, and the text of the view's library, None where there is none. Raises as above."""
    functions = RedisFunctions(url)
    try:
        return await users_told(functions), await functions.loaded_source()
    finally:
        await functions.stop()
