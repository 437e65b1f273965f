"""POSIX, exercised on a mount."""
