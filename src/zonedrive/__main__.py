"""Entry point of the `zonedrive` command and of `python -m zonedrive`.

`main` imports the slow modules itself, because Ctrl-C ends the process without a traceback only
after `main` has called `sigint.quiet`.
"""

from zonedrive.cli import sigint


def main() -> None:
    """Run the command given in the process arguments, and exit."""
    sigint.quiet()
    from zonedrive.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
