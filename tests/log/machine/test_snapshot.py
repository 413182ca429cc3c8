"""A snapshot gives back the state that it was made of, or it does not exist."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.events.snapshots import CHUNK_BYTES_MAX, SnapshotChunk, SnapshotManifest
from fallow.shared.log.machine import snapshot as machine
from fallow.shared.log.machine.snapshot import (
    HOUR_MS,
    Catalogue,
    Collector,
    DamagedSnapshot,
    RowsDigest,
    cut,
    manifest_of,
    state_of,
)
from tests.histories import CELL, History, folded
from tests.hypothesis_profile import reaches


def lived(seed: int, steps: int) -> CellState:
    return folded(History(seed).decisions(steps))


def written(state: CellState, name: str = "s") -> tuple[list[SnapshotChunk], SnapshotManifest]:
    chunks, digest = list(cut(state, name)), RowsDigest()
    for chunk in chunks:
        digest.add(chunk.rows)
    return chunks, manifest_of(state, name, slot="newest", parts=len(chunks), digest=digest.hexdigest())


def collected(chunks: list[SnapshotChunk], *manifests: SnapshotManifest) -> Collector:
    collector = Collector()
    for chunk in chunks:
        collector.add_chunk(chunk)
    for manifest in manifests:
        collector.add_manifest(manifest)
    return collector


def loaded(collector: Collector) -> CellState:
    assert collector.newest is not None
    return state_of(collector.newest)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CHUNK_BYTES_MAX", 2_000)
    monkeypatch.setattr(machine, "PIECE_CHARACTERS_MAX", 150)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 60))
def test_a_snapshot_gives_back_the_state_that_it_was_made_of(seed: int, steps: int) -> None:
    state = lived(seed, steps)
    reaches("a snapshot has jobs that are over and others", state.jobs and state.finished)
    chunks, manifest = written(state)
    again = loaded(collected(chunks, manifest))
    assert manifest.digest == digest_of(state) == digest_of(again)
    assert again == state


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_cut_into_pieces_come_together_again(seed: int) -> None:
    state = lived(seed, 60)
    chunks, manifest = written(state)
    assert len(chunks) > 2
    assert digest_of(loaded(collected(chunks, manifest))) == digest_of(state) == manifest.digest


@pytest.mark.usefixtures("small_chunks")
@given(seed=st.integers(0, 2**32), lost=st.integers(0, 2**32))
def test_a_snapshot_that_lacks_any_chunk_does_not_exist(seed: int, lost: int) -> None:
    chunks, manifest = written(lived(seed, 30))
    del chunks[lost % len(chunks)]
    reaches("of several chunks one is missing", chunks)
    collector = collected(chunks, manifest)
    assert collector.newest is None
    assert collector.torn == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_with_a_changed_row_does_not_exist(seed: int) -> None:
    chunks, manifest = written(lived(seed, 30))
    first = chunks[0]
    chunks[0] = replace(first, rows=(*first.rows[:-1], first.rows[-1].replace("1", "2", 1) + " "))
    assert collected(chunks, manifest).newest is None


def test_an_older_whole_snapshot_stands_in_for_a_torn_one() -> None:
    history = History(7)
    old = folded(history.decisions(20))
    old_chunks, old_manifest = written(old, "old")
    chunks, manifest = written(history.state, "new")
    later = History(7)
    later.decisions(30)
    torn_chunks, torn_manifest = written(later.state, "torn")
    collector = collected(old_chunks, old_manifest)
    for chunk in torn_chunks[:-1]:
        collector.add_chunk(chunk)
    collector.add_manifest(torn_manifest)
    assert digest_of(loaded(collector)) == digest_of(old)
    assert (len(chunks), manifest.version) == (1, old.version)


def test_a_newer_snapshot_takes_the_place_of_an_older_one_and_lets_its_chunks_go() -> None:
    history = History(3)
    history.decisions(10)
    old_chunks, old_manifest = written(history.state, "old")
    history.decisions(10)
    new_chunks, new_manifest = written(history.state, "new")
    collector = collected([*old_chunks], old_manifest)
    for chunk in new_chunks:
        collector.add_chunk(chunk)
    collector.add_manifest(new_manifest)
    collector.add_tombstone(old_chunks[0].key())
    assert digest_of(loaded(collector)) == digest_of(history.state)
    assert collector._chunks == {}


def test_of_two_snapshots_of_the_same_version_the_later_one_counts() -> None:
    """A repair writes the state anew at another offset, and makes the earlier one void behind it."""
    state = lived(3, 20)
    chunks, manifest = written(state, "before")
    anew, again = written(state, "anew")
    collector = collected([*chunks, *anew], manifest, again)
    for chunk in chunks:
        collector.add_tombstone(chunk.key())
    assert collector.newest is not None
    assert collector.newest.manifest.snapshot == "anew"


def test_a_chunk_that_was_tombstoned_before_its_manifest_is_not_there() -> None:
    chunks, manifest = written(lived(1, 20))
    collector = collected(chunks)
    collector.add_tombstone(chunks[0].key())
    collector.add_manifest(manifest)
    assert collector.newest is None


def test_a_manifest_that_names_another_state_is_told() -> None:
    chunks, manifest = written(lived(1, 20))
    collector = collected(chunks, replace(manifest, offset=manifest.offset + 1))
    with pytest.raises(DamagedSnapshot, match="its manifest says"):
        loaded(collector)


@pytest.mark.parametrize("field", ["cell", "chain"])
def test_a_snapshot_that_contradicts_its_manifest_is_told_in_one_short_line(field: str) -> None:
    chunks, manifest = written(lived(1, 20))
    collector = collected(chunks, replace(manifest, **{field: "y" * 10_000 + "\n"}))
    with pytest.raises(DamagedSnapshot, match=f"its manifest says {field} ") as told:
        loaded(collector)
    assert len(str(told.value)) < 300
    assert str(told.value).isprintable()


def test_a_row_above_the_size_of_a_chunk_is_cut_and_every_chunk_stays_below_its_limit() -> None:
    state = CellState(CELL)
    words = tuple('"\\' * 4_000 for _ in range(40))
    for number in range(3):
        spec = JobSpec(id=f"job-{number}", tenant="acme", run=ProcessRun(argv=words, env={"X": "\U0001f33e" * 90_000}))
        apply_job(state, spec)
    chunks, manifest = written(state)
    assert len(chunks) > 2
    assert max(len(encode(chunk)) for chunk in chunks) <= CHUNK_BYTES_MAX
    assert digest_of(loaded(collected(chunks, manifest))) == digest_of(state)


def apply_job(state: CellState, spec: JobSpec) -> None:
    apply(state, e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32), 0)


def listed(chunks: list[SnapshotChunk], manifests: list[SnapshotManifest], catalogue: Catalogue) -> Catalogue:
    for chunk in chunks:
        catalogue.add_chunk(chunk.snapshot, chunk.part)
    for manifest in manifests:
        catalogue.add_manifest(manifest)
    return catalogue


def test_a_snapshot_makes_the_one_before_it_superfluous_unless_its_hour_keeps_it() -> None:
    catalogue = Catalogue()
    first, first_manifest = written(lived(1, 10), "first")
    listed(first, [first_manifest, replace(first_manifest, slot="hour-0")], catalogue)
    second, second_manifest = written(lived(1, 12), "second")
    listed(second, [second_manifest], catalogue)
    assert catalogue.superfluous(CELL) == []
    third, third_manifest = written(lived(1, 14), "third")
    listed(third, [third_manifest], catalogue)
    assert catalogue.superfluous(CELL) == [chunk.key() for chunk in second]


def test_chunks_that_never_got_a_manifest_are_superfluous() -> None:
    catalogue = Catalogue()
    half, _ = written(lived(1, 10), "half")
    whole, manifest = written(lived(1, 12), "whole")
    listed([*half, *whole], [manifest], catalogue)
    assert catalogue.superfluous(CELL) == [chunk.key() for chunk in half]
    catalogue.drop_key(half[0].key())
    assert catalogue.superfluous(CELL) == []


def test_the_first_snapshot_of_an_hour_is_kept_for_a_day() -> None:
    catalogue = Catalogue()
    _, manifest = written(lived(1, 10))
    assert catalogue.slots_for(5 * HOUR_MS) == ("newest", "hour-5")
    catalogue.add_manifest(replace(manifest, slot="hour-5", at_ms=5 * HOUR_MS))
    assert catalogue.slots_for(5 * HOUR_MS + 1) == ("newest",)
    assert catalogue.slots_for(6 * HOUR_MS) == ("newest", "hour-6")
    assert catalogue.slots_for(29 * HOUR_MS) == ("newest", "hour-5")


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_no_snapshot_keeps_the_log_that_is_a_day_older_than_the_newest(rests_h: list[int]) -> None:
    """Whatever the hours of the day in which the cell works."""
    catalogue, at_ms = Catalogue(), 0
    is_swept = False
    _, manifest = written(lived(1, 10))
    for offset, rest_h in enumerate(rests_h):
        at_ms += rest_h * HOUR_MS
        newest = replace(manifest, snapshot=f"s-{offset}", offset=offset, at_ms=at_ms, parts=1)
        catalogue.add_chunk(newest.snapshot, 0)
        for slot in catalogue.slots_for(at_ms):
            catalogue.add_manifest(replace(newest, slot=slot))
        covers_from = catalogue.covers_from()
        for key in catalogue.superfluous(CELL):
            catalogue.drop_key(key)
            is_swept = True
        assert catalogue.covers_from() == covers_from, "what is swept up covers nothing"
        assert all(at_ms - m.at_ms <= 24 * HOUR_MS for m in catalogue.manifests.values())
        assert all(catalogue.is_whole(m) for m in catalogue.manifests.values())
        assert catalogue.parts.keys() == {m.snapshot for m in catalogue.manifests.values()}
    reaches("a snapshot is swept up while others stay", is_swept and len(catalogue.manifests) > 1)


def test_the_snapshot_with_which_a_cell_was_moved_here_is_kept_for_good() -> None:
    catalogue = Catalogue()
    chunks, manifest = written(lived(1, 10), "moved")
    later, newest = written(lived(1, 12), "later")
    listed(chunks, [replace(manifest, slot="origin", at_ms=0)], catalogue)
    listed(later, [replace(newest, at_ms=1_000 * HOUR_MS)], catalogue)
    assert catalogue.superfluous(CELL) == []


def held(catalogue: Catalogue, name: str, slot: str, offset: int, at_h: int = 48, *, is_whole: bool = True) -> None:
    """A snapshot of one chunk in this slot."""
    _, manifest = written(lived(1, 10), name)
    catalogue.add_manifest(replace(manifest, slot=slot, offset=offset, at_ms=at_h * HOUR_MS, parts=1))
    if is_whole:
        catalogue.add_chunk(name, 0)


def test_the_log_is_kept_behind_the_oldest_whole_snapshot_that_stands_in_it_and_is_no_day_old() -> None:
    catalogue = Catalogue()
    assert catalogue.covers_from() is None
    held(catalogue, "a", "hour-0", offset=30)
    assert catalogue.covers_from() is None, "without the newest one nothing is covered"
    held(catalogue, "b", "newest", offset=40)
    assert catalogue.covers_from() == 31
    held(catalogue, "c", "hour-1", offset=20, is_whole=False)
    held(catalogue, "d", "hour-2", offset=10, at_h=23)
    held(catalogue, "e", "origin", offset=-1)
    assert catalogue.covers_from() == 31
    held(catalogue, "f", "hour-3", offset=20, at_h=24)
    assert catalogue.covers_from() == 21


def test_nothing_is_covered_while_the_newest_snapshot_is_torn_and_none_of_a_log_that_holds_none() -> None:
    catalogue = Catalogue()
    held(catalogue, "a", "hour-0", offset=30)
    held(catalogue, "b", "newest", offset=40, is_whole=False)
    assert catalogue.covers_from() is None
    held(catalogue, "c", "newest", offset=-1)
    catalogue.drop_key(f"{CELL}/hour-0")
    assert catalogue.covers_from() == 0


def test_the_newest_snapshot_reaches_a_state_that_it_holds_or_that_is_older() -> None:
    state, older, later = lived(1, 10), lived(1, 8), lived(1, 12)
    catalogue = Catalogue()
    assert not catalogue.reaches(older)
    chunks, manifest = written(state)
    catalogue.add_manifest(manifest)
    assert not catalogue.reaches(older), "it is torn"
    listed(chunks, [], catalogue)
    assert [catalogue.reaches(one) for one in (older, state, later)] == [True, True, False]
    another = replace(manifest, chain="0" * 32)
    assert not catalogue.reaches(another), "another history has the same version"
    assert catalogue.reaches(replace(another, version=manifest.version - 1))


def test_a_key_of_another_cell_drops_nothing_of_this_one() -> None:
    catalogue = Catalogue()
    held(catalogue, "a", "newest", offset=40)
    catalogue.drop_key("cell-x/newest")
    assert catalogue.newest_whole() is not None
    catalogue.drop_key(f"{CELL}/newest")
    assert catalogue.newest_whole() is None
