"""Pins: files and folders that stay available offline.

`pins` stores the pins, `fetch` downloads the pinned content, and `poll` detects remote changes.
"""
