"""FUSE layer: decodes requests, calls `vfs`, encodes replies; mounts and unmounts.

Knows nothing about the service, the stores or the outbox.  Only this package imports pyfuse3.  The
modules `mountpoint` and `options` do not, because the command line uses them and the import takes
0.4 s.
"""
