"""Tests of POSIX operations on a mount."""
