"""One table: effect class -> what it does to a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fallow.shared.cluster.fold import apply_jobs as jobs
from fallow.shared.cluster.fold import apply_nodes as nodes
from fallow.shared.cluster.fold import apply_workers as workers
from fallow.shared.cluster.fold import holding
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e

APPLY: dict[type[e.Effect], Callable[[CellState, Any, int], None]] = {
    e.WriterStarted: nodes.writer_started,
    e.JobEnqueued: jobs.enqueued,
    e.JobUpdated: jobs.updated,
    e.JobStarted: jobs.started,
    e.RunObserved: jobs.run_observed,
    e.JobRunning: jobs.running,
    e.JobResizing: workers.resizing,
    e.JobResized: jobs.resized,
    e.WorkersSettled: workers.settled,
    e.JobStopping: jobs.stopping,
    e.JobPreempted: jobs.preempted,
    e.JobRequeued: jobs.requeued,
    e.JobFinished: jobs.finished,
    e.JobFailed: jobs.failed,
    e.JobCancelled: jobs.cancelled,
    e.JobRefused: jobs.nothing,
    e.AttemptTimedOut: jobs.timed_out,
    e.JobDeferred: jobs.deferred,
    e.JobHeld: jobs.held,
    e.JobReleased: jobs.released,
    e.JobReady: jobs.ready,
    e.WaitShortened: jobs.wait_shortened,
    e.ReservationSet: jobs.reservation_set,
    e.ReservationCleared: jobs.reservation_cleared,
    e.RoomHeld: holding.room_held,
    e.RoomReleased: holding.room_released,
    e.HeadBlocked: jobs.head_blocked,
    e.HeadCleared: jobs.head_cleared,
    e.NodeChanged: nodes.node_changed,
    e.MaintenanceSet: nodes.maintenance_set,
    e.MaintenanceBegan: nodes.maintenance_began,
    e.DeviceChanged: nodes.device_changed,
    e.LeaseExpired: nodes.lease_expired,
    e.NodeFailures: nodes.node_failures,
    e.NodeSilent: nodes.node_silent,
    e.NodeHeard: nodes.node_heard,
    e.NodeRemoved: nodes.node_removed,
    e.EvictionsHeld: nodes.evictions_held,
    e.EvictionsResumed: nodes.evictions_resumed,
    e.NodeLent: nodes.node_lent,
    e.NodeLoanDraining: nodes.node_loan_draining,
    e.NodeReclaimed: nodes.node_reclaimed,
    e.QuotaSet: nodes.quota_set,
    e.QuotaRemoved: nodes.quota_removed,
    e.PolicySet: nodes.policy_set,
    e.CellFileSet: nodes.cell_file_set,
    e.ProposalRefused: jobs.nothing,
    e.InputResumed: nodes.input_resumed,
    e.InputFenced: nodes.input_fenced,
    e.LogRepaired: jobs.nothing,
}


def apply(state: CellState, effect: e.Effect, at_ms: int) -> None:
    """Change the state by one effect at cell time `at_ms`.

    Raises IllegalEffect, and may then have changed a part: callers that go on afterwards hold a checkpoint.
    """
    APPLY[type(effect)](state, effect, at_ms)
