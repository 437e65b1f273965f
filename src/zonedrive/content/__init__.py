"""Local content: content files, the outgoing spool and the cache with its downloads.

Knows no remote, no tree and no outbox; the caller passes a `Source` for missing bytes.
"""
