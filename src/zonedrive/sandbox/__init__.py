"""Local deployment of the service, for a first run, for tests and for development.

This package imports nothing from the rest of zonedrive, so that an error in the client's protocol
code cannot also be in the service and remain undetected. Other packages call only `serve.run`.
"""
