"""Chaos on real parts: `python -m tests.chaos.run [--kills N] [--brokers 3] [--seconds S] [--seed N] [--json]`.

Every service runs twice where it can, on a Kafka and a Valkey of their own, with two node agents that start real
processes, while one mishap follows the other. Then everything comes to rest, and the checker judges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fallow.shared.log.follower import Follower
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.choose import choose_redis
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars
from fallow.shared.runtime.stack.server import Server
from fallow.shared.runtime.stack.services import Services
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewUnavailable
from fallow.simulator.history.evidence import View
from fallow.simulator.history.judge import judge
from tests.chaos.brokers import BROKERS, BrokerMishaps, Brokers
from tests.chaos.clients import Submitter, Watcher
from tests.chaos.mishaps import Mishaps
from tests.chaos.witness import doubled, evidence_of, longest_gap_s, records, whole_view
from tests.e2e.jobs.test_process_jobs import an_agent
from tests.e2e.worlds.running_cell import CELL, RunningCell, running_cell

CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools:
      - {name: training, gpus: 1024, gpus_per_node: 8}
      - {name: machines, gpus: 8, gpus_per_node: 2, driver: process}
    policy:
      {node_lease_wall_ms: 20000, lease_margin_wall_ms: 4000, start_timeout_wall_ms: 20000, stop_grace_wall_ms: 4000}
tenants:
  - {name: vision, pools: [training, machines]}
"""
REPLICAS = {"admission": 2, "queueing": 2, "placement": 2, "executor": 2, "projector": 2}
NODES = 12
WARM_S = 3.0
DRAIN_WAIT_S = 120.0
VIEW_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    body: dict[str, object]
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The real parts of one run: the servers, and where clients find them."""

    kafka: KafkaFromJars | Brokers
    redis: Server

    @property
    def copies(self) -> int:
        """How many brokers keep each record."""
        return BROKERS if isinstance(self.kafka, Brokers) else 1


class Harm(Protocol):
    """Something that goes on going wrong until it is over; all parts run again when `run` returns."""

    seed: int
    kills: Counter[str]
    others: Counter[str]

    async def run(self) -> None:
        """Do it."""


def parts_in(folder: Path, brokers: int = 1) -> Parts:
    """Servers of the run's own, not started yet."""
    kafka = Brokers(folder / "kafka") if brokers == BROKERS else KafkaFromJars(folder / "kafka")
    return Parts(kafka, choose_redis(folder / "redis").server)


def mishaps(parts: Parts, services: Services, namespace: str, seed: int, is_over: Callable[[int], bool]) -> Mishaps:
    """What goes wrong with these parts."""
    if not isinstance(parts.kafka, Brokers):
        return Mishaps(services, parts.kafka, parts.redis, seed, is_over)
    tp = (f"{namespace}.decisions", 0)
    return BrokerMishaps(services, parts.kafka, parts.redis, seed, is_over, brokers=parts.kafka, tp=tp)


async def chaos(
    folder: Path,
    namespace: str,
    parts: Parts,
    harm_of: Callable[[Services], Harm],
    addresses: tuple[str, str] | None = None,
) -> Outcome:
    """One run: a cell, its users, harm, rest, judgement. `addresses` are those of Kafka and Redis where links lead."""
    kafka, redis = addresses or (parts.kafka.address, parts.redis.address)
    async with AsyncExitStack() as stack:
        for server in (parts.kafka, parts.redis):
            await asyncio.to_thread(server.start)
            stack.callback(server.stop)
        agents = [an_agent(folder, name) for name in ("machine-a", "machine-b")]
        cell = await stack.enter_async_context(
            running_cell(
                kafka,
                redis,
                namespace,
                folder,
                nodes=NODES,
                replicas=REPLICAS,
                cell_file=CELL_FILE,
                beside=agents,
                copies=parts.copies,
            )
        )
        await cell.until(lambda c: len(c.state.nodes) == NODES + 2, what="all nodes to join")
        # From here on it is read once more at the end, when all is quiet.
        await cell.follower.stop()
        view = RedisFunctions(redis)
        stack.push_async_callback(view.stop)
        return await _judged(cell, ViewReader(view, namespace), harm_of(cell.services))


async def _judged(cell: RunningCell, reader: ViewReader, harm: Harm) -> Outcome:
    submitter = Submitter(cell.log, cell.layout, harm.seed)
    watcher = Watcher(reader, submitter, harm.seed)
    stop, begin_ms = asyncio.Event(), wall_ms()
    users = [asyncio.create_task(submitter.run(stop)), asyncio.create_task(watcher.run(stop))]
    await asyncio.sleep(WARM_S)
    await harm.run()
    end_ms = wall_ms()
    stop.set()
    await asyncio.gather(*users)
    await cell.services.wait_ready()
    drained_s = await _drain(cell, submitter)
    whole = await _view(reader, cell)
    found = judge(await evidence_of(cell, submitter.wishes, watcher.readings, whole))
    log = await records(cell.log, cell.layout.tp("decisions", CELL))
    state = cell.state
    lost = [job for job in submitter.jobs if job not in state.finished]
    return Outcome(
        {
            "seed": harm.seed,
            "kills": harm.kills.total(),
            "kills_by_process": dict(sorted(harm.kills.items())),
            "others": dict(sorted(harm.others.items())),
            "jobs": len(submitter.jobs),
            "lost": len(lost),
            "doubled": len(doubled(cell.decisions)),
            "view_answers": len(watcher.readings),
            "view_refusals": watcher.refusals,
            "longest_s_without_a_decision": longest_gap_s(log, begin_ms, end_ms),
            "drain_s": round(drained_s, 1),
            "seconds": round((end_ms - begin_ms) / 1000),
            "violations": len(found),
        },
        tuple(map(str, found)) + tuple(f"lost: {job}" for job in lost) + tuple(map(str, cell.problems())),
    )


async def _drain(cell: RunningCell, submitter: Submitter) -> float:
    """Until every job is over, by a fold from the log's beginning."""
    cell.follower = Follower(cell.log, cell.layout, CELL, snapshots=False)
    cell.decisions.clear()
    begin_s = time.monotonic()
    while True:
        try:
            await cell.follower.start()
            return await cell.until(
                lambda c: all(job in c.state.finished for job in submitter.jobs), what="the end", wait_s=DRAIN_WAIT_S
            )
        except LogUnavailable:
            await asyncio.sleep(1)
            if time.monotonic() - begin_s > DRAIN_WAIT_S:
                raise


async def _view(reader: ViewReader, cell: RunningCell) -> View:
    begin_s = time.monotonic()
    while True:
        try:
            return await whole_view(reader, cell.state.version)
        except (NoSuchCell, ViewRebuilding, ViewBehind, ViewUnavailable):
            if time.monotonic() - begin_s > VIEW_WAIT_S:
                raise
            await asyncio.sleep(0.2)


def main() -> int:
    """Run it, print what came of it, and say by the exit code whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, BROKERS), help="how many brokers keep the log")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after so long, whatever the kills")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    # That servers are away is what happens here: their clients would say so thousands of times.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    end_s = time.monotonic() + wanted.seconds

    def is_over(kills: int) -> bool:
        return kills >= int(wanted.kills) or time.monotonic() > end_s

    with (
        tempfile.TemporaryDirectory(prefix="fallow-chaos-") as folder,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        parts, namespace = parts_in(Path(folder), wanted.brokers), f"chaos-{wanted.seed}"
        outcome = runner.run(
            chaos(
                Path(folder),
                namespace,
                parts,
                lambda services: mishaps(parts, services, namespace, wanted.seed, is_over),
            )
        )
    sys.stderr.write("".join(f"{line}\n" for line in outcome.violations))
    text = json.dumps(outcome.body) if wanted.json else "\n".join(f"{k}: {v}" for k, v in outcome.body.items())
    sys.stdout.write(text + "\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
