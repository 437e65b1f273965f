"""Entry point of the command, also for `python -m zonedrive`.

Slow modules are not imported at the top, because Ctrl-C is handled quietly only once `main` runs.
"""

from zonedrive.cli import sigint


def main() -> None:
    """Run one command and exit."""
    sigint.quiet()
    from zonedrive.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
