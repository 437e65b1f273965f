"""Local content: content files, the outgoing spool and the cache with its downloads.

Knows nothing about the service, the inodes or the outbox; the caller passes a `Source` for missing
bytes.
"""
