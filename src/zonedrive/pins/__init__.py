"""Files and folders that stay available offline.

`pins` keeps the list of pins, `fetch` fetches their content, and `poll` notices remote changes.
"""
