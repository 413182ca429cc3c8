"""`python -m services.placement`: the writer, or a standby of it; with `snapshots` the process that writes
snapshots.
"""

from __future__ import annotations

import sys

from shared.runtime.background import Rank, step_back

if __name__ == "__main__":
    if sys.argv[1:] == ["snapshots"]:
        step_back(Rank.WATCH)

        from services.placement.app import snapshots
        from shared.runtime.process import serve

        serve("snapshots", snapshots.main, snapshots.SnapshotSettings)
    else:
        from services.placement.app import writer
        from services.placement.settings import PlacementSettings
        from shared.runtime.process import serve

        serve("placement", writer.main, PlacementSettings)
