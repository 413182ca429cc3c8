"""`fallow faults`: simulated worlds from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fallow.cli.app import app
from fallow.faults.fault_report import command_of
from fallow.faults.fault_worlds import Story, shrunk, tell, tell_all
from fallow.faults.faults import kept_of
from fallow.simulator.shrink import shortest
from fallow.simulator.trouble.faults import Fault

RUN = CliRunner()


def test_the_last_line_is_one_object_with_the_figures() -> None:
    done = RUN.invoke(app, ["faults", "--first-seed", "3", "--seeds", "2", "--jobs-in-parallel", "1", "--json"])
    assert done.exit_code == 0
    told = json.loads(done.stdout.splitlines()[-1])
    assert list(told) == [
        "seeds",
        "steps",
        "faults_injected",
        "effects_reached",
        "reasons_reached",
        "violations",
        "first_violation",
        "broken_seeds",
        "seconds",
    ]
    assert (told["seeds"], told["violations"], told["first_violation"], told["broken_seeds"]) == (2, 0, None, [])
    assert list(told["faults_injected"]) == [fault.value for fault in Fault]


def test_the_first_seed_is_told_so_that_a_fresh_one_can_be_repeated() -> None:
    done = RUN.invoke(app, ["faults", "--seeds", "1", "--jobs-in-parallel", "1"])
    assert done.stderr.startswith("first seed ")


def test_no_world_begins_after_the_minutes_and_one_runs_in_any_case() -> None:
    options = ["--first-seed", "3", "--seeds", "500", "--minutes", "0.01", "--jobs-in-parallel", "1", "--json"]
    done = RUN.invoke(app, ["faults", *options])
    assert 1 <= json.loads(done.stdout.splitlines()[-1])["seeds"] < 500


@pytest.mark.parametrize("option", [["--faults", "crash,typo"], ["--keep", "1,2"], ["--keep", "1,x/2"]])
def test_an_option_that_means_nothing_is_one_line_and_exit_code_2(option: list[str]) -> None:
    done = RUN.invoke(app, ["faults", "--seeds", "1", *option])
    assert done.exit_code == 2
    assert option[0] in done.stderr


def test_only_the_kinds_that_are_named_happen() -> None:
    told = tell(Story(7, (Fault.CRASH, Fault.ACK_LOST)))
    assert set(told.injected) <= {"crash", "ack-lost"}


def test_worlds_in_several_processes_tell_the_same_as_in_one() -> None:
    stories = [Story(seed) for seed in range(50, 54)]
    assert list(tell_all(stories, 2)) == list(tell_all(stories, 1))


def test_a_command_tells_the_same_story_again() -> None:
    story = Story(9, (Fault.CRASH,), frozenset({4, 1}), None)
    assert command_of(story) == "fallow faults --first-seed 9 --seeds 1 --faults crash --keep 1,4/all"
    assert kept_of("1,4/all") == (frozenset({1, 4}), None)


def test_the_fewest_numbers_are_found_that_fail_together() -> None:
    assert shortest(tuple(range(40)), lambda kept: {7, 23} <= kept, 500) == (7, 23)


def test_no_number_is_kept_where_none_is_needed() -> None:
    assert shortest((1, 2, 3), lambda _: True, 500) == ()


def test_only_a_story_that_fails_can_be_shortened() -> None:
    with pytest.raises(AssertionError):
        shrunk(Story(3))
