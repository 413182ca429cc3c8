"""The short form of `make fuzz`: the kept corpus, some changed inputs of each target, and a fresh run of many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.campaign import attempt, campaign
from tests.fuzz.mutation import Mutator
from tests.fuzz.targets import CORPUS, Target, all_targets
from tests.fuzz.view_functions import OnServer, view_target
from tests.hypothesis_profile import reaches, shared_among

FOLDER = tempfile.TemporaryDirectory()
TARGETS = [*all_targets(Path(FOLDER.name)), view_target("view-in-lua", None, share=25)]
MUTATORS = {target.name: Mutator(target.seeds, lines=target.lines) for target in TARGETS}
EACH = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


def errors(target: Target, values: Sequence[bytes]) -> list[str]:
    """What went wrong with these inputs."""
    found = (attempt(target.run, value)[1] for value in values)
    return [error for error in found if error is not None]


@cache
def words_of_kept(name: str) -> frozenset[str]:
    """What a target says of the inputs that are kept for it."""
    (target,) = (target for target in TARGETS if target.name == name)
    return frozenset(attempt(target.run, seed)[0] for seed in target.seeds)


@EACH
def test_what_was_kept_is_read_or_refused_in_one_line(target: Target) -> None:
    assert target.seeds
    assert errors(target, target.seeds) == []


@EACH
def test_good_inputs_are_taken(target: Target) -> None:
    """Else what is drawn from them gets no further than to whatever turns them away."""
    words = [attempt(target.run, seed)[0] for seed in target.seeds]
    assert [part for part in target.taken if not any(part in word for word in words)] == [], words


@given(target=st.sampled_from(TARGETS), random=st.randoms(use_true_random=False))
def test_what_was_changed_is_read_or_refused_in_one_line(target: Target, random: Random) -> None:
    value = MUTATORS[target.name].draw(random)
    word, error = attempt(target.run, value)
    assert error is None
    reaches("a changed input is told as a kept one is", word in words_of_kept(target.name))


@shared_among(len(TARGETS))
@EACH
@given(value=st.binary(max_size=100))
def test_bytes_by_chance_are_read_or_refused_in_one_line(target: Target, value: bytes) -> None:
    assert errors(target, [value]) == []


def test_every_kept_input_belongs_to_a_target() -> None:
    kept = {path.read_bytes() for path in CORPUS.rglob("*") if path.is_file()}
    assert kept <= {seed for target in TARGETS for seed in target.seeds}


def test_a_fresh_run_finds_nothing() -> None:
    seed = Random().getrandbits(32)
    print(f"seed {seed}")  # noqa: T201 - a finding comes again with it
    tally = campaign(TARGETS, 40_000, seed)
    assert tally.findings == []


@pytest.fixture
def server(redis_url: str) -> Iterator[OnServer]:
    found = OnServer(redis_url)
    yield found
    found.close()


def test_a_real_server_answers_as_lua_does_and_never_writes_a_part(server: OnServer) -> None:
    tally = campaign([view_target("view-on-a-server", server, share=1)], 2_000, Random().getrandbits(32))
    assert tally.findings == []


def test_a_finding_is_shrunk_and_told() -> None:
    def fails(value: bytes) -> str:
        assert b"{" not in value
        return "ok"

    tally = campaign([Target("fails", fails, (b"abcdef{ghi",), 1, ())], 10, 1)
    assert [(found.target, found.input) for found in tally.findings] == [("fails", "b'{'")]


def test_an_input_that_never_ends_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.campaign.HANG_S", 0.2)

    def never_ends(_: bytes) -> str:
        while True:
            sum(range(100))

    assert attempt(never_ends, b"")[1] == "Hangs: an input took more than 0.2 s"
