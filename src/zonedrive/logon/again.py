"""`python -m zonedrive.logon.again`: alias of `renewal_worker` for daemons of version 0.1.0.

A daemon continues to run after an upgrade, and starts this module of the new version by its old
name.
"""

import sys

from zonedrive.logon.renewal_worker import main

if __name__ == "__main__":
    sys.exit(main())
