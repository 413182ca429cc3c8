"""By which keys decisions are signed and believed."""
