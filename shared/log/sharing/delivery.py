"""The order in which records of shared topics are handled and committed: each at least once, whatever happens between.

A batch is committed when all its outputs are acknowledged, and never before. A process that dies in between, or loses a
partition, leaves the batch to the next owner. What reads the topics and keeps the offsets is behind the port `Share`:
FastStream and aiokafka in production, the fault world in a simulated process.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fallow.shared.log.inputs.damage import DamageWatch
from fallow.shared.log.inputs.losses import PlaceWatch, loss_met, losses_of
from fallow.shared.log.machine.losses import Loss, LossKind, Place
from fallow.shared.log.port import Log, LogRefused, LogTruncated, LogUnavailable, Record, TopicPartition
from fallow.shared.log.reading import input_checksum, stands_for_unreadable
from fallow.shared.log.sharing.share import Batches, CommitFailed, Share

COMMIT_EVERY_S = 1.0
"""What was handled since the last commit is handled again by the next owner when this process is killed."""

LOOK_AGAIN_S = 0.2
ASK_AGAIN_S = 5.0
"""How often a topic is asked for again that this process has no right to."""

WARN_EVERY_S = 10.0

GIVE_UP_MS_MAX = 150_000
"""Half of the time for which a group waits for a member that does not poll."""

logger = logging.getLogger(__name__)

Places = dict[TopicPartition, Place]
Losses = dict[TopicPartition, Loss]

BatchHandler = Callable[[list[Record]], Awaitable[None]]
"""Takes a batch, in order within each partition; returns when all outputs of all its records are acknowledged."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a failing batch is tried again: in place, later and later (with jitter), and not for ever."""

    wait_ms_min: int = 100
    wait_ms_max: int = 5_000
    give_up_after_ms: int = 60_000

    def __post_init__(self) -> None:
        """Refuse what would retry hotly, or outlive the membership of the group."""
        if not 10 <= self.wait_ms_min <= self.wait_ms_max <= self.give_up_after_ms <= GIVE_UP_MS_MAX:  # noqa: PLR2004
            raise ValueError(f"{self}: must be 10 <= wait_ms_min <= wait_ms_max <= give_up_after_ms <= 150000")


class DeliveryGaveUp(Exception):
    """A batch failed for as long as its retry policy allows. Nothing is lost: its offsets are not committed."""


def tell_loss(loss: Loss) -> None:
    """Write it into the log of the process."""
    logger.error("%s", loss)


class Delivery:
    """One subscription at work. `join` it to a share, then `take` and `deliver` in turn; the counts are for metrics."""

    def __init__(  # noqa: PLR0913 - all by name but the two first; each is a port, or what was told before
        self,
        handler: BatchHandler,
        log: Log,
        *,
        on_loss: Callable[[Loss], None] = tell_loss,
        on_held: Callable[[Loss], None] = lambda _: None,
        told: dict[TopicPartition, Loss] | None = None,
        retry: RetryPolicy | None = None,
        chance: Callable[[], float] = random.random,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        """`on_loss` is told of each partition that does not hold what the group has committed of it, once. Where
        records are lost, the partition is read no further until a later share finds it whole; it is never read from
        its beginning for that, where thousands were handled already. Where records were deleted before they were
        read, reading goes on where the partition begins. Where records cannot be read, the others are read on, and this
        one as soon as it can be: it is looked at twice a minute. Of a place that cannot be read it is told once, also
        where the partition is another's meanwhile: `told` is what was told already, for a delivery that comes after
        another one. `on_held` is told each time that a partition is held by a loss.

        `chance` draws a number from 0 to below 1; `log` answers questions about the topics.
        """
        self._handler, self._log, self._on_loss, self._warn = handler, log, on_loss, warn
        self._on_held = on_held
        self._retry, self._chance = retry or RetryPolicy(), chance
        self.batches = 0
        self.records = 0
        self.retries = 0
        self.batches_taken_away = 0
        """Handled here, and again by the partitions' next owner."""
        self.batches_left = 0
        """Failed here and left to the next owner: the partitions were taken away, or this process stops."""
        self.is_running: Callable[[], bool] = lambda: True
        """Whether a batch that fails is to be tried again; set by what drives this."""
        self._share: Share | None = None
        self._reason: DeliveryGaveUp | None = None
        self._gave_up = asyncio.Event()
        self._generation = -1
        self._looked_at: frozenset[TopicPartition] = frozenset()
        self._standing: dict[TopicPartition, Place] = {}
        self.held: frozenset[TopicPartition] = frozenset()
        """The partitions of this share that are not read: they have lost records, cannot be read, or are of a topic to
        which this process has no right.
        """
        self._refused: dict[str, str] = {}
        self._ask_again_s = 0.0
        self._told: dict[TopicPartition, Loss] = {} if told is None else told
        self._watch, self._damage = PlaceWatch(log), DamageWatch(log)
        self._handled: dict[TopicPartition, Place] = {}
        self._read_past: dict[TopicPartition, Loss] = {}
        """Losses behind which the group has read on before they were found: what it has committed does not show them,
        until it is taken back there.
        """
        self._one_commits = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        self._commit_due_s = self._warn_at_s = 0.0

    def join(self, share: Share) -> None:
        """Before all else."""
        self._share = share

    @property
    def share(self) -> Share:
        """What was joined."""
        assert self._share is not None, "a delivery is joined to a share before it is used"
        return self._share

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are this process's to handle, as of the last rebalance."""
        return frozenset() if self._share is None else self._share.assigned()

    @property
    def refused(self) -> Mapping[str, str]:
        """The topics of this share to which this process has no right, and what the log says of each."""
        return self._refused

    def standing(self) -> dict[TopicPartition, int]:
        """How far the group has come in each partition of this share, as far as is known here; 0 where it has never
        committed any.
        """
        behind = {tp: place.next_offset for tp, place in self._standing.items()}
        return {tp: behind.get(tp, 0) for tp in self._looked_at if tp in self.assigned}

    async def given_up(self) -> DeliveryGaveUp:
        """Wait until a batch is given up (for ever, if all goes well). The process should then end with an error."""
        await self._gave_up.wait()
        assert self._reason is not None
        return self._reason

    # Reading.

    async def take(self, most: int) -> Batches:
        """What comes of partitions that hold what the group has committed of them. Empty when nothing came for a
        while.
        """
        if not await self._has_looked():
            return {}
        for loss in self._watch.lost():
            self._find(loss)
        for loss in self._damage.mended():
            self._go_on(loss)
        try:
            found = await self.share.poll(most)
        except LogTruncated as error:
            self._lose(loss_met(error))
            return {}
        # The group may have rearranged itself during the poll: what was found may be of a partition that is new here.
        while not await self._has_looked():
            continue
        return {tp: records for tp, records in found.items() if tp not in self.held}

    async def _has_looked(self) -> bool:
        """Look once at what the partitions of a new share hold; False when the log is away, or the share is past."""
        share, generation = self.share, self.share.generation
        if generation == self._generation:
            await self._ask_again()
            return True
        assigned = share.assigned()
        try:
            places, losses, refused = await self._look_at_each(assigned)
        except LogUnavailable as error:
            self._warn(f"what the group has committed cannot be looked at: {error}")
            await asyncio.sleep(LOOK_AGAIN_S)
            return False
        if share.generation != generation:
            return False
        self._begin_share(generation, assigned, places)
        self._wait_for_rights(refused)
        losses = {**self._still_unreadable(), **losses, **self._still_past()}
        for tp in [tp for tp, told in self._told.items() if not _stays_told(told) and tp not in losses]:
            del self._told[tp]
        for loss in losses.values():
            self._lose(loss)
        return True

    async def _look_at_each(self, tps: Collection[TopicPartition]) -> tuple[Places, Losses, dict[str, str]]:
        """What the group has committed of these, which of them do not hold it, and which topics are refused to us. A
        topic that is refused keeps no other one waiting. Raises LogUnavailable.
        """
        places, losses, refused = Places(), Losses(), dict[str, str]()
        try:
            found = [await self._look_at(tps)] if tps else []
        except LogRefused:
            found = []
            for topic in sorted({topic for topic, _ in tps}):
                try:
                    found.append(await self._look_at([tp for tp in tps if tp[0] == topic]))
                except LogRefused as error:
                    refused[topic] = str(error)
        for known, lost in found:
            places |= known
            losses |= lost
        return places, losses, refused

    async def _look_at(self, tps: Collection[TopicPartition]) -> tuple[Places, Losses]:
        places = await self.share.committed(tps)
        # Of a partition of which nothing was ever committed nothing was handled.
        return places, await losses_of(self._log, {tp: places.get(tp, Place(0)) for tp in tps})

    def _wait_for_rights(self, refused: dict[str, str]) -> None:
        """Read nothing of these topics until they can be looked at."""
        for topic, why in refused.items():
            if topic not in self._refused:
                self._warn(f"{topic} is not read, the other topics are: {why}")
        self._refused = refused
        for tp in self._looked_at:
            if tp[0] in refused:
                self.share.hold(tp)
                self.held |= {tp}
        self._ask_again_s = asyncio.get_running_loop().time() + ASK_AGAIN_S

    async def _ask_again(self) -> None:
        """Now and then: whether the right was granted, so that the topic is read from where the group has come."""
        if not self._refused or asyncio.get_running_loop().time() < self._ask_again_s:
            return
        generation, waiting = self._generation, [tp for tp in self._looked_at if tp[0] in self._refused]
        try:
            places, losses, refused = await self._look_at_each(waiting)
        except LogUnavailable:
            places, losses, refused = {}, {}, self._refused
        if self.share.generation != generation:
            return
        self._standing |= places
        for tp, place in places.items():
            self._watch.read(tp, place)
        for tp in [tp for tp in waiting if tp[0] not in refused]:
            self.held -= {tp}
            self.share.release(tp, places.get(tp, Place(0)).next_offset)
        self._wait_for_rights(refused)
        for loss in losses.values():
            self._lose(loss)

    def _begin_share(
        self, generation: int, assigned: frozenset[TopicPartition], places: dict[TopicPartition, Place]
    ) -> None:
        earlier = {tp: read for tp, read in self._watch.uncompared().items() if tp in assigned}
        for tp in self._looked_at:
            self._watch.forget(tp)
        for tp, place in places.items():
            self._watch.read(tp, place)
            # What the group has not committed is handled again, and compared again.
            self._watch.read_earlier(tp, tuple(read for read in earlier.get(tp, ()) if _is_before(read, place)))
        self._generation, self._looked_at = generation, assigned
        self._standing, self.held = dict(places), frozenset()
        self._damage.clear()

    def _still_past(self) -> dict[TopicPartition, Loss]:
        """The losses that the group has read past, and that its new places still do not show."""
        standing, past, self._read_past = self._standing, self._read_past, {}
        found = {tp: loss for tp, loss in past.items() if tp in standing and _is_before(loss.place, standing[tp])}
        for loss in found.values():
            self._take_back(loss)
        return found

    def _still_unreadable(self) -> Losses:
        """The places that could not be read in an earlier share, and at which the group still stands: they are looked
        at beside other work, as before.
        """
        standing = {tp: self._standing.get(tp, Place(0)).next_offset for tp in self._looked_at - self.held}
        return {
            tp: told
            for tp, told in self._told.items()
            if told.kind is LossKind.UNREADABLE and standing.get(tp) == told.next_offset
        }

    def _find(self, loss: Loss) -> None:
        """A look has found this."""
        if loss.tp in self.assigned and loss.place != self._watch.newest(loss.tp):
            self._take_back(loss)
        self._lose(loss)

    def _take_back(self, loss: Loss) -> None:
        """Commit the place that is lost: every later owner of the partition finds it by that."""
        self._handled.pop(loss.tp, None)
        self._read_past[loss.tp] = loss
        self._commit_soon()

    def _lose(self, loss: Loss) -> None:
        """Report a loss once: a fetch that was under way meets it again, and so does each new share of the group. That
        it holds its partition is said each time: with the share before it was let go of.
        """
        tp = loss.tp
        if tp not in self.assigned:
            return
        if _is_past(loss):
            self.share.seek(tp, loss.begin)
        else:
            self.share.hold(tp)
            self.held |= {tp}
            self._watch.forget(tp)
            if loss.kind is LossKind.UNREADABLE:
                self._damage.put(loss)
        known = self._told.get(tp)
        if known is None or (known.kind, known.next_offset) != (loss.kind, loss.next_offset):
            self._told[tp] = loss
            self._on_loss(loss)
        if not _is_past(loss):
            self._on_held(loss)

    def _go_on(self, loss: Loss) -> None:
        """What could not be read can be by now."""
        if loss.tp in self.held and loss.tp in self.assigned:
            self.held -= {loss.tp}
            self._told.pop(loss.tp, None)
            self._warn(f"{loss.tp[0]}/{loss.tp[1]} can be read again at offset {loss.next_offset}")
            self.share.release(loss.tp, loss.next_offset)

    # Handling.

    async def deliver(self, records: list[Record]) -> None:
        """Handle the batch, to be committed; leave both to the next owner when it is no longer ours. Raises
        DeliveryGaveUp.
        """
        if await self._handle_until_done(records):
            self.batches += 1
            self.records += len(records)
            self._note(places_behind(records))
        else:
            self.batches_left += 1

    async def _handle_until_done(self, records: list[Record]) -> bool:
        """True when handled; False when the batch is to be left."""
        wait_ms = self._retry.wait_ms_min
        give_up_at_s = asyncio.get_running_loop().time() + self._retry.give_up_after_ms / 1000
        while True:
            try:
                await self._handler(records)
            except Exception as error:
                is_late = asyncio.get_running_loop().time() + wait_ms / 1000 > give_up_at_s
                if is_late and not isinstance(error, LogUnavailable):
                    raise self._give_up(records[0], error) from error
                self._warn(f"a batch of {len(records)} records failed and is tried again: {error!r}")
            else:
                return True
            self.retries += 1
            await asyncio.sleep((0.5 + 0.5 * self._chance()) * wait_ms / 1000)
            wait_ms = min(2 * wait_ms, self._retry.wait_ms_max)
            if not self.is_running() or not _any_of(records, self.assigned):
                return False

    def reading_failed(self, error: Exception) -> None:
        """Reading fails for all partitions, and is tried again at once: said now and then."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._warn_at_s:
            self._warn_at_s = now_s + WARN_EVERY_S
            self._warn(f"reading fails and is tried again: {error!r}")

    def fail(self, error: Exception) -> None:
        """Reading fails for a reason that is none of Kafka's: this process would read nothing more, and look well."""
        self._reason = DeliveryGaveUp(f"reading: {error!r}")
        self._gave_up.set()

    def _give_up(self, first: Record, error: Exception) -> DeliveryGaveUp:
        self._reason = DeliveryGaveUp(f"batch at {first.topic}/{first.partition}/{first.offset}: {error!r}")
        self._gave_up.set()
        return self._reason

    # Committing.

    def _note(self, places: Mapping[TopicPartition, Place]) -> None:
        """Commit these within a second, at once if there was no commit for so long."""
        assigned = self.assigned
        ours = {tp: place for tp, place in places.items() if tp in assigned}
        if len(ours) < len(places):
            self.batches_taken_away += 1
            self._warn("partitions were taken away while their batch was handled; their next owner repeats it")
        # What is handled of a partition that has lost records does not count: the group stays where the loss is seen.
        ours = {tp: place for tp, place in ours.items() if tp not in self.held}
        for tp, place in ours.items():
            self._watch.read(tp, place)
        self._handled.update(ours)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._is_to_commit and (self._committing is None or self._committing.done()):
            self._committing = asyncio.create_task(self._commit_in_turn(), name="commit")

    @property
    def _is_to_commit(self) -> bool:
        return bool(self._handled or self._read_past)

    async def _commit_in_turn(self) -> None:
        """One commit at a time, and never two within a second. One that fails is tried again: nothing may come behind
        it for long, and what is not committed counts as not handled.
        """
        loop = asyncio.get_running_loop()
        while self._is_to_commit:
            await asyncio.sleep(max(0.0, self._commit_due_s - loop.time()))
            await self._commit()
            self._commit_due_s = loop.time() + COMMIT_EVERY_S

    async def _commit(self) -> None:
        """Commit what was handled of the partitions that are still ours. A failure is told, not raised: the work is
        done, and the next owner may do it again.
        """
        async with self._one_commits:
            generation, assigned = self.share.generation, self.assigned
            if generation != self._generation:
                return  # how far others have come meanwhile is not known yet
            handled, self._handled = self._handled, {}
            past, self._read_past = self._read_past, {}
            places = {tp: place for tp, place in handled.items() if tp in assigned and self._is_further(tp, place)}
            places |= {tp: loss.place for tp, loss in past.items() if tp in assigned}
            if not places:
                return
            try:
                await self.share.commit(places)
            except CommitFailed as error:
                self._warn(f"the offsets of handled batches are not committed: {error}")
                self._read_past = {**past, **self._read_past}
                if self.share.generation == generation:
                    unsaid = {tp: place for tp, place in places.items() if tp not in self._read_past}
                    self._handled = {**unsaid, **self._handled}
            else:
                self._standing.update(places)

    def _is_further(self, tp: TopicPartition, place: Place) -> bool:
        """Whether the group is not there yet: a batch of an earlier share may be behind what others have handled."""
        known = self._standing.get(tp)
        return known is None or place.next_offset > known.next_offset

    async def leaving(self) -> None:
        """Before partitions go to another process, what was handled of them is committed; what cannot be is theirs."""
        await self._commit()
        self._handled.clear()

    async def stop(self) -> None:
        """Commit what is left."""
        committing, self._committing = self._committing, None
        if committing is not None and not self._one_commits.locked():
            committing.cancel()
        if self._is_to_commit:
            await self._commit()
        await self._watch.stop()
        await self._damage.stop()


def places_behind(records: Sequence[Record]) -> dict[TopicPartition, Place]:
    """Where each partition goes on after these records: behind the one with its highest offset."""
    last: dict[TopicPartition, Record] = {}
    for record in records:
        tp = (record.topic, record.partition)
        known = last.get(tp)
        if known is None or record.offset > known.offset:
            last[tp] = record
    return {tp: Place(record.offset + 1, _checksum(record)) for tp, record in last.items()}


def _checksum(record: Record) -> int | None:
    """None where the record's bytes are not known: whether it is there still cannot be told. Any other one has bytes
    to be compared, also one that cannot be understood.
    """
    return None if stands_for_unreadable(record) else input_checksum(record)


def _any_of(records: Sequence[Record], tps: frozenset[TopicPartition]) -> bool:
    return any((record.topic, record.partition) in tps for record in records)


def _is_before(place: Place, other: Place) -> bool:
    return place.next_offset < other.next_offset


def _stays_told(loss: Loss) -> bool:
    """Whether a later share does not show that it is over: that only reading shows."""
    return _is_past(loss) or loss.kind is LossKind.UNREADABLE


def _is_past(loss: Loss) -> bool:
    """Whether reading goes on behind it."""
    return loss.kind is LossKind.DELETED_UNREAD
