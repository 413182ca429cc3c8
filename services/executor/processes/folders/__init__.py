"""The folders of nodes and workers: kept, checked and removed."""
