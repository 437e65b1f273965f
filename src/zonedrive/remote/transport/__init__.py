"""HTTP requests through libcurl: connections, proxies, TLS, timeouts. Knows no endpoints."""
