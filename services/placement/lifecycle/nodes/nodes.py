"""What placement does with what nodes say of themselves, and with what operators want of them."""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes import quarantine
from fallow.services.placement.lifecycle.nodes.known_node import become, end_quarantine, fitted, keep_status
from fallow.services.placement.lifecycle.runs import workers
from fallow.services.placement.lifecycle.runs.runs import has_runs, is_wanted, node_is_gone, note, settle
from fallow.services.placement.requests.requests import stopping
from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import TEXT_CHARACTERS_MAX
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import RUN_IS_OVER, NodeSpec, NodeStatus, ObservedRun
from fallow.shared.events.nodes import DeviceFailed, NodeEvent, NodeJoined, NodeLost, NodeReport, NodeReturned
from fallow.shared.events.operations import Cordon, DeclareLost, Drain, Uncordon, claimed
from fallow.shared.events.reasons import StopReason


def join(decision: DecisionBuilder, event: NodeJoined) -> None:
    """A node offers itself. In a new boot whatever ran before is over; an operator's wish for the node outlives the
    boot. In the same one it may have other labels and taints, and nothing else: what runs there goes on.
    """
    node = decision.state.nodes.get(event.node)
    if node is None:
        decision.emit(e.NodeChanged(spec=event.spec, boot=event.boot, status=NodeStatus.READY, seq=event.seq))
        return
    if node.boot == event.boot and node.status is not NodeStatus.LOST:
        _relabel(decision, node, event)
        return
    lose(decision, node, f"it joined again in boot {event.boot}")
    settle(decision)
    if node.id in decision.losing:
        return  # the record is full, and the node offers itself again
    _is_back(decision, node, event.spec, event)


def _relabel(decision: DecisionBuilder, node: Node, event: NodeJoined) -> None:
    """The node says in the same boot what it is. What cannot be while jobs hold it comes with `take_offers`."""
    if fitted(node, event.spec) != (node.spec, node.offered):
        _is_now(decision, node, event.spec, event.seq)


def take_offers(decision: DecisionBuilder) -> None:
    """Take nodes for what they have become, where nothing is held any more of what they were. A lost node is taken for
    what it is when it is back: nothing ends its loss but its own word.
    """
    for node_id in sorted(decision.state.offers):
        node = decision.state.nodes[node_id]
        is_free = not node.is_used and node.status is not NodeStatus.LOST
        if node.offered is not None and is_free and not decision.is_full:
            _is_now(decision, node, node.offered, node.seq)


def _is_now(decision: DecisionBuilder, node: Node, spec: NodeSpec, seq: int) -> None:
    """The node is this. Its quarantine ends where it comes into a pool that cannot do without it."""
    tell = end_quarantine if quarantine.ends_elsewhere(decision, node, spec) else keep_status
    tell(decision, node, spec, seq)


def report(decision: DecisionBuilder, event: NodeReport | NodeReturned) -> None:
    """Take in every run that the node has. A lost node works again once nothing runs on it that was declared over, as
    a report tells that is whole: in one that is cut into parts nobody sees all of the runs at once.
    """
    node = decision.state.nodes.get(event.node)
    if node is None or node.boot != event.boot:
        return
    for run in event.observed:
        note(decision, run.job, run.attempt, node.id, run.status, worker=(run.rank, run.turn))
    if isinstance(event, NodeReport):
        for device in event.failed_devices:
            _device_failed(decision, node, device)
    if node.status is not NodeStatus.LOST or node.id in decision.losing or event.partial:
        return
    if not any(_is_stray(decision, node, run) for run in event.observed):
        _is_back(decision, node, node.offered or node.spec, event)


def _is_back(decision: DecisionBuilder, node: Node, spec: NodeSpec, event: NodeEvent) -> None:
    """The node is what its operator wanted of it before it was lost, and in its maintenance if that goes on. One that
    flaps comes into quarantine.
    """
    status, reason, is_quarantined, until_ms = quarantine.back(decision, node, spec)
    decision.emit(
        replace(
            become(node, status, spec),
            boot=event.boot,
            drain_deadline_ms=node.drain_deadline_ms,
            reason=reason,
            seq=event.seq,
            quarantined=is_quarantined,
            quarantined_until_ms=until_ms,
        )
    )
    window = node.maintenance_ms
    if window is not None and window[0] <= decision.now_ms < window[1]:
        decision.emit(e.MaintenanceBegan(node=node.id))


def _is_stray(decision: DecisionBuilder, node: Node, run: ObservedRun) -> bool:
    """Whether a run lives that the log does not want there: of another attempt, or one that was declared over."""
    return run.status not in RUN_IS_OVER and not is_wanted(decision, node.id, run)


def lose(decision: DecisionBuilder, node: Node, reason: str = "") -> None:
    """The node is lost: its runs are over, by no fault of the jobs. What the record has no room for goes on with
    `go_on_losing`. Without a reason it was silent for too long, which counts against it.
    """
    if node.status is not NodeStatus.LOST:
        rests_until_ms = node.rests_until_ms if node.quarantined else min(node.rests_until_ms, decision.now_ms)
        flaps, until_ms = (node.flaps, rests_until_ms) if reason else quarantine.flaps_after(node, decision.now_ms)
        decision.emit(e.LeaseExpired(node=node.id, boot=node.boot, reason=reason, flaps=flaps, rests_until_ms=until_ms))
        decision.losing[node.id] = None
        go_on_losing(decision, node.id)


def go_on_losing(decision: DecisionBuilder, node_id: str) -> None:
    """End the runs of a lost node, as far as the record has room."""
    if node_is_gone(decision, node_id):
        decision.losing.pop(node_id, None)


def half_lost(state: CellState) -> dict[str, None]:
    """The lost nodes with runs that are not said to be over yet."""
    return {
        node_id: None
        for node_id in sorted(state.nodes)
        if state.nodes[node_id].status is NodeStatus.LOST and has_runs(state, node_id)
    }


def declared_lost(decision: DecisionBuilder, node: Node, event: DeclareLost) -> None:
    """An operator says that the node is gone."""
    lose(decision, node, _words(f"declared lost by {claimed(event.by)}" if event.by else "declared lost", event.reason))


def _words(how: str, reason: str) -> str:
    return (f"{how}: {reason}" if reason else how)[:TEXT_CHARACTERS_MAX]


def said_lost(decision: DecisionBuilder, event: NodeLost) -> None:
    """Somebody who knows says that the node is gone."""
    node = decision.state.nodes.get(event.node)
    if node is not None and node.boot == event.boot:
        lose(decision, node, _words("reported as gone", event.reason))


def device_failed(decision: DecisionBuilder, event: DeviceFailed) -> None:
    """A device is taken out."""
    node = decision.state.nodes.get(event.node)
    if node is not None and node.boot == event.boot:
        _device_failed(decision, node, event.device)


def _device_failed(decision: DecisionBuilder, node: Node, device: int) -> None:
    if device < node.spec.gpus and not node.failed >> device & 1:
        decision.emit(e.DeviceChanged(node=node.id, device=device, healthy=False))


def operate(decision: DecisionBuilder, event: Cordon | Uncordon | Drain) -> str | None:
    """Change what may happen on a node. Why that cannot be, or None."""
    node = decision.state.nodes.get(event.node)
    if node is None:
        return "there is no such node"
    if node.status is NodeStatus.LOST:
        return "the node is lost"
    match event:
        case Cordon():
            decision.emit(replace(become(node, NodeStatus.CORDONED), reason=event.reason))
        case Uncordon():
            decision.emit(become(node, NodeStatus.READY))
        case Drain():
            deadline_ms = decision.now_ms if event.deadline_ms is None else event.deadline_ms
            drained = become(node, NodeStatus.DRAINING)
            decision.emit(replace(drained, drain_deadline_ms=deadline_ms, reason=event.reason))
            if deadline_ms <= decision.now_ms:
                empty(decision, node)
    return None


def empty(decision: DecisionBuilder, node: Node) -> bool:
    """A drain's deadline has come: what still runs on the node stops and is queued again. Whether the record had room
    for all of that.
    """
    for job_id in sorted(node.jobs):
        if decision.is_full:
            return False
        job = decision.state.jobs[job_id]
        if not job.spec.gang:
            workers.make_room(decision, job, node.id)
        elif job.status in HOLDING and job.status is not JobStatus.STOPPING:
            decision.emit(stopping(job, StopReason.DRAINED, decision.state.policy.stop_grace_wall_ms, node.id))
    return True
