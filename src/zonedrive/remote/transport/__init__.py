"""Bytes to and from a host: connections, their bodies and pace; knows nothing of zones."""
