"""How often properties reach what they are about is counted and shown."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.hypothesis_profile import REACHED, counted, never_reached, reaches, shown

ROOT = Path(__file__).parent.parent.parent
PROFILE = "import tests.hypothesis_profile as p; print(p.settings.default.derandomize, p.shared_among(2).derandomize)"


def test_each_run_in_ci_searches_examples_of_its_own() -> None:
    """Hypothesis itself takes the same ones each time where it sees that it runs in CI."""
    environment = {**os.environ, "CI": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROFILE], check=True, capture_output=True, env=environment, cwd=ROOT)
    assert done.stdout.split() == [b"False", b"False"]


def test_what_was_reached_is_handed_over_once() -> None:
    before = counted()
    for is_reached in (True, False, True):
        reaches("a wall", is_reached)
    assert sorted(counted()) == [("a wall", False, 1), ("a wall", True, 2)]
    assert counted() == []
    REACHED.update({(what, is_reached): count for what, is_reached, count in before})


def test_what_none_of_many_examples_reached_is_named() -> None:
    assert never_reached([("a wall", False, 100)]) == ["a wall"]
    assert never_reached([("a wall", False, 99)]) == []
    assert never_reached([("a wall", False, 500), ("a door", False, 400), ("a door", True, 1)]) == ["a wall"]


SHARED = """
import pytest
from hypothesis import given, strategies
from tests.hypothesis_profile import reaches, shared_among

@shared_among(40)
@pytest.mark.parametrize("kind", range(40))
@given(number=strategies.integers())
def test_a_kind(kind, number):
    reaches("a wall", kind == WALL and number >= 0)
"""


def a_run(folder: Path, wall: int) -> subprocess.CompletedProcess[str]:
    """A run of forty tests that share their examples, of which this one may reach a wall."""
    (folder / "test_kinds.py").write_text(SHARED.replace("WALL", str(wall)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "test_kinds.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)


def test_a_run_fails_where_tests_that_share_their_examples_never_reach_what_they_are_about(tmp_path: Path) -> None:
    missed, reached = a_run(tmp_path, wall=40), a_run(tmp_path, wall=39)
    assert missed.returncode == 1
    assert "FAILED: no example of any test reached what it is about: a wall" in missed.stdout
    assert reached.returncode == 0, reached.stdout


def test_each_thing_has_a_line_also_where_it_was_never_reached() -> None:
    found = Counter({("a wall", True): 1, ("a wall", False): 2, ("a door", False): 4})
    assert shown(found) == ["a door: 0 of 4 examples (0 %)", "a wall: 1 of 3 examples (33 %)"]
