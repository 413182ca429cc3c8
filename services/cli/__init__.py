"""The `fallow` command: on top of everything else, imported by nobody."""
