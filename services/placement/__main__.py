"""`python -m fallow.services.placement`: the writer, or a standby of it."""

from fallow.services.placement.app import writer
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.runtime.process import serve

if __name__ == "__main__":
    serve("placement", writer.main, PlacementSettings)
