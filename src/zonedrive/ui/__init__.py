"""The window: a page in the person's browser, served on the loopback interface.

Everything it changes is done by a command of `zonedrive`, so it says what the command says.
"""
