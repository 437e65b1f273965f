"""Graphical interface ("the window"), which consists of local web pages in the user's browser.

The pages are served on the loopback interface. The window makes most changes with commands of
`zonedrive`, so that the window and the commands give the same messages.
"""
