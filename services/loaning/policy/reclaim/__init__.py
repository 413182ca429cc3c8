"""Which lent servers go back when their owner wants some: idle ones, then those that hold flexible workers only, then
those that cost the fewest preemptions (Lyra, EuroSys 2023, sections 4 and 5.3).
"""
