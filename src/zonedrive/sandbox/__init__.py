"""A local deployment of the service, for a first run, for tests and for developing against.

Must not know the rest of zonedrive: it imports nothing from its siblings, so that client and
service cannot share a misreading.  `serve.run` is the whole of what others call.
"""
