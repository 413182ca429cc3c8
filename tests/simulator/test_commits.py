"""Of two processes that believe to own a partition the group takes the commits of its owner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from fallow.shared.log.machine.losses import Place
from fallow.simulator.storage.commits import Commits

if TYPE_CHECKING:
    from fallow.simulator.process import Process

TP = ("submissions", 0)


def process(name: str, incarnation: int = 1) -> Process:
    return cast("Process", SimpleNamespace(name=name, group="admission", life=(name, incarnation)))


def commit(commits: Commits, sender: Process, next_offset: int) -> bool:
    return commits.commit("admission", sender.life, {TP: Place(next_offset, None)})


def test_one_that_owns_a_partition_no_more_takes_no_right_by_asking_late() -> None:
    owner, late = process("new"), process("old")
    commits = Commits(lambda asking, _: asking is owner)
    commits.begin(owner, [TP])
    commits.begin(late, [TP])
    assert not commit(commits, late, 7)
    assert commit(commits, owner, 5)
    assert commits.next_offset("admission", TP) == 5


def test_the_one_before_may_commit_until_the_owner_has_begun() -> None:
    owner, before = process("new"), process("old")
    owners = [before]
    commits = Commits(lambda asking, _: asking is owners[-1])
    commits.begin(before, [TP])
    owners.append(owner)
    assert commit(commits, before, 3)
    assert commits.begin(owner, [TP]) == {TP: Place(3, None)}
    assert not commit(commits, before, 4)


def test_what_a_process_sent_before_it_died_is_refused_once_it_has_begun_again() -> None:
    before, again = process("admission-0", 1), process("admission-0", 3)
    commits = Commits(lambda *_: True)
    commits.begin(before, [TP])
    commits.begin(again, [TP])
    assert commit(commits, again, 19)
    assert not commit(commits, before, 10), "its commit came late, and would set the group back for ever"
    assert commits.next_offset("admission", TP) == 19
