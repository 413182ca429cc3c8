"""Asks a Redis which users it has."""

from __future__ import annotations

from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewMisused


async def users_told(url: str) -> list[str]:
    """A line of ACL for each user. Raises ViewUnavailable, ViewMisused where this user may not see the others."""
    functions = RedisFunctions(url)
    try:
        told = await functions.ask("ACL LIST")
    finally:
        await functions.stop()
    if not isinstance(told, list):
        raise ViewMisused("ACL LIST: what answers at this address is no Redis")
    return [str(line) for line in told]
