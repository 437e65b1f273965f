"""FUSE layer: mounts and unmounts, decodes kernel requests, calls `views` and encodes replies.

This package knows nothing about the service, the stores or the outbox. Only this package imports
pyfuse3. The modules `mountpoint` and `options` do not import pyfuse3, because the command line uses
them and the import takes 0.4 s.
"""
