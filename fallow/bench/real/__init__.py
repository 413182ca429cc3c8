"""The hard load of `fallow bench pipeline`: many tenants, classes and topology requests."""
