"""The `fallow` command: on top of everything else; nothing imports it."""
