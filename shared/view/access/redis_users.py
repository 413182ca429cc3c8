"""Asks a Redis which users it has, and which functions."""

from __future__ import annotations

from fallow.shared.view.redis_view import RedisFunctions


async def users_and_source(url: str) -> tuple[list[str], str | None]:
    """A line of ACL for each user, and the text of the view's library, None where there is none. Raises
    ViewUnavailable, ViewMisused where this user may not see the others.
    """
    functions = RedisFunctions(url)
    try:
        return await functions.users(), await functions.loaded_source()
    finally:
        await functions.stop()
