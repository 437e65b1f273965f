"""Formats of requests and responses: tolerant parsing of JSON and errors, pagination, uploads."""
