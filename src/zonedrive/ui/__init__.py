"""Web interface of `zonedrive ui`: local pages in the user's browser ("the window" in messages).

The pages are served on the loopback interface. For most changes, the web interface runs commands of
`zonedrive`, so that the web interface and the command line show the same messages.
"""
