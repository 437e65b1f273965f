"""Namespace: inodes, their names, and the table of both.

Knows no network, no content and no kernel.  Nothing here is `async`.
"""
