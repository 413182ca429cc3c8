"""Fallow: the `fallow` command and what it runs on one machine. `fallow.services` is what is deployed, and
`fallow.shared` what services and the command share: their folders stand beside this one.
"""
