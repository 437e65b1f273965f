"""The window: a page in the user's browser, served on the loopback interface.

Every change is made by a command of `zonedrive`, so that window and commands give the same
messages.
"""
