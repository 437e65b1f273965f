"""`python -m zonedrive`: the command."""

from zonedrive.cli.main import main

if __name__ == "__main__":
    main()
