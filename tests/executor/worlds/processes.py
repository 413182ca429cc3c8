"""A process driver in a folder of its own, and what tests do with it: small shell programs as jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.services.executor.policy.worker_environment import Gang
from fallow.services.executor.processes.driver import BEGIN_MS, ProcessDriver
from fallow.services.executor.processes.isolation import NO_LIMITS, Isolation, Limits
from fallow.services.executor.processes.supervisor import marked, monotonic_ms, processes
from fallow.services.executor.processes.worker_users import WorkerUsers
from fallow.shared.events.fields.values import ProcessRun, Run, WorkerPlace
from tests.contract.eventually import eventually

NODE = "node-1"
HOUR_MS = 3_600_000


@dataclass
class Machine:
    """A node's state folder with the driver that is there now. With `uids` workers have users of their own. `scoped`:
    the kernel keeps them from other processes. `searches` of the whole machine were made so far.
    """

    folder: Path
    lease_ms: int = HOUR_MS
    in_groups: bool = True
    begin_ms: int = BEGIN_MS
    uids: range | None = None
    scoped: bool = False
    limits: Limits = NO_LIMITS
    searches: int = 0
    former: list[ProcessDriver] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart_agent()
        self.driver.keep_lease(monotonic_ms(), monotonic_ms() + self.lease_ms)

    def restart_agent(self) -> None:
        """Another driver, which knows nothing but the folder."""
        for driver in self.former:
            driver._beginning.clear()  # an agent that is gone begins nothing
        inherited = {"PATH": "/usr/bin:/bin", "FALLOW_REDIS": "secret"}
        users = None
        if self.uids is not None:
            users = WorkerUsers(self.folder, self.uids, self.folder.with_name("claims"))
        self.driver = ProcessDriver(
            NODE,
            self.folder,
            inherited=inherited,
            isolation=Isolation(users, self.scoped, self.limits),
            begin_ms=self.begin_ms,
            listed=self._listed,
        )
        self.former.append(self.driver)
        if not self.in_groups:
            self.driver.close()
            self.driver._groups = None

    def _listed(self) -> list[int]:
        self.searches += 1
        return processes()

    def start(self, *scripts: str, job: str = "job-1", attempt: int = 1) -> None:
        """One worker for each script."""
        if len(set(scripts)) == 1:
            return self.start_run(ProcessRun(argv=("sh", "-c", scripts[0])), len(scripts), job, attempt)
        cases = "".join(f"{rank}) {script};; " for rank, script in enumerate(scripts))
        return self.start_run(
            ProcessRun(argv=("sh", "-c", f'case "$RANK" in {cases} esac')), len(scripts), job, attempt
        )

    def start_run(
        self, run: Run, workers: int = 1, job: str = "job-1", attempt: int = 1, *, started_ms: int = 0
    ) -> None:
        places = tuple(WorkerPlace(rank=n, node=NODE, devices=(n,), gpu_milli=1000) for n in range(workers))
        gang = Gang(workers, (NODE,), "127.0.0.1", 20_000)
        self.told(self.driver.start(Start(NODE, job, attempt, places, run, started_ms), gang))

    def stop(self, grace_ms: int, job: str = "job-1", attempt: int = 1) -> None:
        self.told(self.driver.stop(Stop(NODE, job, attempt, grace_ms)))

    def told(self, observation: Observation | None) -> None:
        self.seen += [] if observation is None else [observation]

    async def until(self, *statuses: str, wait_s: float = 15) -> Observation:
        """Look until the runs have been seen in just these states, in this order; the last."""
        async with asyncio.timeout(wait_s):
            while [observation.status.value for observation in self.seen] != list(statuses):
                assert len(self.seen) <= len(statuses), self.seen
                await asyncio.sleep(0.02)
                self.seen += self.driver.look()
        return self.seen[-1]

    def path(self, name: str, rank: int = 0, job: str = "job-1", attempt: int = 1) -> Path:
        return self.folder / "runs" / job / str(attempt) / str(rank) / name

    def out(self, rank: int = 0, job: str = "job-1", attempt: int = 1) -> list[str]:
        return self.path("stdout", rank, job, attempt).read_text().splitlines()

    async def says(self, line: str, rank: int = 0, wait_s: float = 15) -> None:
        """Wait until a worker has said this."""
        await eventually(lambda: self.path("stdout", rank).exists() and line in self.out(rank), wait_s)

    def alive(self) -> Sequence[int]:
        """The processes of this machine's workers, however well they hid."""
        return marked(f"{self.driver._mark}/")

    def supervisor(self, rank: int = 0) -> int:
        return int(self.path("supervisor", rank).read_text().split()[0])

    async def end(self) -> None:
        """Leave nothing behind."""
        await eventually(self.driver.stop_everything)
        for driver in self.former:
            await eventually(lambda driver=driver: not driver.look() and not driver._ending)  # type: ignore[misc]
            driver.close()
            # The next remover of the machine's folder must not meet the thread that removes some of it.
            await eventually(lambda driver=driver: not driver._remover._is_at_work)  # type: ignore[misc]
