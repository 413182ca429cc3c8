"""The fold: records of the decision log change the state, and every change can be undone."""
