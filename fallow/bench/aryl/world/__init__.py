"""A cluster in virtual time: training servers, lent inference servers, and the jobs that wait for both.

Time is whole milliseconds and work is whole GPU time, so a run is the same on every machine.
"""
