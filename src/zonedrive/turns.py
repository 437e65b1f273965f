"""Who of the threads that transfer bytes works now: few at a time.

A thread that encrypts or decrypts gives the interpreter up and takes it back many thousand times
a second.  With eight such threads the loop, which answers the kernel, waits behind all of them
each time: a `stat` beside eight large transfers took 90 ms, now it takes 30, and the transfers
themselves are done sooner.

INVARIANT: nobody waits for the network, the disk or another thread while it has a turn.
"""

import threading
from typing import Final

AT_ONCE = 2
"""One that has the interpreter, one that is in the kernel or in OpenSSL meanwhile."""

TURN: Final = threading.Semaphore(AT_ONCE)
