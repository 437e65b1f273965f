"""Web UI ("the window"): pages in the user's browser, served on the loopback interface.

Most changes are made by commands of `zonedrive`, so that the web UI and the commands give the same
messages.
"""
