"""`fallow cell reload`: what it refuses before anything is asked, and what it tells of the log's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from fallow.cli.access import Access
from fallow.cli.cell import reload, reload_answer
from fallow.cli.cell.reload import ask_for_reload, is_in_force_elsewhere, usual_files, worst
from fallow.cli.cell.reload_answer import QUIET_MS, ReloadAnswer, obstacle
from fallow.cli.errors.failures import Exit
from fallow.shared.client.port import CellClient, Mark, News
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import AnyEffect, CellFileSet, PolicySet, ProposalRefused, QuotaRemoved, QuotaSet
from fallow.shared.events.operations import CellPolicy, Operation, ReloadCell
from fallow.shared.events.reasons import ProposalCode
from fallow.shared.runtime.files.cell_file import load_cell_file
from tests.cli.usage.test_commands import call
from tests.cli.worlds.logs import LogWriter

LIMIT = TenantQuota(gpu_type="gpu", limit=8)


def a_file(*tenants: Tenant, cells: tuple[str, ...] = ("main",)) -> CellFile:
    parts = [
        CellPart(name=name, ordinal=number, pools=(Pool(name=f"pool-{name}", gpus=64),))
        for number, name in enumerate(cells)
    ]
    return CellFile(cells=tuple(parts), tenants=tenants or (Tenant(name="ada"),))


OLD = a_file()
NEW = a_file(Tenant(name="ada", quotas=(LIMIT,)), Tenant(name="bob"))
OTHER = a_file(Tenant(name="eve"))


def effect_of(file: CellFile) -> CellFileSet:
    return as_effect(file)


def a_cell(*effects: AnyEffect, file: CellFile = OLD) -> CellState:
    written = LogWriter()
    written.write(effect_of(file), *effects)
    return written.state


def answer_to(state: CellState, *news: AnyEffect, file: CellFile = NEW) -> ReloadAnswer:
    answer = ReloadAnswer(file, "cell.yaml", state)
    for number, effect in enumerate(news):
        answer.take(News("main", effect, version=10 + number))
    return answer


def refused(text: str, proposal: str = "cell-file") -> ProposalRefused:
    return ProposalRefused(proposal=proposal, code=ProposalCode.NOT_ALLOWED, text=text)


def quotas_of(file: CellFile) -> list[QuotaSet]:
    return [QuotaSet(quota=quota, of_file=True) for quota in file.quotas()]


def test_a_file_is_in_force_when_the_log_says_so_and_not_before() -> None:
    answer = answer_to(a_cell(), *quotas_of(NEW))
    assert not answer.is_over(QUIET_MS)
    answer.take(News("main", effect_of(NEW), version=12))
    digest = effect_of(NEW).digest
    assert (answer.is_over(0), answer.code) == (True, Exit.OK)
    changed = "changed: tenants); quotas as the file says: ada/gpu"
    assert answer.text == f"cell main goes by cell.yaml now (cell file {digest[:8]}; {changed}"
    assert answer.as_object() == {
        "cell": "main", "ok": True, "version": 12, "digest": digest, "answer": answer.text
    }  # fmt: skip


@pytest.mark.parametrize(("queues", "other"), [(("urgent", "default"), "urgent"), (("default", "urgent"), None)])
def test_where_jobs_that_name_no_queue_come_to_wait_elsewhere_the_answer_says_so(
    queues: tuple[str, ...], other: str | None
) -> None:
    """What a queue is called does not matter: the first one takes them."""
    (part,) = OLD.cells
    file = CellFile(cells=(with_queues(part, queues),), tenants=OLD.tenants)
    text = answer_to(a_cell(), effect_of(file), file=file).text
    moved = "; jobs without a queue of their own or of their tenant wait in urgent now, no longer in default"
    assert text.endswith(moved) is (other is not None)


def with_queues(part: CellPart, queues: tuple[str, ...]) -> CellPart:
    return CellPart(name=part.name, ordinal=0, pools=part.pools, queues=tuple(Queue(name=name) for name in queues))


def test_a_cell_that_goes_by_the_file_already_is_told_so_after_a_moment_of_quiet() -> None:
    answer = answer_to(a_cell(*quotas_of(NEW), file=NEW))
    assert (answer.is_over(0), answer.is_over(QUIET_MS)) == (False, True)
    assert (answer.code, answer.version) == (Exit.OK, None)
    assert answer.text == f"cell main goes by cell.yaml already (cell file {effect_of(NEW).digest[:8]})"


def test_other_settings_are_replaced_though_the_file_is_in_force_already() -> None:
    """They may be those of another file, and not of a person: nothing is said of who set them."""
    changed = CellPolicy(stop_grace_wall_ms=1)
    answer = answer_to(a_cell(PolicySet(policy=changed), file=NEW))
    assert (answer.is_over(QUIET_MS), answer.code) == (False, Exit.AWAY)
    assert answer.text.endswith("cell.yaml is in force, all but its policy and its quotas")
    for effect in (PolicySet(policy=NEW.cell("main").policy), *quotas_of(NEW)):
        assert not answer.is_over(QUIET_MS)
        answer.take(News("main", effect, version=12))
    assert (answer.is_over(0), answer.code) == (True, Exit.OK)
    assert answer.text.endswith(
        f"goes by cell.yaml as before (cell file {effect_of(NEW).digest[:8]})"
        "; policy as the file says: stop_grace_wall_ms; quotas as the file says: ada/gpu"
    )


@pytest.mark.parametrize(
    ("of_file", "policy", "told"),
    [
        (CellPolicy(), CellPolicy(stop_grace_wall_ms=1), "stop_grace_wall_ms"),
        (CellPolicy(remove_lost_ms=7), CellPolicy(stop_grace_wall_ms=1), "stop_grace_wall_ms, remove_lost_ms"),
        (CellPolicy(remove_lost_ms=7), CellPolicy(), "remove_lost_ms"),
        (CellPolicy(), CellPolicy(), None),
    ],
)
def test_each_setting_of_the_policy_that_the_file_changes_is_told(
    of_file: CellPolicy, policy: CellPolicy, told: str | None
) -> None:
    """Also a setting that a command had set, and a file that has another policy than the one before."""
    file = a_file(Tenant(name="ada"), Tenant(name="bob"))
    (part,) = file.cells
    file = file.model_copy(update={"cells": (part.model_copy(update={"policy": of_file}),)})
    news = [] if of_file == policy else [PolicySet(policy=of_file)]
    answer = answer_to(a_cell(PolicySet(policy=policy)), *news, effect_of(file), file=file)
    names = list(CellPolicy.__struct_fields__)
    in_order = "" if told is None else ", ".join(sorted(told.split(", "), key=names.index))
    assert answer.text.rpartition("tenants)")[2] == ("" if told is None else f"; policy as the file says: {in_order}")


def test_an_older_copy_where_placement_runs_is_told_with_the_parts_that_differ() -> None:
    answer = answer_to(a_cell(), effect_of(OTHER))
    assert (answer.is_over(0), answer.code) == (True, Exit.NO)
    assert answer.text == (
        f"cell main goes by cell file {effect_of(OTHER).digest[:8]} now, which differs from cell.yaml in tenants: "
        "placement reads another copy of the file"
    )


def test_a_file_that_was_in_force_before_and_is_replaced_by_another_copy_is_not_taken_for_in_force() -> None:
    answer = answer_to(a_cell(*quotas_of(NEW), file=NEW), effect_of(OTHER))
    assert (answer.is_over(0), answer.code) == (True, Exit.NO)


def test_without_an_answer_it_is_told_what_the_cell_still_goes_by() -> None:
    answer = answer_to(a_cell())
    assert (answer.is_over(3_600_000), answer.code) == (False, Exit.AWAY)
    assert answer.text == (
        f"no answer yet from cell main: it still goes by cell file {effect_of(OLD).digest[:8]}, which differs from "
        "cell.yaml in tenants; placement has not read the request yet: is it ready (`/readyz`)?"
    )


def test_where_placement_has_read_the_request_and_nothing_changed_the_answer_is_no() -> None:
    answer = answer_to(a_cell())
    answer.is_read(5_000)
    assert (answer.is_over(5_000), answer.is_over(5_000 + QUIET_MS), answer.code) == (False, True, Exit.NO)
    assert answer.text == (
        f"cell main still goes by cell file {effect_of(OLD).digest[:8]}, which differs from cell.yaml in tenants: "
        "placement has read its own copy of the file again, and that is another one, or has an error; "
        "its log names it. Make the change there, or start the services with this file (FALLOW_CELL_FILE)"
    )


def test_a_part_of_the_file_that_came_shows_that_the_rest_is_on_its_way() -> None:
    answer = answer_to(a_cell(), *quotas_of(NEW))
    answer.is_read(0)
    assert (answer.is_over(3_600_000), answer.code) == (False, Exit.AWAY)


def test_settings_that_contradict_others_are_named_and_the_first_few_of_many() -> None:
    answer = answer_to(a_cell(), *(refused(f"rule {number}") for number in range(5)), effect_of(NEW))
    assert (answer.is_over(0), answer.code) == (True, Exit.NO)
    assert answer.text.endswith("; refused: rule 0; refused: rule 1; refused: rule 2; 2 more refused")


def test_a_refusal_ends_the_wait_also_where_the_file_was_in_force_before() -> None:
    answer = answer_to(a_cell(file=NEW), refused("limit 8 is too low"))
    assert (answer.is_over(0), answer.is_over(QUIET_MS), answer.code) == (False, True, Exit.NO)


def test_each_quota_that_the_file_changes_is_told_whoever_set_it() -> None:
    """But for those that said the same."""
    types = ("of-person", "the-same", "of-file")
    old = a_file(Tenant(name="ada", quotas=tuple(TenantQuota(gpu_type=each, limit=8) for each in types)))
    new = a_file(Tenant(name="ada", quotas=tuple(TenantQuota(gpu_type=each, limit=9) for each in types)))
    set_by_person = [
        QuotaSet(quota=TenantQuota(gpu_type=each, limit=limit).in_milli("ada", None))
        for each, limit in (("of-person", 7), ("the-same", 9))
    ]
    cell = a_cell(*quotas_of(old), *set_by_person, file=old)
    answer = answer_to(cell, *quotas_of(new), effect_of(new), file=new)
    assert (answer.is_over(0), answer.code) == (True, Exit.OK)
    assert answer.text.endswith("; changed: tenants); quotas as the file says: ada/of-person, ada/of-file")


def test_quotas_that_the_file_no_longer_has_are_told() -> None:
    types = [f"type-{number}" for number in range(6)]
    old = a_file(Tenant(name="ada", quotas=tuple(TenantQuota(gpu_type=each, limit=8) for each in types)))
    removed = [QuotaRemoved(tenant="ada", gpu_type=each) for each in types[:5]]
    lifted = QuotaSet(quota=TenantQuota(gpu_type="type-5").in_milli("ada", None), of_file=True)
    of_another = QuotaRemoved(tenant="eve", gpu_type="gpu")
    answer = answer_to(a_cell(*quotas_of(old), file=old), *removed, lifted, of_another, effect_of(OLD), file=OLD)
    assert (answer.is_over(0), answer.code) == (True, Exit.OK)
    assert answer.text.endswith(
        "; changed: tenants); quotas removed: ada/type-0, ada/type-1, ada/type-2 and 2 more; "
        "without limit and guarantee from now on, as jobs live or others stand below: ada/type-5"
    )


def test_quotas_of_tenants_that_go_are_told() -> None:
    """But for one that had no guarantee: nothing happens to it."""
    limited, sure = TenantQuota(limit=8), TenantQuota(guaranteed=1, limit=8)
    old = a_file(
        *(Tenant(name=name, quotas=(each,)) for name, each in (("ada", sure), ("bob", sure), ("dan", limited)))
    )
    left = [QuotaSet(quota=limited.in_milli(name, None), of_file=True) for name in ("bob", "dan")]
    new = a_file(Tenant(name="cy"))
    made: list[AnyEffect] = [QuotaRemoved(tenant="ada", gpu_type="gpu"), *left, effect_of(new)]
    answer = answer_to(a_cell(*quotas_of(old), file=old), *made, file=new)
    assert answer.text.endswith(
        "; quotas removed: ada/gpu; without guarantee from now on, as jobs live or others stand below, "
        "though their tenants are gone: bob/gpu"
    )


def test_answers_to_other_requests_are_none() -> None:
    answer = answer_to(
        a_cell(), refused("no", proposal="set-quota"), PolicySet(policy=CellPolicy(start_timeout_wall_ms=7))
    )
    assert (answer.version, answer.code) == (None, Exit.AWAY)


class TwoCells:
    """As much of a client as a reload uses: these pieces of news come one by one, then nothing more."""

    cells = ("main", "east")

    def __init__(self, *news: News) -> None:
        self.asked: list[Operation] = []
        self._news = news

    async def operate(self, operation: Operation) -> Mark:
        self.asked.append(operation)
        return Mark({"t.operations/0": len(self.asked)})

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        return ()

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        assert since.offsets["t.operations/0"] == 1, "from before the first request on"
        for each in self._news:
            yield [each]
        while True:
            await asyncio.sleep(0.001)
            yield []


async def never_read(_: str) -> bool:
    return False


TWO = a_file(Tenant(name="bob"), cells=("main", "east"))


def answers_of_two() -> list[ReloadAnswer]:
    return [ReloadAnswer(TWO, "cell.yaml", CellState(cell)) for cell in TwoCells.cells]


async def test_every_cell_is_asked_and_waited_for() -> None:
    client = TwoCells(*(News(cell, effect_of(TWO), version=3) for cell in TwoCells.cells))
    answers = answers_of_two()
    await ask_for_reload(cast("CellClient", client), answers, 60_000, never_read)
    assert [(type(asked), asked.cell) for asked in client.asked] == [(ReloadCell, "main"), (ReloadCell, "east")]
    assert [answer.code for answer in answers] == [Exit.OK, Exit.OK]
    assert worst(answers) is Exit.OK


async def test_the_wait_for_a_cell_that_does_not_answer_has_an_end() -> None:
    answers = answers_of_two()
    await ask_for_reload(cast("CellClient", TwoCells(News("east", effect_of(TWO), version=3))), answers, 20, never_read)
    assert [answer.code for answer in answers] == [Exit.AWAY, Exit.OK]
    assert worst(answers) is Exit.AWAY


async def test_a_no_of_one_cell_is_worse_than_silence_of_another() -> None:
    answers = answers_of_two()
    await ask_for_reload(
        cast("CellClient", TwoCells(News("east", effect_of(OTHER), version=3))), answers, 20, never_read
    )
    assert worst(answers) is Exit.NO


async def test_whether_a_cell_has_read_the_request_is_looked_for_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reload, "QUIET_MS", 5)
    monkeypatch.setattr(reload_answer, "QUIET_MS", 5)
    looks: list[str] = []

    async def at_the_second_look(cell: str) -> bool:
        looks.append(cell)
        return looks.count(cell) > 1

    answers = answers_of_two()
    client = TwoCells(News("east", effect_of(TWO), version=3))
    await asyncio.wait_for(ask_for_reload(cast("CellClient", client), answers, 60_000, at_the_second_look), 10)
    assert looks == ["main", "main"]
    assert [answer.code for answer in answers] == [Exit.NO, Exit.OK]


def test_where_the_environment_names_a_file_services_read_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FALLOW_CELL_FILE", raising=False)
    (coming_along,) = usual_files(Access(None, None, "t", None))
    assert usual_files(Access(None, None, "t", Path("option.yaml"))) == [Path("option.yaml"), coming_along]
    monkeypatch.setenv("FALLOW_CELL_FILE", "mine.yaml")
    assert usual_files(Access(None, None, "t", Path("mine.yaml"))) == [Path("mine.yaml")]
    assert usual_files(Access(None, None, "t", Path("option.yaml"))) == [Path("option.yaml"), Path("mine.yaml")]


def test_a_copy_beside_the_one_that_is_in_force_is_most_likely_not_read_by_the_services(tmp_path: Path) -> None:
    usual, other, broken = tmp_path / "cell.yaml", tmp_path / "other.yaml", tmp_path / "broken.yaml"
    usual.write_text("cells: [{name: main, ordinal: 0, pools: [{name: a, gpus: 8}]}]\ntenants: [{name: ada}]\n")
    other.write_text(usual.read_text(encoding="utf-8").replace("ada", "eve"), encoding="utf-8")
    broken.write_text("cells: [")
    in_force = as_effect(load_cell_file(usual)).digest
    assert is_in_force_elsewhere(usual, other, [in_force])
    assert not is_in_force_elsewhere(usual, tmp_path / "." / "cell.yaml", [in_force]), "it is that file"
    assert not is_in_force_elsewhere(usual, other, [as_effect(load_cell_file(other)).digest]), "they read another copy"
    assert not is_in_force_elsewhere(usual, other, [in_force, None])
    assert not is_in_force_elsewhere(broken, other, [in_force])


@pytest.mark.parametrize("cells", [("east",), ("main", "east")])
def test_other_cells_than_those_in_force_are_refused_before_anything_is_asked(cells: tuple[str, ...]) -> None:
    why = obstacle(a_file(cells=cells), a_cell())
    assert "a reload keeps the cells and their ordinals" in why
    assert "in force are {'main': 0}" in why


def test_a_cell_of_which_the_log_knows_nothing_has_nothing_to_reload() -> None:
    assert "cell east has not begun" in obstacle(a_file(cells=("east",)), CellState("east"))
    assert not obstacle(NEW, a_cell())


def test_a_mistake_in_the_file_is_told_with_its_place_and_nothing_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "cell.yaml"
    path.write_text("cells:\n  - {name: main, ordinal: 0, pools: [{name: a, gpus: 8}]}\ntenants:\n  - {nam: x}\n")
    for words in ((str(path),), ()):
        done = call("cell", "reload", *words, FALLOW_CELL_FILE=str(path), FALLOW_KAFKA="127.0.0.1:1")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[0] == f"fallow: {path}: line 4: tenants[0].name: is missing"


def test_a_kafka_that_is_away_is_one_line() -> None:
    done = call("cell", "reload", FALLOW_KAFKA="127.0.0.1:1")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
