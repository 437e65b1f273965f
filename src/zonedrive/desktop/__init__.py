"""Integration into file managers, with emblems, menus and accounts in the sidebar.

This package runs in the system's Python interpreter, and inside file managers. The package imports
only the standard library and `gi`, and no other part of zonedrive. The package exchanges data with
the daemons over their control sockets.

INVARIANT: no function reads a path in a mount, or waits for a daemon without a deadline.
"""
