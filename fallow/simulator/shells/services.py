"""How the world runs each service: the main coroutine that ships, with settings of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fallow.services.admission.app import answering
from fallow.services.admission.settings import AdmissionSettings
from fallow.services.executor.app import agent, wiring
from fallow.services.executor.app.own_machine import OwnMachine
from fallow.services.executor.diaries import GROWN_BYTES, Diaries
from fallow.services.executor.processes.supervisor import must_end
from fallow.services.executor.settings import AgentSettings, ExecutorSettings
from fallow.services.metrics.app import wiring as metrics_app
from fallow.services.metrics.settings import MetricsSettings
from fallow.services.placement.app import appending, cell_writer, intake, writer
from fallow.services.placement.service import PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.services.projector import app as projector_app
from fallow.services.projector.settings import ProjectorSettings
from fallow.services.queueing import app as queueing_app
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.events.codec.encoding import decode
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.log.inputs.fenced_input import INPUT_FENCED
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.runtime.process import Context
from fallow.simulator.machine import Machine
from fallow.simulator.process import Process
from fallow.simulator.shells.files import WorldFiles
from fallow.simulator.shells.heard import Hears
from fallow.simulator.shells.machine import WorldDriver, WorldState
from fallow.simulator.shells.part import NAMESPACE, Shell
from fallow.simulator.shells.share import Sharing, WorldSubscription
from fallow.simulator.shells.view import WorldFunctions
from fallow.simulator.storage.broker import Message
from fallow.simulator.trouble.versions import word_by_word

if TYPE_CHECKING:
    from fallow.simulator.world import World

ADMISSION = AdmissionSettings.model_construct(namespace=NAMESPACE, batch_records=20)
"""The defaults, whatever stands in the environment."""

EXECUTOR = ExecutorSettings.model_construct(
    namespace=NAMESPACE,
    nodes_file=Path("nodes.jsonl"),
    data_dir=Path("data"),
    report_every_wall_ms=1_500,
    look_every_wall_ms=700,
)
"""Leases are short in a world, so nodes report often. The files are answered for below.

The rest are the defaults, whatever stands in the environment; so in all that follow."""

AGENT = AgentSettings.model_construct(
    namespace=NAMESPACE, node="", node_gpus=0, node_pool="", state_dir=Path("state"), report_every_wall_ms=1_500
)
"""Which node it is, the machine says."""

SLOTS = 4

GROWN_AT_BYTES = (1_000, 4_000, GROWN_BYTES)
"""When a diary has grown: often, at times, never."""

METRICS = MetricsSettings.model_construct(namespace=NAMESPACE)
PROJECTOR = ProjectorSettings.model_construct(namespace=NAMESPACE)

VERSIONS_FEWEST, VERSIONS_MAX = 12, 40
CHUNK_BYTES = 3_000
"""Snapshots come oftener than in production and in smaller records, so that a small state has several."""


def admission(_world: World, process: Process) -> Shell:
    """Its share of the submissions."""
    sharing = Sharing(process, NAMESPACE, ADMISSION.batch_records)

    def subscribing(
        _context: Context[AdmissionSettings], topics: Sequence[str], group: str, delivery: Delivery
    ) -> WorldSubscription:
        return sharing.subscription(topics, group, delivery)

    main = partial(answering.main, subscribing=subscribing)
    return Shell("admission", ADMISSION, main, closes=(sharing.close,), told=sharing.told)


def placement(world: World, process: Process) -> Shell:
    """Writer and standby of every cell. What it takes to be in force must be so."""
    hears: Hears = {
        appending.IN_FORCE: partial(world.believed, process),
        appending.FAILED: partial(world.poison.failed, process),
        appending.REFUSED: partial(world.poison.refused, process),
        intake.SET_ASIDE: world.poison.set_aside,
        INPUT_FENCED: world.person.fenced,
        cell_writer.CANNOT_WRITE: world.person.cannot_write,
    }
    key = SecretStr("" if world.impostor is None else world.impostor.rotation.writers_key)
    settings = PlacementSettings.model_construct(
        namespace=NAMESPACE,
        resume_inputs=world.person.resume_inputs(),
        begin_cells=world.person.begin_cells(),
        signing_key=key,
    )
    main = partial(writer.main, deciding=partial(PlacementService, walk=world.poison.walk))
    return Shell("placement", settings, main, hears)


def executor(world: World, process: Process) -> Shell:
    """The nodes of all cells, on a disk that all executors share."""
    files = WorldFiles(process, world.disk.folder)

    def keeping(_settings: ExecutorSettings, cell: str, slots: int) -> Diaries:
        return Diaries(files, cell, slots, world.grown_bytes)

    def watched(message: Message) -> None:
        if message.type == NodeJoined.type:
            event = decode(message.type, message.value)
            assert isinstance(event, NodeJoined), "as executors write it"
            world.disk.joined(event.node, event.boot)

    main = partial(wiring.main, loading=lambda _: world.nodes, keeping=keeping)
    return Shell("executor", EXECUTOR, main, closes=(files.end,), watched=watched, earlier=word_by_word)


def machine_of(world: World, cell: str, spec: NodeSpec) -> Machine:
    """A machine whose supervisors look at the lease as the real ones do."""
    return Machine(world, cell, spec, must_end)


def agent_of(machine: Machine, world: World, process: Process) -> Shell:
    """The agent of one machine. Where another speaks for the node, it begins again."""
    files, driver = WorldFiles(process, machine.folder), WorldDriver(process, machine)
    own = OwnMachine(machine.cell, machine.spec, WorldState(machine), files, driver)
    main = partial(agent.main, finding=lambda *_: own, grown_bytes=world.grown_bytes)
    return Shell("agent", AGENT, main, closes=(files.end, driver.end), ends=(agent.NodeTakenOver,))


def queueing(world: World, _process: Process) -> Shell:
    """The plans and the snapshots of the cells that it owns."""
    versions = world.engine.between(VERSIONS_FEWEST, VERSIONS_MAX)
    settings = QueueingSettings.model_construct(
        namespace=NAMESPACE, snapshot_versions=versions, snapshot_chunk_bytes=CHUNK_BYTES
    )
    # Snapshots are torn here though they are acknowledged: to delete what they cover would lose what must not be lost.
    return Shell("queueing", settings, partial(queueing_app.main, retention_ms_of=lambda _: None), {})


def projector(world: World, process: Process) -> Shell:
    """The views of the cells that it owns."""
    functions = WorldFunctions(world.redis, process.name)
    main = partial(projector_app.main, viewing=lambda _context: functions)
    return Shell("projector", PROJECTOR, main, {}, (functions.close,))


def metrics(world: World, process: Process) -> Shell:
    """The figures of every cell. What it finds broken is so."""

    def broken(cell: str, invariant: str, text: str, **_fields: object) -> None:
        world.violated(invariant, f"{process.name} sees in {cell}: {text}")

    return Shell("metrics", METRICS, metrics_app.main, {metrics_app.OFFENCE: broken})
