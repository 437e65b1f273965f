"""Local deployment of the service, for a first run, for tests and for development.

This package imports nothing from the rest of zonedrive, so that client and service cannot share a
misunderstanding of the protocol. Other packages call only `serve.run`.
"""
