"""Of what Redis tells about its libraries only that of our very name is ours."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.view.library import LIBRARY
from fallow.shared.view.redis_view import source_in
from fallow.shared.view.store import ViewMisused


def told(name: str, code: str) -> list[str]:
    return ["library_name", name, "engine", "LUA", "functions", "", "library_code", code]


def test_a_library_whose_name_differs_in_capitals_is_not_ours() -> None:
    """Redis compares the name that it is asked for without regard to capitals, and lists both."""
    other = told(LIBRARY.upper(), "forged")
    assert source_in([other, told(LIBRARY, "ours")], "a:1") == "ours"
    assert source_in([told(LIBRARY, "ours"), other], "a:1") == "ours"
    assert source_in([other], "a:1") is None
    assert source_in([], "a:1") is None


@pytest.mark.parametrize("answer", [None, 5, [5], [["library_name"]], [["engine", "LUA"]]])
def test_what_no_redis_would_answer_is_told_as_that(answer: Any) -> None:
    with pytest.raises(ViewMisused, match=r"^no Redis at a:1: something else answers FUNCTION LIST there$"):
        source_in(answer, "a:1")
