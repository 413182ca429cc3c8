"""Loads on a running cell: senders, readers, baselines and the machine that they run on."""
