"""Local content: content files, the spool of files to upload, and the cache with its downloads.

This package does not depend on the packages `remote` (the service) and `state` (inodes and outbox).
The caller passes a `Source` that provides missing bytes.
"""
