"""Shares of GPUs, whole GPUs and CPUs on the nodes of a real cluster: how much of it can be handed out."""
