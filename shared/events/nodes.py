"""Topic `nodes`: what nodes say of themselves and of the runs on them. Written by executors, read by placement.

Each record names the node's boot and a sequence number, which grows over boots too (a microsecond of the wall clock
each): a record of an earlier boot, or one that is older than the newest seen, is ignored, and one whose number is above
`seq_max` of its stamp is refused. So the numbers of an agent must be above all that readers have taken of the agents
of its node before it, whatever the clock of its machine says, said or will say. They are, by three rules:

1. It begins above the begin of the agent before it, which it keeps on its disk, by more than that one has said; and no
   earlier than `SEQ_LEAD_WALL_MS` ahead of its clock. It never goes back by its clock, which may be wrong itself.
2. Numbers that are behind a stamp go on at it (`seq_least`). The agent before it did so, too: at earlier stamps.
3. Numbers above `seq_max` of a stamp begin anew at that: no reader has taken a larger one by then.

What an agent said before the first stamp that it knows may be unheard by every reader if that stamp is ahead, or above
`seq_max` at any time. The agent then says it again.

A *run* is the workers of one attempt of one job on one node; of a job that is no gang it is one worker, named by `rank`
and `turn`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fallow.shared.events.base import LANGUAGE, Attempt, CellEvent, Count, JobId, Millis, NodeId, Text, Value
from fallow.shared.events.fields.values import NodeSpec, ObservedRun, RunStatus

RUN_WORDS_MAX = 1_000
"""So many words of runs fit into one record."""

REPORTS_MAX = 1_000
"""So many nodes' reports fit into one record."""

SEQ_PER_MS = 1_000
"""So many sequence numbers belong to each millisecond of the wall clock."""

SEQ_AHEAD_WALL_MS = 86_400_000
"""So far may sequence numbers be ahead of the broker's clock: a day, which is more than a clock is wrong that takes the
time of its place for UTC (14 hours).
"""

SEQ_LEAD_WALL_MS = 60_000
"""An agent begins its numbers so far ahead of its clock: where that is right, the stamp of its first words, which it
says some seconds later, is not ahead of them.
"""


def seq_max(stamped_ms: int) -> int:
    """The largest sequence number that a word may have in a record that the broker stamped with this wall time."""
    return (stamped_ms + SEQ_AHEAD_WALL_MS) * SEQ_PER_MS


def seq_least(stamped_ms: int) -> int:
    """The number of this wall time: what an agent says once it knows of the stamp has no smaller one."""
    return stamped_ms * SEQ_PER_MS


class NodeEvent(CellEvent):
    """A record of one boot of one node, written at cell time `at_ms` (a stepped clock goes by it)."""

    node: NodeId
    boot: NodeId
    seq: Count
    at_ms: Millis = 0

    def key(self) -> str:
        """The node."""
        return self.node


class LivingNode(NodeEvent):
    """A record that renews its node's lease, and tells by which one the node goes from here on: it holds until it has
    run out, whatever the cell's policy says by then. A `node_lease_wall_ms` of 0 tells nothing (an older release).
    """

    node_lease_wall_ms: Count = 0
    lease_margin_wall_ms: Count = 0


class NodeJoined(LivingNode, type=f"fallow.node.joined.{LANGUAGE}", topic="nodes"):
    """A node offers itself, new or after a boot. Nothing runs on it."""

    spec: NodeSpec


class NodeReport(LivingNode, type=f"fallow.node.report.{LANGUAGE}", topic="nodes"):
    """The node lives; it renews its lease and tells every run that it has, and its failed devices. With `partial` it
    tells some of the runs, because one record would not hold them all; others of its reports tell the others.
    """

    names_only_known: ClassVar[bool] = True
    observed: tuple[ObservedRun, ...] = ()
    failed_devices: tuple[Count, ...] = ()
    desired_version: Count = 0
    partial: bool = False


class NodeLost(NodeEvent, type=f"fallow.node.lost.{LANGUAGE}", topic="nodes"):
    """A power controller, a health system or an operator says that the node is gone."""

    reason: Text = ""


class NodeReturned(LivingNode, type=f"fallow.node.returned.{LANGUAGE}", topic="nodes"):
    """A node that was silent is back in the same boot, with these runs still there; with `partial`, and with
    more that its next reports tell.
    """

    names_only_known: ClassVar[bool] = True
    observed: tuple[ObservedRun, ...] = ()
    partial: bool = False


class DeviceFailed(NodeEvent, type=f"fallow.device.failed.{LANGUAGE}", topic="nodes"):
    """One GPU is unusable."""

    device: Count
    reason: Text = ""


class RunEvent(NodeEvent):
    """A record of one run."""

    names_only_known: ClassVar[bool] = True
    job: JobId
    attempt: Attempt
    rank: Count | None = None
    turn: Count = 0


class RunStarted(RunEvent, type=f"fallow.run.started.{LANGUAGE}", topic="nodes"):
    """All workers of the run have started."""


class RunProgressed(RunEvent, type=f"fallow.run.progressed.{LANGUAGE}", topic="nodes"):
    """The run tells how far it is, in thousandths, and when its last checkpoint was."""

    progress_milli: Count
    checkpoint_ms: Count | None = None


class RunStopped(RunEvent, type=f"fallow.run.stopped.{LANGUAGE}", topic="nodes"):
    """The run was told to stop and nothing of it is left."""


class RunFinished(RunEvent, type=f"fallow.run.finished.{LANGUAGE}", topic="nodes"):
    """All workers of the run ended well."""


class RunFailed(RunEvent, type=f"fallow.run.failed.{LANGUAGE}", topic="nodes"):
    """A worker of the run failed, and nothing of the run is left. `infrastructure`: the node's fault, not the job's."""

    exit_code: int | None = None
    infrastructure: bool = False
    text: Text = ""


class RunStatusUpdate(Value):
    """What one node says of one run: the content of `RunStarted` (running), `RunFinished`, `RunStopped` or
    `RunFailed`.
    """

    node: NodeId
    boot: NodeId
    seq: Count
    at_ms: Millis = 0
    job: JobId
    attempt: Attempt
    status: RunStatus
    exit_code: int | None = None
    infrastructure: bool = False
    text: Text = ""
    rank: Count | None = None
    turn: Count = 0


class RunsReported(CellEvent, type=f"fallow.runs.reported.{LANGUAGE}", topic="nodes"):
    """What several nodes of one executor said at nearly the same time, in the order in which they said it.

    It means the same as a record for each word. One record for many costs everybody who reads it far less.
    """

    names_only_known: ClassVar[bool] = True
    words: Annotated[tuple[RunStatusUpdate, ...], Meta(min_length=1, max_length=RUN_WORDS_MAX)]


class NodesReported(CellEvent, type=f"fallow.nodes.reported.{LANGUAGE}", topic="nodes"):
    """The reports of several nodes of one executor, each node's own but for the record."""

    names_only_known: ClassVar[bool] = True
    reports: Annotated[tuple[NodeReport, ...], Meta(min_length=1, max_length=REPORTS_MAX)]
