"""The demand of inference: what part of its servers is busy, from a column of a file."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from fallow.replay.trace import MS_PER_S, rows_of
from fallow.replay.workload import WorkloadError
from fallow.shared.digits import is_written_with_digits
from fallow.shared.events.codec.encoding import shorten

PPM = 1_000_000
HEADROOM_PPM = 20_000
"""Never lent: the median burst within five minutes (Lyra, section 7.1)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Samples at equal steps, in millionths of all inference servers; behind the last one the first comes again."""

    step_ms: int
    busy_ppm: tuple[int, ...]

    @property
    def period_ms(self) -> int:
        """How long the samples reach."""
        return self.step_ms * len(self.busy_ppm)

    def busy_at(self, now_ms: int) -> int:
        """The sample of this time."""
        return self.busy_ppm[now_ms // self.step_ms % len(self.busy_ppm)]

    def lendable(self, now_ms: int, servers: int) -> int:
        """How many servers may be lent now."""
        return max(0, PPM - self.busy_at(now_ms) - HEADROOM_PPM) * servers // PPM

    def busy_mean(self) -> float:
        """The mean, 0 to 1."""
        return sum(self.busy_ppm) / (PPM * len(self.busy_ppm))


def read_demand(path: Path, column: str) -> Demand:
    """The column of a file whose `t_s` counts up from 0 in equal steps. Raises WorkloadError with its line."""
    times, busy = list[int](), list[int]()
    for line, row in rows_of(path, ("t_s", column)):
        where = f"{path.name} line {line}"
        times.append(int(_number(row["t_s"], "t_s", where) * MS_PER_S))
        share = _number(row[column], column, where)
        if not 0 <= share <= 1:
            raise WorkloadError(f"{where}: {column} = {shorten(repr(row[column]))}: must be from 0 to 1")
        busy.append(int((share * PPM).to_integral_value()))
        step_ms = times[1] if len(times) > 1 else 0
        if times[-1] != step_ms * (len(times) - 1) or (len(times) > 1 and step_ms <= 0):
            raise WorkloadError(f"{where}: t_s = {shorten(repr(row['t_s']))}: must count up from 0 in equal steps")
    if len(times) < 2:  # noqa: PLR2004 - a step needs two
        raise WorkloadError(f"{path}: must have at least two samples")
    return Demand(times[1], tuple(busy))


def _number(text: str, field: str, where: str) -> Decimal:
    try:
        value = Decimal(text if is_written_with_digits(text.strip(), float) else "")
    except InvalidOperation as error:
        raise WorkloadError(f"{where}: {field} = {shorten(repr(text))}: must be a number") from error
    if not value.is_finite():
        raise WorkloadError(f"{where}: {field} = {shorten(repr(text))}: must be a number")
    return value
