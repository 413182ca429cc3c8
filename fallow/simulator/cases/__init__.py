"""Conformance cases: what a correct scheduler must do, each told in one file, judged on the production services."""
