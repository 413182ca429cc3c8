"""The `fallow` command, and what it runs on one machine: on top of everything else, imported by nobody."""
