"""While few jobs wait in a cell, queueing publishes no window that shows which are next."""

from __future__ import annotations

FEW_WAITING = 3_000
"""So many jobs, held ones counted, are few: what 5,000 jobs a second leave under way in 600 ms."""
