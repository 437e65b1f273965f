"""Integration of zonedrive into file managers: emblems, menus and accounts in the side bar.

This package runs in the Python of the desktop, also inside file managers. It imports only the
standard library and `gi`, and nothing else of zonedrive. It exchanges data with the daemons over
their control sockets.

INVARIANT: no function reads a path in a mount, or waits for a daemon without a deadline.
"""
