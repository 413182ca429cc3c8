"""The cell file, quotas and policies come into force, whole and only if they make sense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fallow.services.placement.decision import decision_room
from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests.settings import configure
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable, decode, encode
from fallow.shared.events.fields.value import build_valid, replace
from fallow.shared.events.fields.values import WorkerRange
from fallow.shared.events.operations import FIELDS_MAX, CellPolicy, OfferLoan, Quota, RecallLoan, SetPolicy, SetQuota
from fallow.shared.events.proposals import PreemptionProposed, Victim
from fallow.shared.events.reasons import PreemptionCause, ProposalCode
from tests.placement.worlds.world import (
    CELL,
    World,
    cell_with,
    codes,
    joined,
    kinds,
    quota,
    set_policy,
    set_quotas,
    spec_of,
)


def file_with(*tenants: Tenant, **policy: object) -> CellFile:
    pools = (Pool(name="train", gpus=1_000),)
    part = CellPart(name=CELL, ordinal=0, pools=pools, policy=build_valid(CellPolicy, **policy))
    return CellFile(cells=(part,), tenants=tenants or (Tenant(name="ada"),))


def texts(effects: Iterable[e.AnyEffect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, e.ProposalRefused)]


LIMITED = Tenant(name="ada", quotas=(TenantQuota(limit=8),))


def test_a_new_cell_gets_its_policy_and_quotas_in_its_first_record() -> None:
    world = World(file_with(LIMITED, start_timeout_wall_ms=5))
    assert kinds(world.decisions[0].effects) == ["WriterStarted", "PolicySet", "QuotaSet", "CellFileSet"]
    assert world.state.policy.start_timeout_wall_ms == 5


def test_what_was_set_at_run_time_outlives_the_writer() -> None:
    world = World(file_with(LIMITED))
    world.tell(set_quotas(quota("ada", 2)), set_policy(start_timeout_wall_ms=9))
    world.restart()
    assert (world.state.quotas["ada", "gpu"].limit_milli, world.state.policy.start_timeout_wall_ms) == (2_000, 9)


def test_a_reload_puts_the_file_in_force_anew() -> None:
    world = World(file_with(LIMITED))
    world.tell(set_quotas(quota("ada", 2)))
    world.service.reload(file_with(Tenant(name="ada", quotas=(TenantQuota(limit=5),)), start_timeout_wall_ms=7))
    assert sorted(kinds(world.rest())) == ["CellFileSet", "PolicySet", "QuotaSet"]
    assert (world.state.quotas["ada", "gpu"].limit_milli, world.state.policy.start_timeout_wall_ms) == (5_000, 7)
    assert world.rest() == []


def test_a_quota_of_a_file_that_would_close_a_circle_is_told_and_its_limit_counts_all_the_same() -> None:
    world = World(file_with(Tenant(name="lab"), Tenant(name="ada", parent="lab")))
    world.tell(set_quotas(quota("lab", None, parent="ada")))
    world.file = file_with(Tenant(name="lab"), Tenant(name="ada", parent="lab", quotas=(TenantQuota(limit=1),)))
    world.restart()
    assert world.state.quotas["ada", "gpu"] == quota("ada", 1)
    assert codes(world.decisions[-1].effects) == [ProposalCode.NOT_ALLOWED]
    text = "ada/gpu is set not below lab: ada/gpu: cycle: ada -> lab -> ada"
    assert texts(world.decisions[-1].effects) == [text]


def family(*below: tuple[str, int], limit: int = 8) -> CellFile:
    """Tenants with guarantees below a lab that has 8 GPUs."""
    lab = Tenant(name="lab", quotas=(TenantQuota(guaranteed=8, limit=limit),))
    below_it = (Tenant(name=name, parent="lab", quotas=(TenantQuota(guaranteed=gpus),)) for name, gpus in below)
    return file_with(lab, *below_it)


GUEST = replace(quota("guest", None, parent="lab"), guaranteed_milli=2_000)


@pytest.mark.parametrize("anew", [True, False])
def test_a_quota_of_a_file_that_contradicts_one_of_run_time_keeps_its_parent_and_loses_its_guarantee(
    *, anew: bool
) -> None:
    world = World(family(("ada", 1)))
    world.tell(set_quotas(GUEST))
    world.file = family(("ada", 2), ("bob", 6))
    if anew:
        world.service.reload(world.file)
        made = world.rest()
    else:
        world.restart()
        made = list(world.decisions[-1].effects)
    (told,) = texts(made)
    assert told == (
        "bob/gpu is set without its guarantee, for what was set at run time of guest: lab/gpu: guaranteed 8: the "
        "children of 'lab' are guaranteed 10 GPUs together"
    )
    assert {name: each.guaranteed_milli for (name, _), each in world.state.quotas.items()} == {
        "lab": 8_000, "ada": 2_000, "bob": 0, "guest": 2_000
    }  # fmt: skip
    assert world.state.quotas["bob", "gpu"].parent == "lab"
    world.check()


def test_the_limit_of_a_file_counts_also_where_more_was_guaranteed_below_it_at_run_time() -> None:
    world = World(family(limit=16))
    world.tell(set_quotas(replace(GUEST, guaranteed_milli=8_000)))
    world.service.reload(file_with(Tenant(name="lab", quotas=(TenantQuota(limit=4),))))
    (told,) = texts(world.rest())
    assert told == (
        "lab/gpu is set all the same, for what was set at run time of guest: lab/gpu: limit 4: the children of 'lab' "
        "are guaranteed 8 GPUs together"
    )
    assert world.state.quotas["lab", "gpu"] == quota("lab", 4)
    world.check()


def test_beside_a_contradiction_no_quota_of_the_file_contradicts_what_the_file_itself_changes() -> None:
    world = World(family(("bob", 1), ("ada", 6), ("eve", 1)))
    world.tell(set_quotas(quota("odd", None), quota("zed", None, parent="odd")))
    odd = Tenant(name="odd", parent="zed", quotas=(TenantQuota(limit=1),))
    other = family(("bob", 6), ("ada", 1), ("eve", 1)).tenants
    world.service.reload(file_with(*other, Tenant(name="zed"), odd))
    (told,) = texts(world.rest())
    assert told.startswith("odd/gpu is set not below zed")
    wanted = {each.tenant: each for each in family(("bob", 6), ("ada", 1), ("eve", 1)).quotas()}
    assert {name: world.state.quotas[name, "gpu"] for name in wanted} == wanted


@pytest.mark.parametrize("room", [1, 300, 900])
def test_what_contradicts_is_told_also_where_the_file_needs_several_records(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_room, "BYTES_MAX", room)
    world = World(family())
    world.tell(set_quotas(GUEST))
    before = len(world.decisions)
    world.file = family(("ada", 1), ("bob", 6), ("eve", 1))
    world.restart()
    made = [effect for each in world.decisions[before:] for effect in each.effects]
    assert len(texts(made)) >= 1
    assert sum(each.guaranteed_milli for each in world.state.quotas.values()) - 8_000 <= 8_000
    assert all(each.parent == "lab" for (name, _), each in world.state.quotas.items() if name != "lab")
    assert isinstance(made[-1], e.CellFileSet)


def test_what_a_file_with_a_contradiction_costs_grows_with_its_quotas_and_not_with_their_square() -> None:
    names = [f"t{number:03}" for number in range(200)]
    others = tuple(Tenant(name=name, quotas=(TenantQuota(limit=1),)) for name in names)
    world = World(
        file_with(Tenant(name="lab"), Tenant(name="ada", parent="lab"), *(Tenant(name=name) for name in names))
    )
    world.tell(set_quotas(quota("lab", None, parent="ada")))
    turn = DecisionBuilder(world.state, world.now_ms)
    file = file_with(Tenant(name="lab"), Tenant(name="ada", parent="lab", quotas=(TenantQuota(limit=1),)), *others)
    world.writer.begin()
    assert configure(turn, file, ("e-spread",), anew=True)
    assert kinds(turn.effects) == ["QuotaSet"] * 201
    assert turn.steps < 100 * len(names)


def test_a_file_with_an_unknown_placement_policy_is_refused_and_stops_nobody() -> None:
    world = World(file_with(placement="magic"))
    assert codes(world.decisions[0].effects) == [ProposalCode.NOT_ALLOWED]
    assert world.state.policy.placement == "e-spread"


def test_quotas_are_set_all_or_none() -> None:
    world = cell_with()
    made = world.tell(set_quotas(quota("ada", 4, "lab"), quota("lab", 9, "ada")))
    assert (kinds(made), codes(made)) == (["ProposalRefused"], [ProposalCode.NOT_ALLOWED])
    assert world.state.quotas == {}


def test_a_limit_below_the_guarantee_is_refused() -> None:
    bad = replace(quota("ada", 1), guaranteed_milli=2_000)
    assert codes(cell_with().tell(set_quotas(bad))) == [ProposalCode.NOT_ALLOWED]


def test_a_lowered_limit_evicts_nobody() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("a", 4))
    assert kinds(world.tell(set_quotas(quota("ada", 1)))) == ["QuotaSet"]


def test_an_unknown_placement_policy_is_refused() -> None:
    assert codes(cell_with().tell(set_policy(placement="magic"))) == [ProposalCode.NOT_ALLOWED]


def test_the_policy_in_force_needs_no_record() -> None:
    assert cell_with().tell(set_policy()) == []


@pytest.mark.parametrize(
    "wish",
    [
        OfferLoan(cell=CELL, loan="loan-1", nodes=("n1",)),
        RecallLoan(cell=CELL, loan="loan-1", count=1, deadline_ms=5),
    ],
)
def test_what_is_not_built_in_is_refused_in_words(wish: Event) -> None:
    assert codes(cell_with().tell(wish)) == [ProposalCode.UNSUPPORTED]


def test_a_proposal_is_refused_in_words() -> None:
    victim = Victim(job="a", attempt=1)
    proposal = PreemptionProposed(
        cell=CELL,
        proposal="p-1",
        version=3,
        preemptor="b",
        victims=(victim,),
        cause=PreemptionCause.PRIORITY,
        places=(WorkerRange(rank=0, node="n1", devices=(0,), gpu_milli=1_000),),
    )
    assert codes(cell_with().tell(proposal)) == [ProposalCode.BENEFICIARY_GONE]


SHARED = (
    Tenant(name="lab", quotas=(TenantQuota(guaranteed=100, limit=200),)),
    Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=60),)),
    Tenant(name="bob", parent="lab", quotas=(TenantQuota(guaranteed=40),)),
)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (
            {"tenant": "bob", "guaranteed_milli": 41_000, "parent": "lab"},
            "the children of 'lab' are guaranteed 101 GPUs together",
        ),
        ({"tenant": "eve", "guaranteed_milli": 901_000}, "of gpu, the pools have 1000"),
        ({"tenant": "eve", "parent": "nobody"}, "parent 'nobody': is no tenant"),
        ({"tenant": "lab", "parent": "ada"}, "cycle: lab -> ada -> lab"),
    ],
)
def test_what_does_not_go_with_the_others_is_refused_with_its_rule(wrong: dict[str, Any], rule: str) -> None:
    world = World(file_with(*SHARED))
    before = dict(world.state.quotas)
    made = world.tell(set_quotas(quota("fay", 99), Quota(gpu_type="gpu", **wrong)))
    assert (kinds(made), world.state.quotas) == (["ProposalRefused"], before)
    assert rule in refusal(made)


@pytest.mark.parametrize("count", [2, 20_000])
def test_a_field_is_named_once_at_most(count: int) -> None:
    wish = SetQuota(cell=CELL, quotas=(quota("ada", 4),), fields=("limit_milli",) * count)
    if count > FIELDS_MAX:
        assert isinstance(decode(SetQuota.type, encode(wish)), Undecodable)
    else:
        assert "'limit_milli' is named more than once" in refusal(cell_with().tell(wish))


@pytest.mark.parametrize("fields", [(), ("limit_milli",)])
def test_a_quota_is_named_once_at_most_by_one_operation(fields: tuple[str, ...]) -> None:
    world = cell_with()
    before = dict(world.state.quotas)
    told = world.tell(SetQuota(cell=CELL, quotas=(quota("ada", 4), quota("bob", 1), quota("ada", 9)), fields=fields))
    assert refusal(told) == "the quota of ada/gpu is named more than once"
    assert (kinds(told), world.state.quotas) == (["ProposalRefused"], before)


def test_a_setting_of_the_policy_is_named_once_at_most() -> None:
    wish = SetPolicy(cell=CELL, policy=CellPolicy(), fields=("node_lease_wall_ms", "placement", "node_lease_wall_ms"))
    assert "'node_lease_wall_ms' is named more than once" in refusal(cell_with().tell(wish))


def test_a_line_of_quotas_that_is_too_deep_is_refused_with_the_most() -> None:
    world = cell_with()
    made = world.tell(set_quotas(*(quota(f"t{n}", 4, f"t{n - 1}" if n else None) for n in range(1_000))))
    assert (kinds(made), world.state.quotas) == (["ProposalRefused"], {})
    assert "stands more than 16 levels deep" in refusal(made)


def test_a_cell_file_of_a_line_too_deep_is_refused_when_it_is_read() -> None:
    quotas = (TenantQuota(limit=8),)
    line = [Tenant(name=f"t{n}", parent=f"t{n - 1}" if n else None, quotas=quotas) for n in range(17)]
    assert len(file_with(*line[:16]).quotas()) == 16
    with pytest.raises(ValueError, match="parent 't15' of gpu: stands more than 16 levels deep"):
        file_with(*line)


def refusal(made: list[e.AnyEffect]) -> str:
    return next(effect.text for effect in made if isinstance(effect, e.ProposalRefused))


def test_quotas_that_only_go_together_are_set_together() -> None:
    world = World(file_with(*SHARED))
    less, more = quota("ada", None, "lab"), Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=90_000, parent="lab")
    assert kinds(world.tell(set_quotas(more, less))) == ["QuotaSet", "QuotaSet"]


def test_tenants_may_change_places_at_once() -> None:
    world = World(file_with(*SHARED))
    up, down = replace(quota("ada", None), parent=None), replace(quota("lab", None), parent="ada")
    assert kinds(world.tell(set_quotas(down, up))) == ["QuotaSet", "QuotaSet"]


def test_fields_that_are_named_are_changed_alone() -> None:
    world = World(file_with(*SHARED))
    world.tell(replace(set_quotas(quota("ada", 70)), fields=("limit_milli",)))
    assert world.state.quotas["ada", "gpu"] == Quota(
        tenant="ada", gpu_type="gpu", guaranteed_milli=60_000, limit_milli=70_000, parent="lab"
    )


def test_a_quota_of_a_new_type_stands_where_the_file_puts_its_tenant() -> None:
    world = World(file_with(*SHARED))
    world.tell(replace(set_quotas(quota("ada", 7, gpu_type="a100")), fields=("limit_milli",)))
    assert world.state.quotas["ada", "a100"].parent == "lab"


@pytest.mark.parametrize(
    "wish",
    [
        replace(set_quotas(quota("ada", 7)), fields=("limits",)),
        replace(set_policy(start_timeout_wall_ms=9), fields=("start_wall",)),
    ],
)
def test_a_field_that_nobody_knows_is_refused(wish: Event) -> None:
    assert codes(cell_with().tell(wish)) == [ProposalCode.NOT_ALLOWED]


def test_settings_that_are_named_are_changed_alone() -> None:
    world = cell_with()
    world.tell(set_policy(start_timeout_wall_ms=9))
    world.tell(replace(set_policy(stop_grace_wall_ms=7), fields=("stop_grace_wall_ms",)))
    assert (world.state.policy.start_timeout_wall_ms, world.state.policy.stop_grace_wall_ms) == (9, 7)


def test_more_quotas_than_a_record_holds_are_refused() -> None:
    many = tuple(quota(f"team-{number:04}", 8, gpu_type="gpu-of-a-long-name") for number in range(6_000))
    made = World(file_with()).tell(set_quotas(*many))
    assert kinds(made) == ["ProposalRefused"]
    assert "set fewer at once" in refusal(made)


def test_a_lease_too_short_to_look_at_is_refused() -> None:
    world = cell_with()
    assert codes(world.tell(set_policy(node_lease_wall_ms=999))) == [ProposalCode.NOT_ALLOWED]
    world.tell(set_policy(node_lease_wall_ms=1_000, lease_margin_wall_ms=500))
    assert world.state.policy.node_lease_wall_ms == 1_000
