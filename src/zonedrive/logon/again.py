"""`python -m zonedrive.logon.again`: what daemons of version 0.1.0 call `renewal_worker`.

A daemon goes on after an upgrade, and starts the program that the upgrade has installed.
"""

import sys

from zonedrive.logon.renewal_worker import main

if __name__ == "__main__":
    sys.exit(main())
