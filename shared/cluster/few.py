"""While few jobs wait in a cell, nobody needs to be told who is next: placement looks at all of them by itself.

A number that two services go by: queueing shows heads of its lines when more wait, placement goes by these only when
twice as many do. So whenever placement needs a window, one is under way.
"""

from __future__ import annotations

FEW_WAITING = 1_500
"""So many jobs, held ones counted, are few: what 5,000 jobs a second leave under way in 300 ms. To sort and try them
takes about two milliseconds."""
