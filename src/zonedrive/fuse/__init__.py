"""The kernel's side: decode a request, call `vfs`, encode the answer; mounting and unmounting.

Must not know the service, the stores or the outbox.  pyfuse3 is imported here and nowhere else,
and not by `mountpoint` and `options`, which the command line uses (its import takes 0.4 s).
"""
