"""The policy `frag-aware`: a score of what each place spoils of the free room."""
