"""What a case expects, key by key: each gives the differences in words, none where all is as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fallow.shared.cluster.fold.fold import extend
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.min_run import min_run_ms
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import GPU
from fallow.simulator.cases.reasons import means
from fallow.simulator.cases.schema import NodeRow
from fallow.simulator.cases.setting import GPU_TYPE, S_MS
from fallow.simulator.cases.theatre import ORIGIN_MS, Theatre

Judge = Callable[[Theatre, Any], list[str]]


def _same(what: str, wanted: object, found: object) -> list[str]:
    return [] if wanted == found else [f"{what}: expected {_told(wanted)}, found {_told(found)}"]


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_told(each)}" for key, each in value.items()) or "nothing"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _out(theatre: Theatre, names: Sequence[str]) -> list[str]:
    return sorted(theatre.names.outside(name) for name in names)


def _job(theatre: Theatre, name: str) -> str:
    return theatre.names.inside("job", name)


def _queue(theatre: Theatre, job: str) -> str:
    return theatre.names.outside(theatre.queue_of[job])


def _running(theatre: Theatre, wanted: dict[str, tuple[str, ...]]) -> list[str]:
    """Exactly these jobs run, on these nodes or on others that are just like them."""
    found = {
        theatre.names.outside(job.id): [theatre.names.outside(place.node) for place in job.workers]
        for job in theatre.running().values()
    }
    if _loads(theatre, wanted) == _loads(theatre, found):
        return []
    return [f"running: expected {_on(wanted)}, found {_on(found)}"]


def _on(places: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{job} on {_told(sorted(nodes))}" for job, nodes in sorted(places.items())) or "nothing"


def _loads(theatre: Theatre, places: Mapping[str, Sequence[str]]) -> Counter[tuple[object, ...]]:
    """How often a node of each kind carries just these tasks. Equal where nodes of one kind may be exchanged."""
    tasks: dict[str, Counter[str]] = {row.name: Counter() for row in theatre.setting.case.cluster.nodes}
    for job, nodes in places.items():
        for node in nodes:
            tasks[node][job] += 1
    rows = theatre.setting.case.cluster.nodes
    return Counter((_kind(theatre, row), tuple(sorted(tasks[row.name].items()))) for row in rows)


def _kind(theatre: Theatre, row: NodeRow) -> tuple[object, ...]:
    """All that tells a node from others when the case begins."""
    at_first = tuple(sorted((r.job, r.nodes.count(row.name)) for r in theatre.setting.case.running))
    return (row.gpus, row.gpu_type, row.healthy, tuple(sorted(row.labels.items())), row.unacknowledged, at_first)


def _running_tasks(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    running = theatre.running()
    found = {name: len(job.workers) if (job := running.get(_job(theatre, name))) else 0 for name in wanted}
    return _same("running tasks", wanted, found)


def _running_count(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    tasks: Counter[str] = Counter()
    for job in theatre.running().values():
        tasks[_queue(theatre, job.id)] += len(job.workers)
    return _same("running tasks by queue", wanted, {queue: tasks[queue] for queue in wanted})


def _pending(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return _same("pending", sorted(wanted), _out(theatre, theatre.waiting()))


def _pending_tasks(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    running, found = theatre.running(), {}
    for name in wanted:
        job = theatre.state.jobs.get(_job(theatre, name))
        wants = job.spec.workers if job is not None else 0
        found[name] = wants - (len(job.workers) if job is not None and job.id in running else 0)
    return _same("waiting tasks", wanted, found)


def _pending_count(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    waiting = Counter(_queue(theatre, job) for job in theatre.waiting())
    return _same("waiting jobs by queue", wanted, {queue: waiting[queue] for queue in wanted})


def _started(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return _same("started", sorted(wanted), _out(theatre, [began.job for began in theatre.story.now.starts]))


def _deleted(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return _same("deleted", sorted(wanted), _out(theatre, list(theatre.story.now.over)))


def _atomic(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    short = []
    for name in wanted:
        job = theatre.running().get(_job(theatre, name))
        starts = [began for began in theatre.story.starts if began.job == _job(theatre, name)]
        if job is None or len(starts) != 1 or len(starts[0].nodes) != job.spec.workers:
            short.append(f"{name} did not start whole in one decision")
    return short


def _start_order_later(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    """Let all that runs end, what never ends by itself too, and look who started when."""
    theatre.advance(theatre.now_ms + 365 * 86_400_000)
    for name in wanted:
        if _job(theatre, name) in theatre.running():
            theatre.finish(_job(theatre, name))
    order = [theatre.names.outside(began.job) for began in theatre.story.starts]
    return _same("order of starts", list(wanted), [name for name in order if name in wanted])


def _preempted(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return _same("preempted", sorted(wanted), _out(theatre, list(theatre.story.now.preempted)))


def _preempted_any(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    gone = _out(theatre, list(theatre.story.now.preempted))
    return [] if any(name in wanted for name in gone) else [f"preempted: expected any of {_told(wanted)}"]


def _preempted_one_of(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    gone = [name for name in _out(theatre, list(theatre.story.now.preempted)) if name in wanted]
    return [] if len(gone) == 1 else [f"preempted: expected one of {_told(wanted)}, found {_told(gone)}"]


def _is_touched(theatre: Theatre, name: str) -> bool:
    return bool(theatre.story.now.evicted[_job(theatre, name)])


def _untouched(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return [f"{name} lost tasks" for name in wanted if _is_touched(theatre, name)]


def _untouched_one_of(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    left = [name for name in wanted if not _is_touched(theatre, name)]
    return [] if len(left) == 1 else [f"untouched: expected one of {_told(wanted)}, found {_told(left)}"]


def _preempted_from(theatre: Theatre, wanted: str) -> list[str]:
    return _same("queues that lost jobs", [wanted], sorted(_losses(theatre)))


def _losses(theatre: Theatre) -> Counter[str]:
    return Counter(_queue(theatre, job) for job in theatre.story.now.preempted)


def _preempted_by_queue(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    return _same("preempted by queue", wanted, dict(sorted(_losses(theatre).items())))


def _shrunk(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    return _same("shrunk", sorted(wanted), _out(theatre, list(theatre.story.now.shrunk)))


def _evicted_tasks(theatre: Theatre, wanted: int) -> list[str]:
    return _same("evicted tasks", wanted, theatre.story.now.evicted.total())


def _max_evictions(theatre: Theatre, wanted: int) -> list[str]:
    most = max(theatre.story.evictions.values(), default=0)
    return [] if most <= wanted else [f"a job was evicted {most} times, more than {wanted}"]


def _partial_gangs(theatre: Theatre, wanted: int) -> list[str]:
    found = [j.id for j in theatre.running().values() if len(j.workers) < (j.spec.workers_min or j.spec.workers)]
    return _same("gangs below their fewest tasks", wanted, len(found))


def _retries(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    jobs = theatre.state.jobs
    found = {name: jobs[_job(theatre, name)].failures if _job(theatre, name) in jobs else None for name in wanted}
    return _same("retries", wanted, found)


def _start_window(theatre: Theatre, wanted: dict[str, tuple[float, float]]) -> list[str]:
    wrong = []
    for name, (first, last) in wanted.items():
        starts = [began.at_ms for began in theatre.story.starts if began.job == _job(theatre, name)]
        if not starts or not first <= (starts[0] - ORIGIN_MS) // 1000 <= last:
            at = f"{(starts[0] - ORIGIN_MS) // 1000} s" if starts else "never"
            wrong.append(f"{name}: expected to start between {first:g} and {last:g} s, found {at}")
    return wrong


def _planned_start(theatre: Theatre, wanted: dict[str, float]) -> list[str]:
    """Since the expectation before, such a start was planned and could be seen."""
    wrong = []
    for name, at_s in wanted.items():
        plans = [(at_ms - ORIGIN_MS) // 1000 for at_ms in theatre.story.now.plans.get(_job(theatre, name), ())]
        if at_s not in plans:
            wrong.append(f"{name}: expected to be planned for {at_s:g} s, found {_told(plans)}")
    return wrong


def _reason_code(theatre: Theatre, wanted: str) -> list[str]:
    """Every waiting job waits for this reason, and at least one waits."""
    waiting = _out(theatre, theatre.waiting())
    return _reason_code_of(theatre, dict.fromkeys(waiting, wanted)) if waiting else ["reason: no job waits"]


def _reason_code_of(theatre: Theatre, wanted: dict[str, str]) -> list[str]:
    found = {name: theatre.reason(_job(theatre, name))[0] for name in wanted}
    return [
        f"reason of {name}: expected {word}, found {found[name] or 'none'}"
        for name, word in wanted.items()
        if not means(word, found[name])
    ]


def _reason_contains(theatre: Theatre, wanted: str) -> list[str]:
    told = [theatre.reason(job)[1] for job in theatre.waiting()]
    return [] if any(wanted in text for text in told) else [f"reason: expected {wanted!r} in it, found {_told(told)}"]


def _nodes_used(theatre: Theatre, wanted: tuple[str, ...]) -> list[str]:
    nodes = {place.node: None for job in theatre.running().values() for place in job.workers}
    return _same("nodes in use", sorted(wanted), _out(theatre, list(nodes)))


def _nodes_by_queue(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    nodes: dict[str, dict[str, None]] = {}
    for job in theatre.running().values():
        nodes.setdefault(_queue(theatre, job.id), {}).update(dict.fromkeys(place.node for place in job.workers))
    return _same("nodes in use by queue", wanted, {queue: len(nodes.get(queue, {})) for queue in wanted})


def _new_on(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    tasks = Counter(theatre.names.outside(node) for began in theatre.story.now.starts for node in began.nodes)
    return _same("tasks started by node", wanted, {node: tasks[node] for node in wanted})


def _gpus_held(theatre: Theatre, wanted: int) -> list[str]:
    held = sum(pool.allocated_milli for pool in theatre.state.pools.values())
    return _same("GPUs held", wanted, held // GPU)


def _overcommit(theatre: Theatre, wanted: int) -> list[str]:
    return _same("GPUs above capacity", wanted, -(-theatre.story.overcommit_milli // GPU))


def _verdict_within(theatre: Theatre, wanted: float) -> list[str]:
    spent_s = theatre.verdict_wall_s
    return [] if spent_s <= wanted else [f"the verdict took {spent_s:.3f} s, more than {wanted:g} s"]


def _migrated(theatre: Theatre, wanted: int) -> list[str]:
    return _same("moved jobs", wanted, len(theatre.story.now.moved))


def _running_task_of(theatre: Theatre, wanted: dict[str, int]) -> list[str]:
    running = theatre.running()
    ranks = {name: running[_job(theatre, name)].workers for name in wanted if _job(theatre, name) in running}
    found = {name: [place.rank for place in places] for name, places in ranks.items()}
    return _same("tasks that run", {name: [rank] for name, rank in wanted.items()}, found)


def _duplicates(theatre: Theatre, wanted: int) -> list[str]:
    return _same("jobs started while they ran", wanted, len(theatre.story.duplicates))


def _view_equals_running(theatre: Theatre, wanted: bool) -> list[str]:
    """A reader of its own folds the decisions from their bytes, and comes to the same places."""
    reader = CellState(theatre.state.cell)
    for decision in theatre.story.decisions:
        read = decode(decision.type, encode(decision))
        assert isinstance(read, Decision)
        extend(reader, read, reader.chain)
    seen = {job.id: job.workers for job in reader.jobs.values() if job.workers}
    return _same("the view equals what runs", wanted, seen == {j.id: j.workers for j in theatre.running().values()})


def _min_runtime(theatre: Theatre, wanted: dict[str, float]) -> list[str]:
    """How long each pair's victim is safe from its preemptor."""
    found = {}
    for pair in wanted:
        preemptor, victim = (theatre.names.inside("queue", name) for name in pair.split("->"))
        found[pair] = min_run_ms(theatre.state.quotas, preemptor, victim, GPU_TYPE) / S_MS
    return _same("minimum run time", wanted, found)


JUDGES: dict[str, Judge] = {
    "running": _running,
    "running_tasks": _running_tasks,
    "running_count": _running_count,
    "running_task_of": _running_task_of,
    "pending": _pending,
    "pending_tasks": _pending_tasks,
    "pending_count": _pending_count,
    "started": _started,
    "deleted": _deleted,
    "atomic": _atomic,
    "preempted": _preempted,
    "preempted_any": _preempted_any,
    "preempted_one_of": _preempted_one_of,
    "untouched": _untouched,
    "untouched_one_of": _untouched_one_of,
    "preempted_from": _preempted_from,
    "preempted_count_by_queue": _preempted_by_queue,
    "shrunk": _shrunk,
    "evicted_tasks": _evicted_tasks,
    "max_evictions_per_job": _max_evictions,
    "partial_gangs": _partial_gangs,
    "retries": _retries,
    "planned_start_s": _planned_start,
    "start_window_s": _start_window,
    "reason_code": _reason_code,
    "reason_code_of": _reason_code_of,
    "reason_contains": _reason_contains,
    "nodes_used": _nodes_used,
    "nodes_used_by_queue": _nodes_by_queue,
    "new_on": _new_on,
    "gpus_held_after": _gpus_held,
    "overcommit": _overcommit,
    "migrated_count": _migrated,
    "verdict_within_s": _verdict_within,
    "duplicate_allocations": _duplicates,
    "view_equals_running": _view_equals_running,
    "effective_min_runtime_s": _min_runtime,
}
"""Those keys of an expectation that the product can be asked about."""

AT_THE_END: dict[str, Judge] = {"start_order_later": _start_order_later}
"""Those that let the case go on to find out."""


def judge(theatre: Theatre, asked: Mapping[str, Any]) -> list[str]:
    """The differences between what is expected and what is so."""
    wrong = []
    for key, wanted in asked.items():
        if key in AT_THE_END:
            continue
        judge_of = JUDGES.get(key)
        wrong += judge_of(theatre, wanted) if judge_of is not None else [f"{key}: the product cannot be asked about it"]
    return wrong


def judge_at_the_end(theatre: Theatre, asked: Mapping[str, Any]) -> list[str]:
    """What does not hold of the expectations that show only when the case goes on."""
    return [text for key, wanted in asked.items() if key in AT_THE_END for text in AT_THE_END[key](theatre, wanted)]
