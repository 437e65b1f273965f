"""Prefetch of file content before a program opens the file."""
