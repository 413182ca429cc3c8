"""`python -m services.queueing`; with `snapshots` the process that writes snapshots."""

from __future__ import annotations

import sys

from shared.runtime.background import Rank, step_back

if __name__ == "__main__":
    if sys.argv[1:] == ["snapshots"]:
        step_back(Rank.WATCH)

        from services.queueing.app import snapshots
        from shared.runtime.process import serve

        serve("snapshots", snapshots.main, snapshots.SnapshotSettings)
    else:
        from services.queueing.app import main
        from services.queueing.settings import QueueingSettings
        from shared.runtime.process import serve

        serve("queueing", main, QueueingSettings)
