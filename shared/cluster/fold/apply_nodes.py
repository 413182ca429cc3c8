"""What the effects on nodes, loans, quotas and the cell itself do to a state, and when they are refused."""

from __future__ import annotations

from fallow.shared.cluster.fold.allocation import change_node, enter_pool, leave_pool
from fallow.shared.cluster.fold.errors import IllegalEffect, require
from fallow.shared.cluster.model.lease import longest_named_with, longest_with, patience_ms
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.model.unacknowledged import go_by
from fallow.shared.cluster.quota.quota import remove_quota, set_quota
from fallow.shared.cluster.quota.rules import contradiction
from fallow.shared.cluster.run_times.learning import forget_all
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import LoanStatus, NodeRole, NodeStatus
from fallow.shared.events.operations import EstimatorKind


def node_of(state: CellState, node_id: str) -> Node:
    """The node; refuses the effect if there is none."""
    node = state.nodes.get(node_id)
    if node is None:
        raise IllegalEffect(f"node {node_id} does not exist")
    return node


def writer_started(state: CellState, effect: e.WriterStarted, at_ms: int) -> None:
    """A new writer."""
    require(effect.epoch > state.epoch, f"epoch {effect.epoch} does not follow {state.epoch}")
    state.undo_log.set(state, "epoch", effect.epoch)


def node_changed(state: CellState, effect: e.NodeChanged, at_ms: int) -> None:
    """A node is new, or another than before."""
    node = state.nodes.get(effect.spec.id)
    if node is None:
        node = Node(
            effect.spec,
            effect.boot,
            effect.status,
            drain_deadline_ms=effect.drain_deadline_ms,
            reason=effect.reason,
            seq=effect.seq,
            quarantined=effect.quarantined,
            quarantined_until_ms=effect.quarantined_until_ms,
        )
        if effect.status is not NodeStatus.LOST:
            node.wanted = effect.status
        state.undo_log.put(state.nodes, node.id, node)
        enter_pool(state, node)
        return
    moves = effect.spec.pool != node.spec.pool and node.lent_to is None
    shape = (effect.spec.gpus, effect.spec.gpu_type, effect.spec.cpu_milli, effect.spec.memory_mib)
    before = (node.spec.gpus, node.spec.gpu_type, node.spec.cpu_milli, node.spec.memory_mib)
    require(
        not node.is_used or (shape == before and not moves), f"node {node.id} is in use and keeps its shape and pool"
    )
    require(effect.offered is None or node.is_used, f"node {node.id} is not in use: it is what it offers")
    if moves:
        leave_pool(state, node)
    failed_before = _failed_before(node, effect)
    change_node(
        state,
        node,
        spec=effect.spec,
        boot=effect.boot,
        status=effect.status,
        drain_deadline_ms=effect.drain_deadline_ms,
        reason=effect.reason,
        failed=node.failed if effect.boot == node.boot else 0,
        wanted=node.wanted if effect.status is NodeStatus.LOST else effect.status,
        seq=effect.seq,
        lost_ms=node.lost_ms if effect.status is NodeStatus.LOST else None,
        lost_alone=node.lost_alone and effect.status is NodeStatus.LOST,
        offered=effect.offered,
        quarantined=effect.quarantined,
        quarantined_until_ms=effect.quarantined_until_ms,
        failed_jobs=failed_before[0],
        failed_tenants=failed_before[1],
        failed_ms=failed_before[2],
        failed_by_node=failed_before[3],
    )
    if effect.offered is not None:
        state.undo_log.put(state.offers, node.id, None)
    elif node.id in state.offers:
        state.undo_log.drop(state.offers, node.id)
    if moves:
        enter_pool(state, node)


_Failed = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...], tuple[bool, ...]]


def _failed_before(node: Node, effect: e.NodeChanged) -> _Failed:
    """What still counts of the jobs that failed on a node in a row: all of it where it only says other things of
    itself, as its labels; nothing where it is another machine, has booted, or what is wanted of it was said anew.
    """
    spec, known = effect.spec, node.spec
    says_more = (spec, effect.offered) != (known, node.offered)
    status = node.wanted if node.in_maintenance and node.status is NodeStatus.DRAINING else node.status
    is_same = (
        says_more
        and (spec.pool, spec.gpus, spec.gpu_type, spec.cpu_milli, spec.memory_mib)
        == (known.pool, known.gpus, known.gpu_type, known.cpu_milli, known.memory_mib)
        and (effect.boot, effect.status, effect.quarantined) == (node.boot, status, node.quarantined)
    )
    if not is_same:
        return (), (), (), ()
    return node.failed_jobs, node.failed_tenants, node.failed_ms, node.failed_by_node


def maintenance_set(state: CellState, effect: e.MaintenanceSet, at_ms: int) -> None:
    """Work on a node is planned, or not any more. What it is used for then is what its operator wants."""
    node = node_of(state, effect.node)
    was_on = node.in_maintenance
    window = None
    if effect.begin_ms is not None and effect.end_ms is not None:
        require(effect.begin_ms < effect.end_ms, f"the maintenance of node {node.id} ends before it begins")
        window = (effect.begin_ms, effect.end_ms)
    is_free = was_on and node.status is NodeStatus.DRAINING
    status = node.wanted if is_free else node.status
    change_node(state, node, maintenance_ms=window, maintenance_why=effect.reason, in_maintenance=False, status=status)
    if window is not None:
        state.undo_log.put(state.maintenance_starts, node.id, window[0])
    elif node.id in state.maintenance_starts:
        state.undo_log.drop(state.maintenance_starts, node.id)


def maintenance_began(state: CellState, effect: e.MaintenanceBegan, at_ms: int) -> None:
    """A node is emptied, whatever else is wanted of it."""
    node = node_of(state, effect.node)
    require(node.maintenance_ms is not None, f"no maintenance of node {node.id} is planned")
    require(node.status is not NodeStatus.LOST, f"node {node.id} is lost")
    change_node(state, node, in_maintenance=True, status=NodeStatus.DRAINING)
    if node.id in state.maintenance_starts:
        state.undo_log.drop(state.maintenance_starts, node.id)


def device_changed(state: CellState, effect: e.DeviceChanged, at_ms: int) -> None:
    """A device is usable or not."""
    node = node_of(state, effect.node)
    require(effect.device < node.spec.gpus, f"node {node.id} has no device {effect.device}")
    bit = 1 << effect.device
    change_node(state, node, failed=node.failed & ~bit if effect.healthy else node.failed | bit)


def lease_expired(state: CellState, effect: e.LeaseExpired, at_ms: int) -> None:
    """A node is lost."""
    node = node_of(state, effect.node)
    require(node.boot == effect.boot, f"node {node.id} is in boot {node.boot}, not {effect.boot}")
    require(node.status is not NodeStatus.LOST, f"node {node.id} is lost already")
    change_node(
        state,
        node,
        status=NodeStatus.LOST,
        silent_wall_ms=0,
        silence_noted_ms=0,
        held_from_wall_ms=0,
        lost_ms=at_ms,
        lost_alone=not effect.reason and state.evictions is None,
        flaps=effect.flaps,
        rests_until_ms=effect.rests_until_ms,
    )
    _speaks(state, node)


def node_failures(state: CellState, effect: e.NodeFailures, at_ms: int) -> None:
    """Other jobs than before failed on a node in a row."""
    node = node_of(state, effect.node)
    count = len(effect.jobs)
    tenants, failed_ms = effect.tenants or ("",) * count, effect.failed_ms or (at_ms,) * count
    by_node = effect.by_node or (False,) * count
    require(
        len(tenants) == len(failed_ms) == len(by_node) == count,
        f"{count} jobs failed on node {node.id}, each of a tenant, once and by one fault",
    )
    row = (effect.jobs, tenants, failed_ms, by_node)
    known = (node.failed_jobs, node.failed_tenants, node.failed_ms, node.failed_by_node)
    require(row != known, f"these jobs in a row failed on node {node.id} already")
    change_node(
        state, node, failed_jobs=effect.jobs, failed_tenants=tenants, failed_ms=failed_ms, failed_by_node=by_node
    )


def node_silent(state: CellState, effect: e.NodeSilent, at_ms: int) -> None:
    """A node is silent, and for so long."""
    node = node_of(state, effect.node)
    require(node.boot == effect.boot, f"node {node.id} is in boot {node.boot}, not {effect.boot}")
    require(node.status is not NodeStatus.LOST, f"node {node.id} is lost already")
    require(
        effect.silent_wall_ms > node.silent_wall_ms, f"node {node.id} is silent for {node.silent_wall_ms} ms already"
    )
    change_node(
        state,
        node,
        silent_wall_ms=effect.silent_wall_ms,
        silence_noted_ms=at_ms,
        held_from_wall_ms=effect.held_wall_ms,
    )
    state.undo_log.put(state.silent, node.id, None)


def node_heard(state: CellState, effect: e.NodeHeard, at_ms: int) -> None:
    """A silent node speaks."""
    node = node_of(state, effect.node)
    require(node.silent_wall_ms > 0, f"node {node.id} was not silent")
    change_node(state, node, silent_wall_ms=0, silence_noted_ms=0, held_from_wall_ms=0)
    if effect.flaps:
        change_node(state, node, flaps=effect.flaps, rests_until_ms=effect.rests_until_ms)
    _speaks(state, node)


def node_removed(state: CellState, effect: e.NodeRemoved, at_ms: int) -> None:
    """A lost node is forgotten."""
    node = node_of(state, effect.node)
    require(node.status is NodeStatus.LOST, f"node {node.id} is {node.status}, not lost")
    require(not node.is_used, f"places on node {node.id} are still held")
    require(node.loan is None, f"node {node.id} is lent")
    leave_pool(state, node)
    state.undo_log.drop(state.nodes, node.id)
    if node.id in state.offers:
        state.undo_log.drop(state.offers, node.id)
    if node.id in state.maintenance_starts:
        state.undo_log.drop(state.maintenance_starts, node.id)


def evictions_held(state: CellState, effect: e.EvictionsHeld, at_ms: int) -> None:
    """Too many nodes are silent."""
    state.undo_log.set(state, "evictions", effect)


def evictions_resumed(state: CellState, effect: e.EvictionsResumed, at_ms: int) -> None:
    """Few nodes are silent."""
    require(state.evictions is not None, "no node was kept from being declared lost")
    state.undo_log.set(state, "evictions", None)


def _speaks(state: CellState, node: Node) -> None:
    if node.id in state.silent:
        state.undo_log.drop(state.silent, node.id)


def node_lent(state: CellState, effect: e.NodeLent, at_ms: int) -> None:
    """An idle inference node works for another pool."""
    node = node_of(state, effect.node)
    require(node.spec.role is NodeRole.INFERENCE, f"node {node.id} is no inference node")
    require(node.loan_status is LoanStatus.HOME, f"node {node.id} is lent already")
    require(not node.is_used, f"node {node.id} is in use at home")
    leave_pool(state, node)
    change_node(
        state,
        node,
        loan=effect.loan,
        loan_status=LoanStatus.LENT,
        lent_to=effect.to_pool,
        loan_deadline_ms=effect.deadline_ms,
    )
    enter_pool(state, node)


def node_loan_draining(state: CellState, effect: e.NodeLoanDraining, at_ms: int) -> None:
    """A lent node takes nothing new."""
    node = node_of(state, effect.node)
    require(node.loan == effect.loan, f"node {node.id} is not part of loan {effect.loan}")
    require(node.loan_status is LoanStatus.LENT, f"node {node.id} is not lent")
    change_node(state, node, loan_status=LoanStatus.DRAINING, loan_deadline_ms=effect.deadline_ms)


def node_reclaimed(state: CellState, effect: e.NodeReclaimed, at_ms: int) -> None:
    """A node is back at home."""
    node = node_of(state, effect.node)
    require(node.loan == effect.loan, f"node {node.id} is not part of loan {effect.loan}")
    require(not node.is_used, f"node {node.id} is still in use")
    leave_pool(state, node)
    change_node(state, node, loan=None, loan_status=LoanStatus.HOME, lent_to=None, loan_deadline_ms=None)
    enter_pool(state, node)


def quota_set(state: CellState, effect: e.QuotaSet, at_ms: int) -> None:
    """A tenant has another quota. Nobody is evicted."""
    why = contradiction(state.quotas, effect.quota)
    require(why is None, f"quota of {effect.quota.tenant}: {why}")
    set_quota(state.undo_log, state.tree, effect.quota)
    account = (effect.quota.tenant, effect.quota.gpu_type)
    if effect.of_file or account in state.quotas_of_file:
        state.undo_log.put(state.quotas_of_file, account, effect.of_file)


def quota_removed(state: CellState, effect: e.QuotaRemoved, at_ms: int) -> None:
    """A tenant without use, and without others below it, has no quota of this GPU type any more."""
    account = (effect.tenant, effect.gpu_type)
    require(account in state.quotas, f"tenant {effect.tenant} has no quota of {effect.gpu_type}")
    require(account not in state.usage, f"tenant {effect.tenant} uses {effect.gpu_type}")
    below = state.tree.index.children.get(account, 0)
    require(not below, f"tenant {effect.tenant} is the parent of {below} others")
    remove_quota(state.undo_log, state.tree, account)
    if account in state.quotas_of_file:
        state.undo_log.forget(state.quotas_of_file, account)


def cell_file_set(state: CellState, effect: e.CellFileSet, at_ms: int) -> None:
    """The cell goes by another cell file. What of it counts for the fold stands in effects of its own."""
    state.undo_log.set(state, "cell_file", effect)
    state.undo_log.set(state, "cell_files", state.cell_files + 1)


def policy_set(state: CellState, effect: e.PolicySet, at_ms: int) -> None:
    """The cell decides by other numbers, or knows by which leases its nodes go."""
    longest_ms = effect.longest_patience_ms or longest_with(state, effect.policy)
    state.undo_log.set(state, "longest_named_ms", longest_named_with(state, effect.policy))
    state.undo_log.set(state, "longest_patience_ms", longest_ms if longest_ms > patience_ms(effect.policy) else 0)
    state.undo_log.set(state, "policy", effect.policy)
    if effect.policy.estimator is not EstimatorKind.LEARNED:
        forget_all(state, state.undo_log)
    go_by(state, effect.policy.max_unacknowledged_starts_per_node)


def input_resumed(state: CellState, effect: e.InputResumed, at_ms: int) -> None:
    """An input is read on from elsewhere; which record stands before that is not known."""
    _move_input(state, effect, None)
    resume = (effect.input, effect.from_offset, effect.to_offset)
    state.undo_log.put(state.input_resumes, resume, state.input_resumes.get(resume, 0) + 1)


def input_fenced(state: CellState, effect: e.InputFenced, at_ms: int) -> None:
    """An input counts as read to a place that its topic does not continue."""
    _move_input(state, effect, effect.checksum)


def _move_input(state: CellState, effect: e.InputResumed | e.InputFenced, checksum: int | None) -> None:
    at = state.inputs.get(effect.input, 0)
    require(at == effect.from_offset, f"input {effect.input} was read to {at}, not to {effect.from_offset}")
    state.undo_log.put(state.inputs, effect.input, effect.to_offset)
    if checksum is not None:
        state.undo_log.put(state.input_checksums, effect.input, checksum)
    elif effect.input in state.input_checksums:
        state.undo_log.drop(state.input_checksums, effect.input)
