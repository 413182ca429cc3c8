"""A state as records of the topic `snapshots`, and back: chunks of rows first, then a manifest that vouches for them.

A snapshot is believed only when every chunk that its manifest counts is there and the rows have the manifest's digest.
All others are passed over as if they were not there: the log can always be folded from an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from fallow.shared.cluster.fold.rows import DamagedRow, count_rest, read_row, rows_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import shorten
from fallow.shared.events.snapshots import CHUNK_BYTES_MAX, SnapshotChunk, SnapshotManifest

PIECE_CHARACTERS_MAX = 200_000
"""A longer row is cut: no character of JSON text takes more than four bytes, so a piece always fits into a chunk."""

ROWS_AT_ONCE = 1_000
PART_DIGITS_MAX = 9
NEWEST = "newest"
ORIGIN = "origin"
"""The slot of the snapshot with which a cell was moved here: its log begins behind it, so it is kept for good."""

HOUR_MS = 3_600_000
HOURS_KEPT = 24

_ENVELOPE_BYTES = 1_000
"""What surrounds the rows in a chunk's JSON, with room to spare."""

_CONTINUED = "+"
"""How a piece begins that goes on with the row before it. A row itself always begins with a bracket."""


class DamagedSnapshot(ValueError):
    """A snapshot whose digest is right does not hold the state that its manifest names."""


def snapshot_id(state: CellState, writer: str) -> str:
    """The name of a snapshot: of this state, by this writer. Two writers never mix their chunks."""
    return f"{state.offset}-{writer.replace('/', '-')}"


def cut(state: CellState, snapshot: str, bytes_max: int | None = None) -> Iterator[SnapshotChunk]:
    """The state in chunks, each of at most so many bytes as JSON (if none are named, CHUNK_BYTES_MAX). A row that is
    larger has a chunk of its own. The state must not change before the last one is taken.
    """
    bytes_max = bytes_max or CHUNK_BYTES_MAX
    rows: list[str] = []
    part, size = 0, _ENVELOPE_BYTES
    for piece in _pieces(rows_of(state)):
        more = json_bytes(piece)
        if rows and size + more > bytes_max:
            yield SnapshotChunk(cell=state.cell, snapshot=snapshot, part=part, rows=tuple(rows))
            rows, part, size = [], part + 1, _ENVELOPE_BYTES
        rows.append(piece)
        size += more
    yield SnapshotChunk(cell=state.cell, snapshot=snapshot, part=part, rows=tuple(rows))


@dataclass(frozen=True, slots=True)
class Cut:
    """A state at one moment, in chunks. `head` is their manifest before they were counted."""

    head: SnapshotManifest
    chunks: Iterable[SnapshotChunk]


def cut_as_read(state: CellState, writer: str, bytes_max: int | None = None) -> Cut:
    """A cut whose chunks are made as they are read: the state must not change before the last one."""
    snapshot = snapshot_id(state, writer)
    head = manifest_of(state, snapshot, slot=NEWEST, parts=0, digest="")
    return Cut(head, cut(state, snapshot, bytes_max))


def cut_whole(state: CellState, writer: str, bytes_max: int | None = None) -> Cut:
    """A cut that is all in memory: the state may go on. Of 150,000 jobs that takes 0.5 s and 50 MB."""
    made = cut_as_read(state, writer, bytes_max)
    return Cut(made.head, tuple(made.chunks))


def manifest_of(state: CellState, snapshot: str, *, slot: str, parts: int, digest: str) -> SnapshotManifest:
    """What makes the chunks a snapshot."""
    return SnapshotManifest(
        cell=state.cell,
        snapshot=snapshot,
        slot=slot,
        parts=parts,
        digest=digest,
        offset=state.offset,
        version=state.version,
        chain=state.chain,
        at_ms=state.at_ms,
    )


def json_bytes(row: str) -> int:
    """How many bytes a row takes as a JSON string with the comma behind it; rows hold no control characters."""
    return len(row.encode()) + row.count('"') + row.count("\\") + 3


def _pieces(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        yield row[:PIECE_CHARACTERS_MAX]
        for start in range(PIECE_CHARACTERS_MAX, len(row), PIECE_CHARACTERS_MAX):
            yield _CONTINUED + row[start : start + PIECE_CHARACTERS_MAX]


def whole_rows(pieces: Iterable[str]) -> Iterator[str]:
    """The rows that these pieces were cut from."""
    begun: list[str] = []
    for piece in pieces:
        if piece.startswith(_CONTINUED):
            begun.append(piece[1:])
            continue
        if begun:
            yield "".join(begun)
        begun = [piece]
    if begun:
        yield "".join(begun)


class RowsDigest:
    """The digest of a state, taken from the pieces of its rows as they pass by; equal to `digest_of` of the state."""

    def __init__(self) -> None:
        self._hashed = blake2b(digest_size=16)
        self._has_row = False

    def add(self, pieces: Iterable[str]) -> None:
        """Take in further pieces, in their order."""
        for piece in pieces:
            if piece.startswith(_CONTINUED):
                self._hashed.update(piece[1:].encode())
                continue
            if self._has_row:
                self._hashed.update(b"\n")
            self._hashed.update(piece.encode())
            self._has_row = True

    def hexdigest(self) -> str:
        """The digest of the rows so far."""
        done = self._hashed.copy()
        if self._has_row:
            done.update(b"\n")
        return done.hexdigest()


@dataclass(frozen=True, slots=True)
class Whole:
    """A snapshot whose chunks are all there and have the digest that the manifest names."""

    manifest: SnapshotManifest
    pieces: tuple[tuple[str, ...], ...]


def state_of(whole: Whole) -> CellState:
    """The state of a whole snapshot. Raises DamagedSnapshot where the manifest names another one."""
    state = CellState(whole.manifest.cell)
    for _ in build(state, whole):
        continue
    return state


def build(state: CellState, whole: Whole) -> Iterator[None]:
    """Make an empty state into the snapshot's, a thousand rows at a time, so that a loop can turn in between.

    Raises DamagedSnapshot where the rows are none, or the manifest names another state.
    """
    manifest = whole.manifest
    try:
        for number, row in enumerate(whole_rows(piece for chunk in whole.pieces for piece in chunk)):
            read_row(state, row)
            if number % ROWS_AT_ONCE == 0:
                yield
        count_rest(state)
    except DamagedRow as error:
        raise DamagedSnapshot(f"snapshot {shorten(manifest.snapshot)}: {error}") from error
    for name in ("cell", "version", "offset", "chain"):
        says, holds = getattr(manifest, name), getattr(state, name)
        if says != holds:
            text = f"its manifest says {name} {shorten(says)}, its rows hold {shorten(holds)}"
            raise DamagedSnapshot(f"snapshot {shorten(manifest.snapshot)}: {text}")


@dataclass(slots=True)
class Collector:
    """Takes in the records of a cell's `snapshots` partition in their order and keeps the newest whole snapshot.

    What came before a whole snapshot is let go, so that memory holds about two of them, however many the topic holds.
    """

    newest: Whole | None = None
    torn: int = 0
    _chunks: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    """The snapshot that the manifest of each slot names."""

    def add_chunk(self, chunk: SnapshotChunk) -> None:
        """One more chunk."""
        self._chunks.setdefault(chunk.snapshot, {})[chunk.part] = chunk.rows

    def add_manifest(self, manifest: SnapshotManifest) -> None:
        """Look whether the manifest's snapshot is whole, and no older than the one at hand; a torn one is only counted.
        Of two of the same version the later counts: the earlier may be made void behind it.
        """
        self._named[manifest.slot] = manifest.snapshot
        at_hand = None if self.newest is None else self.newest.manifest
        if at_hand is not None and (manifest.version < at_hand.version or manifest.snapshot == at_hand.snapshot):
            return
        whole = self._assemble(manifest)
        if whole is None:
            self.torn += 1
            return
        self.newest = whole
        self._let_go_up_to(manifest.snapshot)

    def add_tombstone(self, key: str) -> None:
        """A chunk, or the last manifest of a snapshot, is no more, and neither is the snapshot: it was replaced, or a
        person has found that the log contradicts it.
        """
        snapshot, part = chunk_of_key(key)
        if part is None:
            snapshot = self._named.pop(slot_of_key(key), "")
            if snapshot in self._named.values():
                return
        else:
            self._chunks.get(snapshot, {}).pop(part, None)
        if self.newest is not None and self.newest.manifest.snapshot == snapshot:
            self.newest = None

    def _assemble(self, manifest: SnapshotManifest) -> Whole | None:
        chunks = self._chunks.get(manifest.snapshot, {})
        if any(part not in chunks for part in range(manifest.parts)):
            return None
        pieces = tuple(chunks[part] for part in range(manifest.parts))
        digest = RowsDigest()
        for rows in pieces:
            digest.add(rows)
        return Whole(manifest, pieces) if digest.hexdigest() == manifest.digest else None

    def _let_go_up_to(self, snapshot: str) -> None:
        for older in list(self._chunks):
            del self._chunks[older]
            if older == snapshot:
                return


def chunk_of_key(key: str) -> tuple[str, int | None]:
    """The snapshot and part of a chunk's key (`cell/snapshot/part`), or ("", None) for any other key."""
    rest, _, part = key.rpartition("/")
    _, slash, snapshot = rest.partition("/")
    is_chunk = slash and part.isdecimal() and len(part) <= PART_DIGITS_MAX
    return (snapshot, int(part)) if is_chunk else ("", None)


def slot_of_key(key: str) -> str:
    """The slot of a manifest's key (`cell/slot`)."""
    return key.rpartition("/")[2]


@dataclass(slots=True)
class Catalogue:
    """What a cell's `snapshots` partition holds, by key: enough to know what a new snapshot makes superfluous.
    `foreign` are manifests that name another cell, by the keys of their records: no snapshots of this one.
    """

    manifests: dict[str, SnapshotManifest] = field(default_factory=dict)
    foreign: dict[str, SnapshotManifest] = field(default_factory=dict)
    parts: dict[str, dict[int, None]] = field(default_factory=dict)

    def add_chunk(self, snapshot: str, part: int) -> None:
        """A chunk is there."""
        self.parts.setdefault(snapshot, {})[part] = None

    def add_manifest(self, manifest: SnapshotManifest) -> None:
        """The slot now holds this snapshot."""
        self.manifests[manifest.slot] = manifest

    def drop_key(self, key: str) -> None:
        """The record of this key is gone."""
        snapshot, part = chunk_of_key(key)
        if part is None:
            self.foreign.pop(key, None)
            held = self.manifests.get(slot_of_key(key))
            if held is not None and held.key() == key:
                del self.manifests[held.slot]
            return
        parts = self.parts.get(snapshot, {})
        parts.pop(part, None)
        if not parts:
            self.parts.pop(snapshot, None)

    def slots_for(self, at_ms: int) -> tuple[str, ...]:
        """The slots that a snapshot of this cell time takes: the newest, and its hour's if it is the hour's first."""
        slot = hour_slot(at_ms)
        held = self.manifests.get(slot)
        is_first = held is None or held.at_ms // HOUR_MS != at_ms // HOUR_MS
        return (NEWEST, slot) if is_first else (NEWEST,)

    def is_whole(self, manifest: SnapshotManifest) -> bool:
        """Whether every chunk of this snapshot is there."""
        parts = self.parts.get(manifest.snapshot, {})
        return all(part in parts for part in range(manifest.parts))

    def newest_whole(self) -> SnapshotManifest | None:
        """The newest snapshot, if every chunk of it is there."""
        newest = self.manifests.get(NEWEST)
        return newest if newest is not None and self.is_whole(newest) else None

    def reaches(self, state: CellState | SnapshotManifest) -> bool:
        """Whether the newest snapshot is of this state, or of a later one."""
        newest = self.newest_whole()
        if newest is None:
            return False
        return newest.version > state.version or (newest.version, newest.chain) == (state.version, state.chain)

    def covers_from(self) -> int | None:
        """The offset of the first decision behind the oldest whole snapshot; None while the newest one is not whole.

        The snapshot with which a cell was moved here covers nothing of this log.
        """
        if self.newest_whole() is None:
            return None
        kept = [m for m in self.manifests.values() if m.offset >= 0 and not self._is_past(m)]
        return min((m.offset for m in kept if self.is_whole(m)), default=-1) + 1

    def superfluous(self, cell: str) -> list[str]:
        """The keys of manifests that stand in the slot of an hour for longer than a day; then of all chunks that no
        other manifest counts: of replaced snapshots, and of some never finished.
        """
        past = [manifest.key() for manifest in self.manifests.values() if self._is_past(manifest)]
        counted = {m.snapshot: m.parts for m in self.foreign.values()}
        counted |= {m.snapshot: m.parts for m in self.manifests.values() if not self._is_past(m)}
        return past + [
            f"{cell}/{snapshot}/{part}"
            for snapshot, parts in self.parts.items()
            for part in parts
            if part >= counted.get(snapshot, 0)
        ]

    def _is_past(self, manifest: SnapshotManifest) -> bool:
        """Whether it stands in the slot of an hour in which the cell has not worked again within a day."""
        newest = self.manifests.get(NEWEST)
        is_of_hour = manifest.slot not in (NEWEST, ORIGIN)
        return is_of_hour and newest is not None and newest.at_ms - manifest.at_ms > HOURS_KEPT * HOUR_MS


def hour_slot(at_ms: int) -> str:
    """The slot of an hour of cell time; after a day the slots come round again, so that 24 at the most are kept."""
    return f"hour-{at_ms // HOUR_MS % HOURS_KEPT}"
