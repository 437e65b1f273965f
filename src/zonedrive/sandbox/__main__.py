"""Command `python -m zonedrive.sandbox`, which runs the sandbox without the rest of zonedrive."""

import argparse
import sys
from pathlib import Path

from zonedrive.sandbox.errors import SandboxError, WorldError
from zonedrive.sandbox.serve import run


def main() -> int:
    """Run the sandbox and return the exit code; report an error in one line on stderr.

    The exit code is 0 after SIGTERM or SIGINT, 2 for an invalid world file, and 1 for any other
    SandboxError.
    """
    parser = argparse.ArgumentParser(prog="python -m zonedrive.sandbox", description=__doc__)
    parser.add_argument("--data", type=_path, required=True)
    parser.add_argument("--world", type=_path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=_path)
    options = parser.parse_args()
    try:
        run(options.data, options.world, options.host, options.port, options.ready_file)
    except SandboxError as wrong:
        print(f"zonedrive sandbox: {wrong}", file=sys.stderr)
        return 2 if isinstance(wrong, WorldError) else 1
    return 0


def _path(text: str) -> Path:
    if not text:  # as a path, it would mean the working directory
        raise argparse.ArgumentTypeError("it is empty")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
