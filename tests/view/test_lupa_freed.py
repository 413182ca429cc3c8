"""The view's functions in this process are let go when no object uses them any more."""

from __future__ import annotations

import gc
import weakref

from fallow.shared.view.lupa_view import LuaFunctions


async def test_functions_that_were_used_and_dropped_are_freed() -> None:
    functions = LuaFunctions()
    kept = functions.keep()
    functions.lose_tail(kept)
    gone = weakref.ref(functions)
    del functions
    gc.collect()
    assert gone() is None
