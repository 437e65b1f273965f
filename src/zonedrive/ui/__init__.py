"""Graphical interface ("the window"), which consists of local web pages in the user's browser.

The pages are served on the loopback interface. For most changes, the window runs commands of
`zonedrive`, so that the window and the command line show the same messages.
"""
