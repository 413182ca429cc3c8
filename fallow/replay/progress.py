"""What is to be seen while a cell works: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fallow.local.watch import View
from fallow.shared.runtime.clocks import monotonic_ms

PLAIN_EVERY_MS = 2_000
BAR_WIDTH = 40


@dataclass(slots=True)
class Display:
    """Shows how things stand, as often as it makes sense."""

    console: Console
    live: Live | None
    told_ms: int = field(default=-PLAIN_EVERY_MS)

    def show(self, title: str, view: View) -> None:
        """How things stand now; `title` says what is being done and what time it is in the cell."""
        if self.live is not None:
            self.live.update(drawn(title, view))
        elif monotonic_ms() - self.told_ms >= PLAIN_EVERY_MS:
            self.told_ms = monotonic_ms()
            self.console.print(in_one_line(title, view), highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """One line, at most every so often unless it is a live display."""
        if self.live is not None:
            self.live.update(Text(line))
        elif monotonic_ms() - self.told_ms >= PLAIN_EVERY_MS:
            self.told_ms = monotonic_ms()
            self.console.print(line, highlight=False, soft_wrap=True)


@contextmanager
def display_on(console: Console) -> Iterator[Display]:
    """A display on this console for as long as the context lasts."""
    if not console.is_terminal:
        yield Display(console, None)
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield Display(console, live)


def in_one_line(title: str, view: View) -> str:
    """The view for a log file or a pipe."""
    pools = "  ".join(f"{pool.name} {pool.allocated}/{pool.gpus}" for pool in view.pools)
    return f"{title}  running {view.running}  queued {view.queued}  over {view.over}  GAR {view.gar:.0%}  {pools}"


def drawn(title: str, view: View) -> RenderableType:
    """The view as bars."""
    table = Table.grid(padding=(0, 2))
    for pool in view.pools:
        bar = ProgressBar(total=max(1, pool.gpus), completed=pool.allocated, width=BAR_WIDTH)
        table.add_row(pool.name, bar, f"{pool.allocated} of {pool.gpus} GPUs")
    line = f"running {view.running}   queued {view.queued}   over {view.over}   GAR {view.gar:.0%}"
    return Group(Text(title, style="bold"), Text(line), table)


def day_time(cell_ms: int) -> str:
    """Cell time from the beginning, as a day and a time of that day."""
    minutes = max(0, cell_ms) // 60_000
    days, rest = divmod(minutes, 1_440)
    clock = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"day {days + 1}, {clock}" if days else clock
