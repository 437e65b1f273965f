"""Formats of requests and answers: tolerant parsing of JSON and errors, pagination, uploads."""
