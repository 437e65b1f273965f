"""FUSE layer: mounts and unmounts, decodes kernel requests, calls `views` and encodes replies.

This package accesses the service and the local data only through `views`. Only this package imports
pyfuse3. The modules `mountpoint` and `options` do not import pyfuse3, because the command line uses
them and the import takes 0.4 s.
"""
