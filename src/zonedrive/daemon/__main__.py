"""`python -m zonedrive.daemon`: the background process that `zonedrive mount` starts.

Not for people: there is no help, and what is wrong is said on the pipe.
"""

import argparse
import os
import sys

from zonedrive import encoding, failpoint
from zonedrive.daemon import streams
from zonedrive.daemon.ready import Pipe
from zonedrive.paths import AccountPaths


def main() -> int:
    """Serve; 0 after an unmount, 1 where it failed (the reason was said)."""
    encoding.ensure()
    streams.complete()
    parser = argparse.ArgumentParser(prog="zonedrive.daemon")
    parser.add_argument("--account", required=True)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("folder")
    given = parser.parse_args()
    failpoint.arm(os.environ)
    ready = Pipe(given.ready_fd)
    try:
        from zonedrive.daemon import serve

        paths = AccountPaths(given.account)
        serve.run(serve.Start(paths, given.folder, tuple(given.option)), ready)
    except Exception as error:
        ready.failed(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
