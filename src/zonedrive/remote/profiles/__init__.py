"""Profiles: TOML files with the operations of a deployment that the published API lacks."""
