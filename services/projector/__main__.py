"""`python -m services.projector`: one projector process."""

from __future__ import annotations

from shared.runtime.background import Rank, step_back

if __name__ == "__main__":
    step_back(Rank.VIEW)

    from services.projector.app import main
    from services.projector.settings import ProjectorSettings
    from shared.runtime.process import serve

    serve("projector", main, ProjectorSettings)
