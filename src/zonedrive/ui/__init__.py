"""The window: web pages in the user's browser, served on the loopback interface.

Most changes are made by commands of `zonedrive`, so that the window and the commands give the same
messages.
"""
