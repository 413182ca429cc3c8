"""How well the cell does: folds the log and decides nothing."""
