"""Preemption, as those who propose it and placement, which decides, both read it: who may yield to whom, and who
does first.
"""
