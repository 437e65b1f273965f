"""Tolerant parsing of the service's JSON and errors."""
