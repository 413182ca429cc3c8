"""A cell whose decision log has lost records or is damaged: which part of it is intact, and its repair.

The log stays the truth: a repair is a record of it, so that every reader that starts afresh folds to the same state.
What contradicts the log is made void: snapshots of states that it no longer leads to. Where a damaged record stands in
the way of every reader, the records up to the end are deleted, and the state before the damage goes on as a snapshot.

A repair that does not come to its end can be done again: until then a reader begins at the last good version, or not at
all, and a survey says that the log is whole only where a new reader comes as far as the log leads.

Where a whole snapshot stands behind the damage, and the log proves that it is of this history, nothing that was decided
since is given up: the cell goes on from the newest state, and only what stands before that snapshot is deleted.

Where no record of the log leads to a state (the topic was made anew, or its records were deleted by hand), nothing in
it contradicts the snapshots beyond: the newest whole one is what is left of the cell, and the cell goes on from there.
A log that has good records and ends before a snapshot counts, since another writer may have gone on from its end. So
does the newest snapshot where the log reaches it, also if it ends there: every reader begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum

from fallow.cli.log.keys_lacking import keys_lacking, keys_lacking_by, keys_told
from fallow.cli.log.read_back import all_records, records_between
from fallow.cli.log.written_beyond import written_by_another_release
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.fold import DamagedLog, OtherRelease, fold
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.decisions import INPUTS, Decision, input_name
from fallow.shared.events.snapshots import SnapshotManifest
from fallow.shared.log.follower import Follower
from fallow.shared.log.inputs.damage import damage_at
from fallow.shared.log.inputs.losses import loss_met, losses_of
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.losses import SAID_ONCE, Loss, LossKind, Place, fences
from fallow.shared.log.machine.snapshot import NEWEST, ORIGIN, Catalogue, DamagedSnapshot
from fallow.shared.log.machine.writer import Draft, Sign, Writer
from fallow.shared.log.port import Appended, Log, LogTruncated, Outgoing, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import log_record
from fallow.shared.log.snapshots import (
    NoUsableSnapshot,
    begins_with_the_first_version,
    first_readable,
    read_catalogue,
    write_snapshot,
)

WRITER = "fallow log repair"
TOMBSTONES_AT_ONCE = 500

NOTHING_LEFT = (
    "nothing is left of it here. Delete the topics of the cell, run fallow topics create, and put back what fallow "
    "snapshot export once wrote by fallow snapshot import; without one, begin the cell anew"
)


class From(StrEnum):
    """Where an input that has lost records is read on."""

    END = "end"
    BEGIN = "begin"


class NotRepairable(Exception):
    """Nothing whole is left to go on from, or the log changes while it is repaired."""


@dataclass(slots=True)
class Survey:
    """What stands in a cell's log. `state` is the newest one that the log proves; nothing was changed.

    `damage` and `damage_offset` are of the first damage. `base` is the snapshot behind it from which `state` was
    folded, if there is one. `cut_offset` is the place at which the state ends because the next record is damaged, None
    where it reaches to the end. `is_emptied`: no record leads to a state, and `base` is all that is left of the cell.
    """

    cell: str
    begin: int
    end: int
    state: CellState
    damage: str = ""
    damage_offset: int | None = None
    cut_offset: int | None = None
    base: SnapshotManifest | None = None
    is_emptied: bool = False
    contradicting: list[SnapshotManifest] = field(default_factory=list)
    losses: dict[str, Loss] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """What has to be known of the cell's keys, and done with them behind the repair."""

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing to repair."""
        return not (self.damage or self.contradicting or self.losses)


async def survey(log: Log, layout: Layout, cell: str) -> Survey:
    """Look at a cell's log. Raises NotRepairable where no state can be told, where another release has gone on in it,
    and where it is another cell's; LogUnavailable.

    The end is asked for behind the snapshots: one that is written meanwhile is of a record before it.
    """
    tp = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([tp]))[tp]
    manifests, foreign = await _manifests(log, layout, cell)
    found = Survey(cell, begin, (await log.end_offsets([tp]))[tp], CellState(cell))
    base, version = await _base(log, layout, cell, [m for m in manifests if begin - 1 <= m.offset < found.end]), 0
    if base is None:
        found.damage = f"the log begins at offset {begin}, and no whole snapshot reaches to there"
        found.damage_offset = found.cut_offset = begin
    else:
        found.state, version = base, base.version
        await _fold(log, layout, found, manifests)
        if found.damage:
            await _go_behind(log, layout, found, manifests)
    begun = version if found.base is None else found.base.version
    if not manifests and found.state.version == 0:
        await _refuse_another_cell(log, layout, found, foreign)
    if found.state.version == begun:
        await _look_beyond(log, layout, found, manifests)
    if found.cut_offset is not None and not found.is_emptied:
        proven = [m for m in manifests if m.version <= found.state.version and m not in found.contradicting]
        newest = max(proven, key=lambda each: each.version, default=None)
        await _refuse_another_release(log, layout, found, newest, found.cut_offset, is_emptied=False)
    if base is None and found.base is None:
        await _refuse_without_its_keys(log, layout, found, manifests)
        raise NotRepairable(f"cell {cell}: {found.damage}: {NOTHING_LEFT}")
    found.contradicting += foreign
    found.losses = await _losses(log, layout, found.state)
    if found.is_whole:
        found.damage = await _why_no_reader_begins(log, layout, found.state)
    if not found.is_whole or not found.state.version:
        await _refuse_without_its_keys(log, layout, found, manifests)
    found.keys = keys_told(layout.signers.of(cell), found.state)
    return found


async def _why_no_reader_begins(log: Log, layout: Layout, state: CellState) -> str:
    """Why a reader that knows nothing does not come to this state of a log that folds to it; empty where it does, or
    further. A new snapshot leads it there.
    """
    try:
        reached = await _new_reader(log, layout, state.cell)
    except (DamagedLog, DamagedSnapshot, NoUsableSnapshot, LogTruncated) as error:
        return f"a new reader does not begin: {error}"
    behind = reached.version < state.version or (reached.version == state.version and reached.chain != state.chain)
    return f"a new reader folds to version {reached.version}, the log leads to {state.version}" if behind else ""


async def _refuse_without_its_keys(
    log: Log, layout: Layout, found: Survey, manifests: Sequence[SnapshotManifest]
) -> None:
    """Raises NotRepairable where the own cell file would give up what the keys of the cell prove. The newest whole
    snapshot tells them, too: with a key that is lacking the log seems to contradict it.
    """
    gives_up = bool(found.damage or found.contradicting or not found.state.version)
    lacking = await keys_lacking(log, layout, found.state, gives_up=gives_up)
    if not lacking and gives_up:
        newest = await _newest_whole(log, layout, found.cell, manifests)
        if newest is not None and newest.chain != found.state.chain:
            lacking = await keys_lacking_by(log, layout, newest)
    if lacking:
        raise NotRepairable(f"cell {found.cell}: {lacking}")


async def _newest_whole(log: Log, layout: Layout, cell: str, manifests: Sequence[SnapshotManifest]) -> CellState | None:
    """The state of the newest snapshot that is whole and can be read here."""
    try:
        return await first_readable(log, layout, cell, sorted(manifests, key=lambda m: m.version, reverse=True))
    except DamagedSnapshot:
        return None


async def _manifests(log: Log, layout: Layout, cell: str) -> tuple[list[SnapshotManifest], list[SnapshotManifest]]:
    """Those of the cell's snapshots, the oldest first, and those that name another cell."""
    catalogue = await read_catalogue(log, layout, cell)
    own = sorted(catalogue.manifests.values(), key=lambda found: (found.offset, found.version))
    return own, list(catalogue.foreign.values())


async def _refuse_another_cell(log: Log, layout: Layout, found: Survey, foreign: Sequence[SnapshotManifest]) -> None:
    """Raises NotRepairable where the snapshots are another cell's, or the log holds decisions of another cell and none
    of this one. Where anything is this cell's own, a manifest that names another one was forged.
    """
    if foreign:
        tp, first = layout.tp("snapshots", found.cell), foreign[0]
        raise _of_another_cell(found.cell, tp, f"snapshot {first.key()}", first.cell)
    tp, other = layout.tp("decisions", found.cell), ""
    async for record in all_records(log, tp, found.begin, found.end):
        entry = log_record(record, layout.signers.of(found.cell))
        if not isinstance(entry.decision, Decision):
            continue
        if entry.decision.cell == found.cell:
            return
        other = other or entry.decision.cell
    if other:
        raise _of_another_cell(found.cell, tp, "what stands there", other)


def _of_another_cell(cell: str, tp: TopicPartition, what: str, other: str) -> NotRepairable:
    rule = f"{what} is of cell {shorten(other)}, and nothing is changed: the ordinal of cell {cell} has to be its own"
    return NotRepairable(f"cell {cell}: {tp[0]}/{tp[1]}: {rule}")


async def _look_beyond(log: Log, layout: Layout, found: Survey, manifests: list[SnapshotManifest]) -> None:
    """Of a log that leads from no state to another: take the snapshot beyond it that is what is left of the cell, if
    there is one. Raises NotRepairable where that one is another release's.

    Beyond are all of newer versions, also where the log was filled again up to their offsets.
    """
    is_newest = {m.snapshot: m.slot == NEWEST for m in sorted(manifests, key=lambda each: each.slot == NEWEST)}
    beyond = {
        m.snapshot: m
        for m in sorted(manifests, key=lambda each: (is_newest[each.snapshot], each.version), reverse=True)
        if m.version > found.state.version
    }
    reached = [m for m in manifests if _reaches(found.state, m)]
    if any(is_newest[m.snapshot] for m in reached) or await _has_good_record(log, layout, found):
        return
    is_last = any(is_newest[m.snapshot] for m in manifests if _is_of_state(found.state, m))
    left = [_Left(found.state.version, found.state.epoch, is_newest=is_last)] if reached else []
    for manifest in beyond.values():
        state = await _state_beyond(log, layout, manifest, is_needed=len(left) == len(reached[:1]))
        if state is not None:
            left.append(_Left(state.version, state.epoch, is_newest[manifest.snapshot], manifest))
    chosen = _what_is_left(left)
    goes_on_from = chosen.manifest if chosen is not None and chosen.manifest is not None else next(iter(reached), None)
    await _refuse_another_release(
        log, layout, found, goes_on_from, found.begin, is_emptied=chosen is not None and chosen.manifest is not None
    )
    if chosen is None or chosen.manifest is None:
        return
    state = await first_readable(log, layout, found.cell, [chosen.manifest])
    if state is None:
        raise NotRepairable(f"cell {found.cell}: its snapshots change meanwhile: look again")
    found.state, found.base, found.is_emptied = state, chosen.manifest, True
    found.cut_offset = found.begin
    found.contradicting = [m for m in manifests if m.offset >= found.begin - 1]


def _reaches(state: CellState, manifest: SnapshotManifest) -> bool:
    """Whether the state is that of the snapshot, behind which nothing was decided: records may be skipped there."""
    return _is_of_state(state, manifest) and manifest.offset <= state.offset


def _is_of_state(state: CellState, manifest: SnapshotManifest) -> bool:
    """Whether the snapshot holds this state, perhaps at another offset: a repair may have begun to write it anew."""
    return (manifest.version, manifest.chain) == (state.version, state.chain)


async def _state_beyond(log: Log, layout: Layout, manifest: SnapshotManifest, *, is_needed: bool) -> CellState | None:
    """The state of a snapshot, None where it is not whole. One that is whole and cannot be read here is passed over
    where a better one was found, else NotRepairable is raised.
    """
    try:
        return await first_readable(log, layout, manifest.cell, [manifest])
    except DamagedSnapshot as error:
        if is_needed:
            raise NotRepairable(f"cell {manifest.cell}: the newest snapshot cannot be read: {error}") from error
        return None


@dataclass(frozen=True, slots=True)
class _Left:
    """A state that a whole snapshot holds. `is_newest`: it was written last, so that every reader begins with it.
    `manifest` is that of a snapshot beyond the log, None of one that the log reaches.
    """

    version: int
    epoch: int
    is_newest: bool
    manifest: SnapshotManifest | None = None


def _what_is_left(left: Sequence[_Left]) -> _Left | None:
    """The one that was written last, else the one of the newest version. Epochs never fall in a history: where one of
    an older version is of a newer epoch, another writer went on before this one, whose history is over.
    """
    going_on = [one for one in left if not any(o.version < one.version and o.epoch > one.epoch for o in left)]
    return max(going_on, key=lambda one: (one.is_newest, one.version), default=None)


async def _has_good_record(log: Log, layout: Layout, found: Survey) -> bool:
    """Whether the log still holds decisions that led to the survey's state, with which it ends or beyond which it is
    damaged. Where the one of its version can be read, its chain of hashes proves all that was before.
    """
    tp, keys, state = layout.tp("decisions", found.cell), layout.signers.of(found.cell), found.state
    is_any, chains = False, set[str]()
    async for each in all_records(log, tp, found.begin, state.offset + 1):
        entry = log_record(each, keys)
        decision = entry.decision
        if not isinstance(decision, Decision) or decision.cell != found.cell or entry.is_forged(state.version):
            continue
        if decision.version > state.version:
            return False
        is_any = True
        if decision.version == state.version:
            chains.add(entry.chain)
    return is_any and (not chains or state.chain in chains)


async def _refuse_another_release(
    log: Log, layout: Layout, found: Survey, chosen: SnapshotManifest | None, start: int, *, is_emptied: bool
) -> None:
    """Raises NotRepairable where another release wrote decisions from offset `start` on, or a snapshot behind the one
    that is chosen: what it has decided would be given up.
    """
    beyond = await written_by_another_release(log, layout, found.state, chosen, start, is_emptied=is_emptied)
    if beyond:
        raise NotRepairable(f"cell {found.cell}: {beyond}")


async def _go_behind(log: Log, layout: Layout, found: Survey, manifests: list[SnapshotManifest]) -> None:
    """Look for a snapshot behind the damage from which more of the log can be folded: the oldest one that leads to the
    end, so that no more than needed is deleted before it, else the one that leads furthest. One before the damage, or
    of the very state that was reached, counts where decisions continue it: a cell has gone on from it.
    """
    for manifest in {m.snapshot: m for m in manifests}.values():
        assert found.cut_offset is not None, "what is looked for leads behind a damage"
        is_newer, is_behind = manifest.version > found.state.version, manifest.offset >= found.cut_offset
        if not found.begin - 1 <= manifest.offset < found.end or not (is_newer or _is_of_state(found.state, manifest)):
            continue
        try:
            state = await first_readable(log, layout, found.cell, [manifest])
        except DamagedSnapshot:
            continue
        if state is None:
            continue
        tried = Survey(found.cell, found.begin, found.end, state)
        await _fold(log, layout, tried, manifests)
        is_continued = state.version > manifest.version
        if not is_continued and not (is_newer and is_behind and await _is_of(log, layout, manifest)):
            continue
        found.state, found.base, found.cut_offset = state, manifest, tried.cut_offset
        found.contradicting = tried.contradicting
        if tried.damage:
            found.damage = f"{found.damage}; {tried.damage}"
        else:
            return


async def _is_of(log: Log, layout: Layout, manifest: SnapshotManifest) -> bool:
    """Whether a snapshot, behind which no version follows, is of this log: the record at its offset is the one behind
    which it was taken, since its chain of hashes names all that was before; or that record cannot be read, so that
    nothing says otherwise.
    """
    tp = layout.tp("decisions", manifest.cell)
    damaged = await damage_at(log, tp, manifest.offset)
    if damaged is not None:
        return damaged.next_offset == manifest.offset
    record = (await log.last_before({tp: manifest.offset + 1})).get(tp)
    if record is None or record.offset != manifest.offset:
        return False
    found = log_record(record, layout.signers.of(manifest.cell))
    is_same = isinstance(found.decision, Decision) and found.decision.version == manifest.version
    return is_same and not found.is_forged(manifest.version) and found.chain == manifest.chain


async def _base(log: Log, layout: Layout, cell: str, usable: list[SnapshotManifest]) -> CellState | None:
    """The oldest state from which the log can be folded, None where there is none. A log that begins with its first
    version needs no snapshot. Raises NotRepairable where the only ones that there are cannot be read.
    """
    tp = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([tp]))[tp]
    if begin == 0 and (await begins_with_the_first_version(log, tp) or not any(m.offset < 0 for m in usable)):
        return CellState(cell)
    try:
        return await first_readable(log, layout, cell, usable)
    except DamagedSnapshot as error:
        raise NotRepairable(f"cell {cell}: no snapshot can be read: {error}") from error


async def _fold(log: Log, layout: Layout, found: Survey, manifests: list[SnapshotManifest]) -> None:
    """Fold to the end or to the damage. A snapshot that names another state at its offset contradicts the log."""
    tp, keys = layout.tp("decisions", found.cell), layout.signers.of(found.cell)
    state, wanted, agrees = found.state, dict[int, list[SnapshotManifest]](), dict[str, None]()
    judged = [m for m in manifests if m.offset >= max(state.offset, found.begin - 1)]
    for one in judged:
        wanted.setdefault(one.offset, []).append(one)

    def compare() -> None:
        for manifest in wanted.get(state.offset, ()):
            if (manifest.version, manifest.chain) == (state.version, state.chain):
                agrees[manifest.snapshot] = None

    compare()
    if state.offset + 1 < found.end:
        try:
            async with aclosing(records_between(log, {tp: state.offset + 1}, {tp: found.end})) as records:
                async for record in records:
                    fold(state, log_record(record, keys))
                    compare()
        except DamagedLog as error:
            if isinstance(error, OtherRelease):  # whole, and what that release has decided would be given up
                raise NotRepairable(f"cell {found.cell}: {error}") from error
            found.damage, found.damage_offset = str(error), error.offset
        except UnreadableRecords as error:
            found.damage, found.damage_offset = str(error), error.asked
        found.cut_offset = found.damage_offset
    # What is older than the log's beginning, or than the state that was begun with, says nothing against it.
    found.contradicting = [m for m in judged if m.snapshot not in agrees]


async def _losses(log: Log, layout: Layout, state: CellState) -> dict[str, Loss]:
    """The inputs that do not continue what the state has read of them, by the names of their cursors: those that
    placement would not read.
    """
    tps = {input_name(name, layout.ordinals[state.cell]): layout.tp(name, state.cell) for name in INPUTS}
    # An input that was never read is to be read from offset 0: what is gone of it before was never read.
    places = {tp: Place(state.inputs.get(s, 0), state.input_checksums.get(s)) for s, tp in tps.items()}
    lost = await losses_of(log, places)
    for tp, place in places.items():
        if tp not in lost and (loss := await _unreadable(log, tp, place.next_offset)) is not None:
            lost[tp] = loss
    found = {source: lost[tp] for source, tp in sorted(tps.items()) if tp in lost}
    return {source: loss for source, loss in found.items() if fences(source.rpartition("-")[0], loss)}


async def _unreadable(log: Log, tp: TopicPartition, start: int) -> Loss | None:
    """The first place from `start` on that cannot be read, if there is one."""
    end = (await log.end_offsets([tp]))[tp]
    if start >= end:
        return None
    try:
        async with aclosing(records_between(log, {tp: start}, {tp: end})) as records:
            async for _ in records:
                continue
    except UnreadableRecords as error:
        return loss_met(error)
    return None


def not_due(found: Survey) -> dict[str, int]:
    """Inputs that say a thing once and cannot be read at some place, and how many offsets before that are still to be
    read: the services read up to there first.
    """
    unread = {s: loss.next_offset - found.state.inputs.get(s, 0) for s, loss in found.losses.items()}
    kinds = {source: loss.kind for source, loss in found.losses.items()}
    return {
        source: count
        for source, count in unread.items()
        if kinds[source] is LossKind.UNREADABLE and count > 0 and source.rpartition("-")[0] in SAID_ONCE
    }


async def repair(
    log: Log,
    layout: Layout,
    found: Survey,
    inputs: From | None,
    *,
    by: str,
    wall_ms: int,
    sign: Sign | None = None,
) -> CellState:
    """Go on from the survey's state. The state behind the repair, to which a reader that starts afresh has folded.
    `sign` is needed where the cell has keys.

    Raises NotRepairable where an input has lost records and `inputs` does not say from where it is read on, or where
    another process writes meanwhile; LogUnavailable. After an error, survey and repair anew.
    """
    early = not_due(found)
    losses = {source: loss for source, loss in found.losses.items() if source not in early}
    if not (losses or found.damage or found.contradicting):
        names = ", ".join(early)
        raise NotRepairable(f"{names}: start the cell's services, which read up to the damage, and repair it then")
    if losses and inputs is None:
        names = ", ".join(losses)
        raise NotRepairable(
            f"{names}: say by --inputs end or --inputs begin from where to read on what has lost records"
        )
    state, tp = found.state, layout.tp("decisions", found.cell)
    await _refuse_another_writer(log, tp, found)
    if found.is_emptied:  # its base is all that is left of the cell: it goes when every reader begins with the new one
        written = await _write_at_the_end(log, layout, found, wall_ms)
        await log.delete_before(tp, found.end)
        await _drop(log, layout, found, but=written.snapshot)
    else:
        await _drop(log, layout, found)
        if found.cut_offset is not None:
            await _write_at_the_end(log, layout, found, wall_ms)
            await log.delete_before(tp, found.end)
        elif found.base is not None:
            await log.delete_before(tp, found.base.offset + 1)
    starts = {source: loss.end if inputs is From.END else loss.begin for source, loss in losses.items()}
    await _append(log, layout, found, starts, by=by, wall_ms=wall_ms, sign=sign)
    catalogue = await read_catalogue(log, layout, found.cell)
    await write_snapshot(log, layout, state, catalogue, writer=WRITER, wall_ms=wall_ms)
    await _compare(log, layout, state)
    return state


async def _refuse_another_writer(log: Log, tp: TopicPartition, found: Survey) -> None:
    """Raises NotRepairable where the log has grown since the survey: what is written now would be given up."""
    end = (await log.end_offsets([tp]))[tp]
    if end != found.end:
        text = f"cell {found.cell}: its log ended at offset {found.end} and ends at {end} now: another process writes"
        raise NotRepairable(f"{text}. Nothing was changed. Stop the cell's services and repair it then")


async def _write_at_the_end(log: Log, layout: Layout, found: Survey, wall_ms: int) -> SnapshotManifest:
    """Write a snapshot of the state as one that stands behind all that is in the log."""
    found.state.offset = found.end - 1
    catalogue = await read_catalogue(log, layout, found.cell)
    more = () if found.end else (ORIGIN,)  # a log that is there from offset 0 on is folded from here, as a moved cell's
    return await write_snapshot(log, layout, found.state, catalogue, writer=WRITER, wall_ms=wall_ms, more_slots=more)


async def _drop(log: Log, layout: Layout, found: Survey, but: str = "") -> None:
    """Make the contradicting snapshots void, but for the one of this name: their manifests last, so that no reader
    believes what is half void, and a survey finds it again.
    """
    topic, partition = layout.tp("snapshots", found.cell)
    catalogue: Catalogue = await read_catalogue(log, layout, found.cell)
    dropped = {manifest.snapshot for manifest in found.contradicting if manifest.cell == found.cell} - {but}
    keys = [f"{found.cell}/{name}/{part}" for name in sorted(dropped) for part in catalogue.parts.get(name, ())]
    keys += [m.key() for m in catalogue.manifests.values() if m.snapshot in dropped]
    keys += catalogue.foreign  # their chunks may be those of a snapshot of this cell
    for first in range(0, len(keys), TOMBSTONES_AT_ONCE):
        some = keys[first : first + TOMBSTONES_AT_ONCE]
        await log.publish([Outgoing(topic, None, key.encode(), partition=partition) for key in some])


async def _append(
    log: Log,
    layout: Layout,
    found: Survey,
    starts: Mapping[str, int],
    *,
    by: str,
    wall_ms: int,
    sign: Sign | None,
) -> None:
    """The record that says that a person went on from here. Every older writer's records are stale behind it."""
    state = found.state
    good = state.offset + 1 if found.cut_offset is None else found.cut_offset
    effects: list[e.AnyEffect] = [
        e.WriterStarted(epoch=state.epoch + 1, writer=WRITER),
        e.LogRepaired(by=by[:500], good_until=good, end=found.end, snapshots=len(found.contradicting)),
        *(
            e.InputResumed(input=source, from_offset=state.inputs.get(source, 0), to_offset=start)
            for source, start in sorted(starts.items())
        ),
    ]
    writer = Writer(state)
    writer.begin()
    for effect in effects:
        apply(state, effect, state.at_ms)
    draft = writer.draft(effects, {}, state.at_ms)
    assert isinstance(draft, Draft), "a few small effects fit into a record"
    name = f"{state.cell}/{draft.decision.version}/{draft.decision.epoch}"
    answer = await log.append(
        layout.outgoing(
            draft.decision, id=name, source=WRITER, wall_ms=wall_ms, more=draft.headers(sign), value=draft.value
        )
    )
    if not isinstance(answer, Appended):
        raise NotRepairable(f"the record of the repair is not known to be in the log ({answer.reason}): look again")
    if not writer.appended(answer.offset):
        text = f"the record of the repair is at offset {answer.offset}, not at {found.end}: another process writes"
        raise NotRepairable(f"{text}. Stop the services of cell {state.cell} and repair it again")


async def _compare(log: Log, layout: Layout, state: CellState) -> None:
    """Whether a reader that knows nothing folds to the same state."""
    reached = await _new_reader(log, layout, state.cell)
    if reached.offset != state.offset:
        text = f"the repair is at offset {state.offset}, and the log goes on to {reached.offset}: another process"
        raise NotRepairable(f"{text} writes. Stop the services of cell {state.cell} and look again")
    if digest_of(reached) != digest_of(state):
        raise NotRepairable(f"a new reader folds to version {reached.version}, not to the repaired {state.version}")


async def _new_reader(log: Log, layout: Layout, cell: str) -> CellState:
    """The state to which a reader that knows nothing folds."""
    reader = Follower(log, layout, cell)
    try:
        await reader.start()
        await reader.catch_up()
    finally:
        await reader.stop()
    return reader.state
