"""HTTP requests through libcurl: connections, proxies, TLS, timeouts.

This package knows nothing about endpoints.
"""
