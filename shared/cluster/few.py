"""While few jobs wait in a cell, nobody needs to be told who is next: placement looks at all of them by itself.

A number that two services go by: queueing shows heads of its lines when more wait, placement goes by these only when
twice as many do. So whenever placement needs a window, one is under way.
"""

from __future__ import annotations

FEW_WAITING = 500
"""So many jobs, held ones counted, are few. To sort and try them takes less than a millisecond."""
