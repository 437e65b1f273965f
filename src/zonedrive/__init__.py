"""Program that mounts the zones of a secure storage and collaboration service as local folders."""

__version__ = "0.1.0"
