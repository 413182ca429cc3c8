"""In which order the jobs of one queue are served: by a key that waiting does not change, so jobs keep their order."""

from __future__ import annotations

from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.fields.values import JobSpec

Order = tuple[int, int, int, str]
"""Where a job stands in its queue: the lowest is served first. Equal for no two jobs."""


def order_in(queue: Queue, spec: JobSpec, submit_ms: int, number: int) -> Order:
    """The place in its queue of a job that came into its cell with this number. It stays as the job waits; an update of
    the job's priority moves it.

    Without aging: higher priority, then earlier submit, then who came first. With it a job of higher priority stands
    where one of priority 0 would that was submitted earlier by as much as `worth_ms` says, one of a negative priority
    where one would that was submitted later; ties go by priority and by who came first. The elements of an array come
    in the order of their indices. The id decides only between jobs that an older snapshot gives no numbers.
    """
    if not queue.aging_ms:
        return (-spec.priority, submit_ms, number, spec.id)
    # Of two of one priority that stand at the same time, the submit times are the same too.
    priority = spec.priority
    worth = worth_ms(queue, priority) if priority else 0
    return (submit_ms - worth, -priority, number, spec.id)


def worth_ms(queue: Queue, priority: int) -> int:
    """How much waiting a priority is worth in a queue that ages: a step near 0 is worth `aging_ms`, the steps further
    from it less and less, and all of them together never more than `aging_max_ms`. So no job is overtaken by one
    submitted more than twice `aging_max_ms` after it, whatever its priority: nothing starves. And no priorities are
    worth the same, be they counted from 0 to 9 or in thousands.
    """
    steps_ms, max_ms = abs(priority) * queue.aging_ms, queue.aging_max_ms
    worth = steps_ms * max_ms // (steps_ms + max_ms)
    return worth if priority > 0 else -worth
