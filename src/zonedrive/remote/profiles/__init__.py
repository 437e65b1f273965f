"""Profiles: TOML files that define operations of a deployment beyond the published API."""
