"""What the paper prints (Lyra, EuroSys 2023, Table 5), to stand beside ours. Its trace is private: ratios within one
run can be compared, seconds cannot.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """A line of Table 5: seconds, and 0 to 1."""

    queue_s: tuple[int, int, int]
    jct_s: tuple[int, int, int]
    train_use: float
    overall_use: float | None
    preempted_pct: float | None


FIFO = Printed((3072, 55, 8357), (16610, 791, 82933), 0.72, 0.52, 0.0)

TABLE_5 = {
    ("lyra", "basic"): Printed((2010, 26, 3358), (11236, 568, 56477), 0.86, 0.65, 12.24),
    ("lyra", "advanced"): Printed((1835, 24, 3238), (10434, 525, 56553), 0.86, 0.68, 7.35),
    ("lyra", "heterogeneous"): Printed((1944, 27, 3574), (12113, 604, 57392), 0.78, 0.64, 11.23),
    ("lyra", "ideal"): Printed((1157, 22, 3204), (8891, 422, 41146), 0.93, 0.72, 5.72),
    ("opportunistic", "loaning"): Printed((2788, 22, 5256), (14828, 744, 67843), 0.74, 0.63, 19.35),
    ("random", "loaning"): Printed((2901, 23, 5478), (14678, 731, 62923), 0.76, 0.64, 20.89),
    ("scf", "loaning"): Printed((2783, 24, 4994), (14923, 695, 62456), 0.76, 0.64, 17.48),
    ("lyra", "loaning"): Printed((2212, 23, 3427), (12947, 662, 57987), 0.76, 0.65, 14.94),
    ("gandiva", "scaling"): Printed((3035, 49, 6632), (15912, 755, 80567), 0.79, None, None),
    ("afs", "scaling"): Printed((2284, 47, 3488), (15045, 686, 60883), 0.95, None, None),
    ("pollux", "scaling"): Printed((2791, 58, 5883), (14534, 721, 72123), 0.93, None, None),
    ("lyra", "scaling"): Printed((2275, 47, 3475), (12048, 602, 57597), 0.92, None, None),
}


def printed(policy: str, scenario: str) -> Printed | None:
    """The line of a scheme in a scenario; FIFO is the same in all."""
    return FIFO if policy == "fifo" else TABLE_5.get((policy, scenario))
