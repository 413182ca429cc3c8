"""While few jobs wait in a cell, nobody needs to be told who is next: placement looks at all of them by itself.

A number that two services go by: queueing shows heads of its lines when more wait, placement goes by these only when
twice as many do. So whenever placement needs a window, one is under way.
"""

from __future__ import annotations

FEW_WAITING = 3_000
"""So many jobs, held ones counted, are few: what 5,000 jobs a second leave under way in 600 ms, so that a short stall
costs no window. To sort and try them takes about four milliseconds."""
