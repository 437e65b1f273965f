"""The process that serves one account's mount: parts put together, started, asked and stopped.

The only composition root; nothing below imports it.  The command line talks to it through the
control socket and imports only its light modules (`protocol`, `lock`, `spawn`).
"""
