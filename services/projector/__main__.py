"""`python -m fallow.services.projector`: one projector process."""

from __future__ import annotations

from fallow.shared.runtime.tasks.background import Rank, step_back

if __name__ == "__main__":
    step_back(Rank.VIEW)

    from fallow.services.projector.app import main
    from fallow.services.projector.settings import ProjectorSettings
    from fallow.shared.runtime.process import serve

    serve("projector", main, ProjectorSettings)
