"""One file for each metric. Each is an accumulator, fed with (the state behind a decision, the decision) in order.

Inside there are integers and exact fractions only; the printing code makes floats of them.
"""
