"""What is put into the view at a time: rows, where their state stands, and how many rows there are in all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to put, and ids of rows to drop."""

    jobs: list[tuple[str, str]] = field(default_factory=list)
    jobs_gone: list[str] = field(default_factory=list)
    nodes: list[tuple[str, str]] = field(default_factory=list)
    nodes_gone: list[str] = field(default_factory=list)
    tenants: list[tuple[str, str]] = field(default_factory=list)
    tenants_gone: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts())

    @property
    def chars(self) -> int:
        """How long the texts of the rows and their ids are together."""
        return sum(map(len, chain.from_iterable(chain(self.jobs, self.nodes, self.tenants))))

    def _parts(self) -> tuple[list[tuple[str, str]] | list[str], ...]:
        return (self.jobs, self.jobs_gone, self.nodes, self.nodes_gone, self.tenants, self.tenants_gone)

    def arguments(self) -> list[str]:
        """As the functions take them: six counts, then the rows."""
        flat = [str(len(part)) for part in self._parts()]
        for put, gone in (
            (self.jobs, self.jobs_gone),
            (self.nodes, self.nodes_gone),
            (self.tenants, self.tenants_gone),
        ):
            for pair in put:
                flat += pair
            flat += gone
        return flat


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a state stands, as the view keeps it. `cursor` is the next offset of the log."""

    cursor: int
    version: int
    chain: str
    at_ms: int
    pools: str

    def arguments(self) -> list[str]:
        """As the functions take it."""
        return [str(self.cursor), str(self.version), self.chain, str(self.at_ms), self.pools]


@dataclass(frozen=True, slots=True)
class Totals:
    """How many rows a whole view has."""

    jobs: int
    nodes: int
    tenants: int
    queued: int

    def arguments(self) -> list[str]:
        """As the functions take them."""
        return [str(self.jobs), str(self.nodes), str(self.tenants), str(self.queued)]
