"""What an agent has of the machine on which it runs: what the node offers, a state folder, files, and a driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fallow.services.executor.files import DiskFiles, Files
from fallow.services.executor.node_registration import home_of, offer_of
from fallow.services.executor.policy.lease import KeptLease
from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.services.executor.policy.worker_environment import Gang
from fallow.services.executor.processes.driver import ProcessDriver
from fallow.services.executor.processes.folders.state_folder import StateFolder
from fallow.services.executor.processes.isolation import Isolation, Limits, not_held
from fallow.services.executor.processes.supervisor import can_keep_from_other_processes
from fallow.services.executor.processes.worker_users import CLAIMS, WorkerUsers
from fallow.services.executor.settings import AgentSettings, uids_of
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import NodeSpec


class State(Protocol):
    """What of a node outlives its agent: its boot, and that only one agent at a time looks after it."""

    def boot(self) -> str | None:
        """The node's boot, if it has begun since the machine's kernel did."""

    def has_begun(self, boot: str) -> bool:
        """Whether an agent with this state began that boot, before or since the kernel did."""

    def new_boot(self) -> str:
        """Begin a new boot, whose name is never the same again."""

    def close(self) -> None:
        """Let another agent have it."""


class Driver(Protocol):
    """The runs of one node. They live on when the agent ends, as long as the lease allows."""

    def keep_lease(self, renewed_ms: int, until_ms: int) -> None:
        """Let the workers live until `until_ms`; both times are monotonic. Raises OSError."""

    def kept_lease(self) -> KeptLease | None:
        """The lease that an agent before this one has kept, if there was one."""

    def start(self, order: Start, gang: Gang | None) -> Observation | None:
        """Begin the workers of a run, or go on with them; what is wrong with it, or None. Starts nothing twice."""

    def stop(self, order: Stop) -> Observation | None:
        """Ask a run to end within its grace. STOPPED at once where nothing of it is here."""

    def show_world(self, job: str, attempt: int, gang: Gang | None) -> None:
        """Let the attempt's workers here see who the others are now."""

    def look(self) -> list[Observation]:
        """What has become of the runs since the last look."""

    async def next_look(self) -> None:
        """Wait until something may have become of a run, or the lease and the reports are to be looked at."""

    def stop_everything(self) -> bool:
        """End whatever an earlier boot left here, at once. Whether nothing is left; else ask again."""

    def close(self) -> None:
        """Let go of the node; its workers go on."""


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """The machine as the node `spec` of this cell."""

    cell: str
    spec: NodeSpec
    state: State
    files: Files
    driver: Driver
    not_held: tuple[str, ...] = ()
    """The guarantees about its workers that do not hold here."""


FindMachine = Callable[[AgentSettings, CellFile], OwnMachine]


def own_machine(settings: AgentSettings, file: CellFile) -> OwnMachine:
    """The machine itself. Raises WrongOffer, StateFolderInUse, StateFolderUnusable, FolderOfAnotherFormat,
    WorkerUsersUnusable, OSError.
    """
    cell, pool = home_of(file, settings.node_pool)
    spec = offer_of(
        settings.node,
        pool,
        settings.node_gpus,
        settings.node_labels,
        settings.node_taints,
        settings.node_islands,
        settings.node_nics,
    )
    return as_node(settings, cell.name, spec, StateFolder(settings.state_dir, settings.node))


def as_node(
    settings: AgentSettings, cell: str, spec: NodeSpec, folder: StateFolder, claims: Path = CLAIMS
) -> OwnMachine:
    """The machine as this node, with what stands in the state folder. Raises StateFolderUnusable, WorkerUsersUnusable,
    OSError.
    """
    users = None
    if settings.worker_uids:
        os.umask(0o077)  # whatever the agent writes from now on is nothing to workers, which go through its folder
        users = WorkerUsers(folder.path, uids_of(settings.worker_uids), claims)
    limits = Limits(settings.worker_open_files, settings.worker_processes, settings.worker_log_mib)
    isolation = Isolation(users, can_keep_from_other_processes(), limits)
    driver = ProcessDriver(
        spec.id, folder.path, inherited=os.environ, keep_runs=settings.keep_runs, isolation=isolation
    )
    lacking = not_held(isolation, is_root=os.geteuid() == 0, controllers=driver.controllers)
    return OwnMachine(cell, spec, folder, DiskFiles(folder.path), driver, lacking)
