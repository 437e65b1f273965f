"""Where the command begins, also as `python -m zonedrive`.

Must not import at its top what takes time: Ctrl-C is quiet only from `main` on.
"""

from zonedrive.cli import interrupts


def main() -> None:
    """Run one command and exit."""
    interrupts.quiet()
    from zonedrive.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
