"""Jobs fed to a set of services: `demo`, `replay` and `feed`."""
