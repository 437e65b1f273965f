"""HTTP requests through libcurl: connections, proxies, TLS, timeouts.

This package contains no endpoints.
"""
