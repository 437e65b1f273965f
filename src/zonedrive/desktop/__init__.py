"""zonedrive in file managers: emblems, menus and the account in the side bar.

Runs in the Python of the desktop, also inside file managers, so it imports only the standard
library and `gi`, and nothing else of zonedrive: it speaks to the daemons over their control
sockets.

INVARIANT: no function reads a path in a mount, or waits for a daemon without a deadline.
"""
