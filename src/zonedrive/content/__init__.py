"""Local content: content files, the spool of files to upload, and the cache with its downloads.

This package knows nothing about the service, inodes or the outbox. The caller passes a `Source`
that provides missing bytes.
"""
