"""The namespace: inodes, the names that lead to them, and the table both are kept in.

Knows no network, no content and no kernel.  Nothing here is `async`.
"""
