"""`python -m services.projector`: one projector process."""

from services.projector.app import main
from services.projector.settings import ProjectorSettings
from shared.runtime.process import serve

if __name__ == "__main__":
    serve("projector", main, ProjectorSettings)
