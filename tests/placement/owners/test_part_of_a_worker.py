"""Of a job that runs nothing is kept for a worker of which only a part is guaranteed."""

from __future__ import annotations

from fallow.shared.events.fields.value import replace
from tests.placement.owners.test_owners_of_any_shape import SINGLE, Beside
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import set_quotas


def test_a_job_that_runs_keeps_nobody_off_for_a_worker_that_is_guaranteed_in_part() -> None:
    """Two workers and a half are guaranteed."""
    nodes, job, borrower = SINGLE["whole nodes"]
    beside = Beside(nodes, job, borrower)
    beside.world.tell(set_quotas(share("ada", 20), share("bob")))
    job = replace(job, gang=False, workers_min=1)
    assert beside.ends_until_start(job, 2, most=200) is None
    assert len(beside.world.job("own").workers) == 2
    assert beside.world.state.tree.kept.all == ()
