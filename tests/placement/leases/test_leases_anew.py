"""A writer that has a cell again has forgotten what nodes told it before: they may have told others since."""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.leases import Leases
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.lease import longest_patience_ms, longest_told_ms
from fallow.shared.events.base import LARGEST_INTEGER
from fallow.shared.events.effects import LeaseExpired
from fallow.shared.events.fields.value import replace
from fallow.shared.events.nodes import NodeReport
from tests.placement.worlds.world import CELL, World, joined, set_policy


def short_word(seq: int) -> NodeReport:
    return NodeReport(cell=CELL, node="n1", boot="boot-1", seq=seq, node_lease_wall_ms=1_000, lease_margin_wall_ms=200)


def test_a_lease_that_a_node_told_before_the_writer_left_does_not_count_when_it_is_back() -> None:
    world = World()
    world.tell(set_policy(node_lease_wall_ms=20_000, lease_margin_wall_ms=1_500), joined("n1"))
    world.tell(set_policy(node_lease_wall_ms=1_000, lease_margin_wall_ms=200))
    leases = Leases()
    leases.begin(world.state, 0)
    leases.told(DecisionBuilder(world.state, 0), short_word(1))
    assert leases.patience_ms(world.state, "n1") == 1_200
    leases.begin(world.state, 5_000)
    assert leases.patience_ms(world.state, "n1") == longest_patience_ms(world.state) == 21_500


def test_of_a_node_that_goes_on_with_an_older_release_any_lease_may_be_the_one_that_it_goes_by() -> None:
    world = World()
    world.tell(set_policy(node_lease_wall_ms=20_000, lease_margin_wall_ms=1_500), joined("n1"))
    world.tell(set_policy(node_lease_wall_ms=1_000, lease_margin_wall_ms=200))
    leases = Leases()
    leases.begin(world.state, 0)
    leases.told(DecisionBuilder(world.state, 0), short_word(1))
    leases.told(DecisionBuilder(world.state, 0), NodeReport(cell=CELL, node="n1", boot="boot-1", seq=2))
    assert leases.patience_ms(world.state, "n1") == longest_patience_ms(world.state) == 21_500


def test_a_node_that_tells_a_lease_which_no_policy_named_lengthens_no_other_nodes_lease() -> None:
    world = World()
    world.tell(set_policy(node_lease_wall_ms=60_000, lease_margin_wall_ms=1_500), joined("n1"), joined("n2"))
    odd = NodeReport(
        cell=CELL, node="n1", boot="boot-1", seq=1, node_lease_wall_ms=LARGEST_INTEGER, lease_margin_wall_ms=1_500
    )
    world.tell(odd)
    assert longest_patience_ms(world.state) == 61_500
    world.restart()
    lost: list[str] = []
    for seq in range(2, 66):
        world.hand_over(replace(odd, seq=seq))
        lost += [effect.node for effect in world.pass_time(1_000) if isinstance(effect, LeaseExpired)]
    assert lost == ["n2"]


def test_the_longest_lease_that_a_policy_has_named_outlives_shorter_policies_and_snapshots() -> None:
    world = World()
    world.tell(set_policy(node_lease_wall_ms=60_000, lease_margin_wall_ms=1_500), joined("n1"))
    world.tell(set_policy(node_lease_wall_ms=1_000, lease_margin_wall_ms=200))
    world.tell(short_word(1))
    world.pass_time(100)
    again = state_from(rows_of(world.state))
    assert (longest_patience_ms(again), longest_told_ms(again)) == (1_200, 61_500)
    world.tell(set_policy(node_lease_wall_ms=90_000, lease_margin_wall_ms=1_500))
    assert longest_told_ms(state_from(rows_of(world.state))) == longest_told_ms(world.state) == 91_500
