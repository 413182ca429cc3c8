"""How programs and the command line speak to a cell: `port.py` says what there is, `direct.py` does it."""
