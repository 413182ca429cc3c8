"""Partitions that a consumer could not read when it was tried last: what stands there, and when it is tried again.

aiokafka ends a whole poll, and so the reading of every other partition, at the first batch that it cannot read. Here
such a partition rests by itself for a moment and is tried again; after some tries the failure counts as one that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import CorruptRecordException, RecordTooLargeError, TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest

TRIES_MAX = 5
TRY_AGAIN_S = 0.4
"""Two seconds in all, and longer where the broker keeps a fetch that brings nothing: what a broken connection or a
change of the leader spoils is whole by then.
"""

SMALL_BYTES = 16_777_216
"""A response below this has left out no partition for want of room: a fetch takes three times as much."""

OF_ONE_PARTITION = (CorruptRecordException, RecordTooLargeError, TopicAuthorizationFailedError)
"""Answers to a fetch that concern one partition and come again with each fetch. The second is also what aiokafka makes
of a batch whose length is damaged; it then passes over one offset.
"""


class NothingComes(Exception):
    """The broker says that there are records from here on, and gives none: it cannot find its way through the bytes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`behind` is where the next batch begins that looks whole, None where the fetch did not show it."""

    tp: KafkaTopicPartition
    offset: int
    error: Exception
    behind: int | None
    tries: int
    again_s: float

    @property
    def why(self) -> str:
        """The kind of the error in a word, and what it says."""
        return f"{type(self.error).__name__}: {self.error}"


class Unread:
    """The newest failure of each partition. Times are those of the loop, in seconds."""

    def __init__(self, tries_max: int = TRIES_MAX) -> None:
        self._tries_max = tries_max
        self._failures: dict[KafkaTopicPartition, Failure] = {}

    def note(self, tp: KafkaTopicPartition, offset: int, error: Exception, behind: int | None, now_s: float) -> None:
        """It cannot be read at this offset. Another place is tried as often anew."""
        known = self._failures.get(tp)
        tries = known.tries + 1 if known is not None and known.offset == offset else 1
        if behind is not None and behind <= offset:
            behind = None
        self._failures[tp] = Failure(tp, offset, error, behind, tries, now_s + TRY_AGAIN_S)

    def due(self, now_s: float) -> list[KafkaTopicPartition]:
        """The partitions that are to be tried again by now, once for each of their failures."""
        found = [tp for tp, failure in self._failures.items() if failure.again_s <= now_s]
        return [tp for tp in found if not self._lasts(self._failures[tp])]

    def wait_s(self, now_s: float) -> float | None:
        """How long until one of them is; None where there is none."""
        waits = [failure.again_s - now_s for failure in self._failures.values() if not self._lasts(failure)]
        return min((max(0.0, wait) for wait in waits), default=None)

    def is_tried(self, tp: KafkaTopicPartition, now_s: float) -> None:
        """It is being tried: not again before the pause is over once more."""
        failure = self._failures[tp]
        self._failures[tp] = Failure(
            tp, failure.offset, failure.error, failure.behind, failure.tries, now_s + TRY_AGAIN_S
        )

    def take_lasting(self) -> Failure | None:
        """One that was tried often enough; it is forgotten by that, and would be tried as often anew."""
        for tp, failure in self._failures.items():
            if self._lasts(failure):
                return self._failures.pop(tp)
        return None

    def forget(self, tp: KafkaTopicPartition) -> None:
        """It is not tried again."""
        self._failures.pop(tp, None)

    def read(self, standing: Mapping[KafkaTopicPartition, int]) -> None:
        """Forget the failures of places where no partition stands any more."""
        for tp in [tp for tp, failure in self._failures.items() if standing.get(tp) != failure.offset]:
            del self._failures[tp]

    def __bool__(self) -> bool:
        return bool(self._failures)

    def _lasts(self, failure: Failure) -> bool:
        return failure.tries >= self._tries_max


HAS_STABLE_OFFSET = 4
"""From this version on a response to a fetch says up to where a partition can be read."""

CannotRead = Callable[[KafkaTopicPartition, int, Exception], None]


class TellingClient:
    """aiokafka's client, as its fetcher uses it. Two answers of a broker the fetcher passes over, without end and
    without a word to the consumer, which is told of them here: that a batch is damaged (error 2), and no bytes at all
    though there are records, which is what comes of a batch whose length is damaged.
    """

    def __init__(self, client: Any, cannot_read: CannotRead) -> None:
        self._client, self._cannot_read = client, cannot_read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any) -> Any:
        """As aiokafka's."""
        response: Any = await self._client.send(node_id, request)
        if isinstance(request, FetchRequest) and response.API_VERSION >= HAS_STABLE_OFFSET:
            self._look_at(request, response)
        return response

    def _look_at(self, request: Any, response: Any) -> None:
        found = [(topic, *answer) for topic, partitions in response.topics for answer in partitions]
        is_small = sum(len(answer[-1]) for answer in found) < SMALL_BYTES
        for topic, partition, code, _, stable, *rest in found:
            if code == CorruptRecordException.errno or (code == 0 and is_small and not rest[-1]):
                tp = KafkaTopicPartition(topic, partition)
                offset = _asked(request, tp)
                if code:
                    self._cannot_read(tp, offset, CorruptRecordException("the broker finds the batch damaged"))
                elif offset < stable:
                    self._cannot_read(tp, offset, NothingComes(f"the broker gives nothing, and ends at {stable}"))


def _asked(request: Any, tp: KafkaTopicPartition) -> int:
    """The offset from which a fetch wants the records of this partition."""
    asked: dict[KafkaTopicPartition, int] = {
        KafkaTopicPartition(topic, partition): offset
        for topic, partitions in request.topics
        for partition, offset, _ in partitions
    }
    return asked[tp]


def failed_fetch(fetched: Any) -> Exception | None:
    """The error of what aiokafka's fetcher puts in the place of records, if it concerns that partition alone."""
    error = fetched._error if type(fetched) is FetchError else None  # noqa: SLF001 - of aiokafka 0.14
    return error if isinstance(error, OF_ONE_PARTITION) else None
