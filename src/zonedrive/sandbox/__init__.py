"""Local deployment of the service, for a first run, for tests and for development.

Must not know the rest of zonedrive: it imports nothing from the other packages, so that client and
service cannot share a misunderstanding of the protocol.  Other packages call only `serve.run`.
"""
