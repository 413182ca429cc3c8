"""Why something was refused, stopped, deferred or failed: codes that programs may rely on."""

from __future__ import annotations

from enum import StrEnum


class RejectCode(StrEnum):
    """Why admission turned a command away: what would be true at any time, whatever the cluster does."""

    INVALID_FIELD = "invalid_field"
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_CELL = "unknown_cell"
    UNKNOWN_QUEUE = "unknown_queue"
    UNKNOWN_GPU_TYPE = "unknown_gpu_type"
    CELL_NEEDED = "cell_needed"
    POOL_NOT_ALLOWED = "pool_not_allowed"
    POOLS_IN_SEVERAL_CELLS = "pools_in_several_cells"
    TENANT_NOT_OF_TOPIC = "tenant_not_of_topic"
    LARGER_THAN_POOL = "larger_than_pool"
    OVER_TENANT_LIMIT = "over_tenant_limit"
    OVER_JOB_LIMIT = "over_job_limit"
    SUBMIT_TIME_TOO_FAR = "submit_time_too_far"
    NOT_BEFORE_TOO_FAR = "not_before_too_far"
    TOO_LARGE = "too_large"
    TOO_MANY_SUBMISSIONS = "too_many_submissions"
    UNKNOWN_VERSION = "unknown_version"
    UNSUPPORTED = "unsupported"


class RefuseCode(StrEnum):
    """Why placement refused a request: what only the cell's state could tell."""

    ID_USED_BEFORE = "id_used_before"
    UNKNOWN_JOB = "unknown_job"
    NOT_THE_TENANTS_JOB = "not_the_tenants_job"
    ALREADY_OVER = "already_over"
    TOO_MANY_WAITING = "too_many_waiting"
    TENANT_HAS_TOO_MANY_WAITING = "tenant_has_too_many_waiting"
    UNSUPPORTED = "unsupported"
    WRONG_STATE = "wrong_state"
    UNKNOWN_NODE = "unknown_node"
    AFTER_ITSELF = "after_itself"
    AFTER_TOO_MANY = "after_too_many"
    SUBMISSION_TOO_OLD = "submission_too_old"
    REQUEST_TOO_OLD = "request_too_old"


class PendingReason(StrEnum):
    """Why a waiting job did not start in the cycle that last looked at it."""

    NO_FREE_GPUS = "no_free_gpus"
    FRAGMENTED = "fragmented"
    NO_SUCH_NODES = "no_such_nodes"
    QUOTA_REACHED = "quota_reached"
    BEHIND_HEAD = "behind_head"
    BACKOFF = "backoff"
    HELD = "held"
    TOPOLOGY = "topology"
    RESERVED_FOR_OTHER = "reserved_for_other"
    UNACKNOWLEDGED = "unacknowledged"
    AFTER = "after"
    NOT_BEFORE = "not_before"
    ARRAY_LIMIT = "array_limit"
    MAINTENANCE = "maintenance"
    NODES_SILENT = "nodes_silent"
    RECORD_TOO_LARGE = "record_too_large"
    MAKING_ROOM = "making_room"


class StopReason(StrEnum):
    """Why an attempt must stop."""

    CANCELLED = "cancelled"
    WORKER_FAILED = "worker_failed"
    START_TIMED_OUT = "start_timed_out"
    RUN_TIME_LIMIT = "run_time_limit"
    NODE_LOST = "node_lost"
    DEVICE_FAILED = "device_failed"
    DRAINED = "drained"
    PRIORITY = "priority"
    QUOTA_RECLAIM = "quota_reclaim"
    FAIR_SHARE = "fair_share"
    BACKFILL_TIMEOUT = "backfill_timeout"
    LOAN_RECLAIM = "loan_reclaim"
    MIGRATION = "migration"


class PreemptionCause(StrEnum):
    """By which rule jobs yield to one that waits. A record of a stop names it as a StopReason (`STOPPED_FOR`)."""

    PRIORITY = "priority"
    QUOTA_RECLAIM = "quota_reclaim"
    FAIR_SHARE = "fair_share"
    BACKFILL = "backfill"


STOPPED_FOR = {
    PreemptionCause.PRIORITY: StopReason.PRIORITY,
    PreemptionCause.QUOTA_RECLAIM: StopReason.QUOTA_RECLAIM,
    PreemptionCause.FAIR_SHARE: StopReason.FAIR_SHARE,
    PreemptionCause.BACKFILL: StopReason.BACKFILL_TIMEOUT,
}
"""Why a job is told to stop that yields for this cause."""


class FailReason(StrEnum):
    """Why a job failed for good."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    NODE_FAULTS = "node_faults"
    RUN_TIME_LIMIT = "run_time_limit"


class CancelReason(StrEnum):
    """Why a job was cancelled: its tenant wished so, or what it waited for did not come to the end that it needs."""

    ASKED = "asked"
    DEPENDENCY_FAILED = "dependency_failed"
    DEPENDENCY_UNKNOWN = "dependency_unknown"


class RequeueReason(StrEnum):
    """Why a job went back to its queue."""

    WORKER_FAILED = "worker_failed"
    INFRASTRUCTURE = "infrastructure"
    DRAINED = "drained"
    PREEMPTED = "preempted"
    START_TIMED_OUT = "start_timed_out"
    NO_WORKER_LEFT = "no_worker_left"


class ClearReason(StrEnum):
    """Why a reservation ended, or room is held no more."""

    STARTED = "started"
    REPLACED = "replaced"
    NODES_GONE = "nodes_gone"
    HELD = "held"
    LAPSED = "lapsed"


class ProposalCode(StrEnum):
    """Why a proposal was refused."""

    ATTEMPT_OVER = "attempt_over"
    BENEFICIARY_GONE = "beneficiary_gone"
    DOES_NOT_HELP = "does_not_help"
    NODE_CHANGED = "node_changed"
    NOT_ALLOWED = "not_allowed"
    ROOM_HELD = "room_held"
    TOO_MANY_VICTIMS = "too_many_victims"
    UNSUPPORTED = "unsupported"


class DeadLetterReason(StrEnum):
    """Why a record was set aside: it could not be answered, or what it is about is not known."""

    UNREADABLE = "unreadable"
    UNKNOWN_TYPE = "unknown_type"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    HANDLER_FAILED = "handler_failed"
    WRONG_CELL = "wrong_cell"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_POOL = "unknown_pool"
    NODE_NOT_ALLOWED = "node_not_allowed"
    SEQUENCE_TOO_FAR = "sequence_too_far"
    UNKNOWN_DEVICE = "unknown_device"
    LARGER_THAN_POOL = "larger_than_pool"
    TOO_MANY_NODES = "too_many_nodes"
    TOO_MANY_LABELS = "too_many_labels"
    UNWRITABLE = "unwritable"
