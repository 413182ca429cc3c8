"""What a benchmark answers: some lines for people, one object for programs, and how busy the machine was."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.bench.load.machine import loop_s, this_commit, this_machine
from fallow.bench.load.processor_time import Used
from fallow.cli.output.output import print_json, print_line

FLUSHED = "Kafka flushed each record before it acknowledged it"
FLUSH_OFF = "flush off: Kafka acknowledged records that the disk did not have yet"
NO_EXECUTOR = "no executor ran: no node said anything meanwhile, and no worker began"


@dataclass(frozen=True, slots=True)
class Figure:
    """One answer. `body` has the keys of docs/checks.md, less those that all benchmarks share."""

    name: str
    lines: list[str]
    body: dict[str, object]
    used: Used
    durable: bool | None = None
    """Whether Kafka flushed each record before it acknowledged it; None where none took part."""

    def as_json(self) -> dict[str, object]:
        """With what all benchmarks tell: where, with which code, and how busy the machine was."""
        return {
            **self.body,
            **({} if self.durable is None else {"durable": self.durable}),
            "others_cpu": self.used.others_cores,
            "busy": self.used.is_busy,
            "machine": this_machine().as_json(),
            "loop_s": loop_s(),
            "commit": this_commit(),
        }

    def show(self, *, as_json: bool) -> None:
        """On standard output."""
        if as_json:
            print_json(self.as_json())
            return
        for line in self.lines:
            print_line(line)
        if self.durable is not None:
            print_line(FLUSHED if self.durable else FLUSH_OFF)
        speed = f"20 million additions in Python take {loop_s():g} s"
        print_line(f"{this_machine()}; {speed}; {self.used.remark}; commit {this_commit()}")
