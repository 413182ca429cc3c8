"""Who mistypes a job's id is told the one that was meant, where the view knows one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fallow.cli.job.meant import hint_by
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.view.reader import Read


@dataclass
class Row:
    id: str


class View:
    """Of two cells, the second of which cannot be read."""

    cells = ("main", "away")

    async def jobs(self, cell: str, *, limit: int) -> Read[tuple[Any, ...]]:
        assert limit > 0
        if cell == "away":
            raise ClientUnavailable("Redis is away")
        return Read((Row("vision/hello"), Row("search/many")), 1, 1, 1)


async def test_the_job_that_is_most_like_the_word_is_named() -> None:
    client = cast("CellClient", View())
    assert await hint_by(client, "helo", None) == " (did you mean vision/hello?)"
    assert await hint_by(client, "vision/helo", None) == " (did you mean vision/hello?)"
    assert await hint_by(client, "manny", "main") == " (did you mean search/many?)"


async def test_without_such_a_job_or_without_a_view_nothing_is_named() -> None:
    client = cast("CellClient", View())
    assert not await hint_by(client, "quite-another", None)
    assert not await hint_by(client, "helo", "away")
