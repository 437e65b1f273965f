"""Folder listings, shared by all waiting callers, and the mapping of entries to inodes."""
