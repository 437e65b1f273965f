"""Connections to a host, their request bodies and timeouts; knows nothing about zones."""
