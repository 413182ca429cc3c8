"""Of two processes that believe to own a partition the group takes the commits of its owner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from services.simulator.commits import Commits
from shared.log.machine.losses import Place

if TYPE_CHECKING:
    from services.simulator.process import Process

TP = ("submissions", 0)


def process(name: str) -> Process:
    return cast("Process", SimpleNamespace(name=name, group="admission", incarnation=1))


def test_one_that_owns_a_partition_no_more_takes_no_right_by_asking_late() -> None:
    owner, late = process("new"), process("old")
    commits = Commits(lambda asking, _: asking is owner)
    commits.begin(owner, [TP])
    commits.begin(late, [TP])
    assert not commits.commit(late, {TP: Place(7, None)})
    assert commits.commit(owner, {TP: Place(5, None)})
    assert commits.next_offset("admission", TP) == 5


def test_the_one_before_may_commit_until_the_owner_has_begun() -> None:
    owner, before = process("new"), process("old")
    owners = [before]
    commits = Commits(lambda asking, _: asking is owners[-1])
    commits.begin(before, [TP])
    owners.append(owner)
    assert commits.commit(before, {TP: Place(3, None)})
    assert commits.begin(owner, [TP]) == {TP: Place(3, None)}
    assert not commits.commit(before, {TP: Place(4, None)})
