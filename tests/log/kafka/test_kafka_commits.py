"""A commit that names a topic that is gone ends with the broker's first answer."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from fallow.shared.log.kafka.groups.commits import CommittingClient, TopicsGone

COMMIT = OffsetCommitRequest("group", 1, "member", -1, [])
GONE = 3


class Answering:
    """A client, and the answer of its broker: a code for each of two partitions of topic t, and one for topic u."""

    def __init__(self, *codes: int) -> None:
        self.topics = [("t", [(0, codes[0]), (1, codes[1])]), ("u", [(0, codes[2])])]
        self.groups: list[str] = []

    async def send(self, _node: int, _request: object, *, group: str) -> Answering:
        self.groups.append(group)
        return self


async def sent(answering: Answering, request: Any = COMMIT) -> object:
    return await CommittingClient(answering).send(1, request, group="coordination")


@pytest.mark.parametrize(("codes", "names"), [((0, GONE, 0), "t"), ((GONE, GONE, GONE), "t, u"), ((27, 0, GONE), "u")])
async def test_topics_that_are_gone_are_named(codes: tuple[int, int, int], names: str) -> None:
    with pytest.raises(TopicsGone, match=f"read of {names}$"):
        await sent(Answering(*codes))


@pytest.mark.parametrize("codes", [(0, 0, 0), (27, 16, 29)])
async def test_other_answers_are_left_to_aiokafka(codes: tuple[int, int, int]) -> None:
    answering = Answering(*codes)
    assert await sent(answering) is answering
    assert answering.groups == ["coordination"]


async def test_so_are_the_answers_to_other_requests() -> None:
    answering = Answering(GONE, GONE, GONE)
    assert await sent(answering, OffsetFetchRequest("group", [])) is answering
