"""Entry point of the program, with the list of commands.

This module converts the errors of commands to a one-line message and an exit code. It does not
import the dependencies of the commands, so that `--help` and `--version` load only click.

INVARIANT: before a command begins, core dumps and debuggers are disabled for this process, because
most commands load the token of the account, and some read a password.
"""

import contextlib
import importlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from zonedrive import __version__, process_setup
from zonedrive.cli import error_messages, sigint
from zonedrive.cli.error_messages import INTERRUPTED, USAGE, exit_code
from zonedrive.errors import ZonedriveError

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Without a terminal": {
        "ui": ("window", "Open the window, a page in your browser."),
    },
    "Logging on": {
        "logon": ("logon", "Log on to a service."),
        "logoff": ("logoff", "Log off, and delete the local data."),
        "new-credentials": ("credentials", "Request new credentials from the service."),
        "password": ("credentials", "Change your password."),
    },
    "Mounting": {
        "mount": ("mount", "Mount your zones on a folder."),
        "unmount": ("mount", "Wait for uploads, then unmount."),
    },
    "Keeping offline": {
        "pin": ("files", "Keep files and folders available offline."),
        "unpin": ("files", "Stop keeping files offline."),
    },
    "Uploads": {
        "sync": ("sync", "Wait until everything is on the service."),
        "send": ("sync", "Upload files now, before all others."),
        "pause": ("pause", "Stop uploads for a while."),
        "resume": ("pause", "Continue uploads after a pause."),
    },
    "Sharing": {
        "share": ("share", "Share a file or folder by a link."),
        "unshare": ("share", "Stop sharing a file or folder."),
    },
    "Status and history": {
        "status": ("status", "Show what is uploaded and what waits."),
        "zones": ("files", "List the zones."),
        "conflicts": ("files", "List conflict copies."),
        "versions": ("files", "List the versions of a file."),
        "log": ("zone_log", "Show who changed what, and when."),
        "trash": ("files", "List or remove deleted files."),
        "restore": ("files", "Restore deleted files."),
    },
    "Organization": {
        "tokens": ("tokens", "List, create and revoke tokens."),
        "members": ("members", "List and change the members of a zone."),
        "users": ("organization", "List the users of the organization."),
        "groups": ("organization", "Create, change and delete groups."),
    },
    "Troubleshooting": {
        "doctor": ("doctor", "Find problems and their remedies."),
    },
    "Sandbox": {
        "sandbox": ("sandbox", "Run a trial service on this machine."),
    },
}
"""Commands by section and name, each with its module in this package and its line in the help."""

# Exception raised if no arguments were given; click 8.1 shows the help itself.
NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())
LEAST_COLUMNS = 52  # minimum columns for which click's help fits the terminal
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Lazy(click.Group):
    """Click group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"zonedrive.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        sigint.heard()
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a command's name without importing the command's module."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry[1]) for name, entry in commands.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="zonedrive %(version)s")
def program() -> None:
    """Mount the zones of a secure storage and collaboration service as local folders.

    Start with 'zonedrive logon https://…', then 'zonedrive mount ~/Zones'.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in `arguments` (default: `sys.argv`), and exit with its exit code."""
    if arguments is None:
        sigint.quiet()
        process_setup.ensure_utf8()
    process_setup.forbid_dumps()
    descriptor = os.environ.pop(error_messages.DESCRIPTOR, "")
    if not error_messages.has_folder():
        # The folder is in a mount that ended; libraries handle only a removed folder correctly.
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
    process_setup.open_closed_streams()
    if arguments is None:
        process_setup.receive_signals()
        process_setup.replace_output()
    os.umask(os.umask(0o077) & 0o077)  # never deny the owner access to zonedrive's files
    # fusermount3 and stat are in defpath; an empty entry would mean the working directory.
    os.environ["PATH"] = ":".join(filter(None, [os.environ.get("PATH", ""), os.defpath]))
    # Warnings are for a daemon's log; Python would print them between a command's output lines.
    logging.getLogger("zonedrive").addHandler(logging.NullHandler())
    code = _run([*(sys.argv[1:] if arguments is None else arguments)], descriptor)
    if arguments is None:
        sigint.quiet()
    wrong = process_setup.output_failure()
    if wrong is not None and not isinstance(wrong, BrokenPipeError):  # `zones | head -1` is fine
        code = _say(error_messages.unwritten(wrong), code or 1)
    sys.exit(code)


def _run(given: list[str], descriptor: str) -> int:
    try:
        if given and given[0].lower().startswith(("https://", "http://")):
            # mount(8) calls `zonedrive URL DIR -o OPTIONS` for the type fuse.zonedrive.
            from zonedrive.cli.mount import mount_helper

            sigint.heard()
            found = mount_helper.main(given, prog_name="zonedrive", standalone_mode=False)
        elif _is_of_mount_8(given):
            from zonedrive.cli.mount import no_address

            raise no_address(given[0])
        else:
            found = program.main(
                given, prog_name="zonedrive", standalone_mode=False, terminal_width=_narrow()
            )
        return found if isinstance(found, int) else 0
    except NO_ARGUMENTS as shown:
        click.echo(shown.format_message())
        return USAGE
    except click.UsageError as wrong:
        # click's parser does not name the command of an option without its argument.
        path = wrong.ctx.command_path if wrong.ctx else f"zonedrive {given[0]}"
        return _say(f"{_sentence(wrong.format_message())}; see '{path} --help'", USAGE)
    except click.ClickException as wrong:
        return _say(wrong.format_message(), 1)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:
        line = error_messages.line(error)
        if descriptor and isinstance(error, ZonedriveError):
            error_messages.pass_on(error, descriptor)
        return _say(line, exit_code(error))
    except BaseExceptionGroup as group:  # of a command that sends several requests at once
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        return INTERRUPTED


def _is_of_mount_8(given: Sequence[str]) -> bool:
    """Return True if mount(8) called zonedrive with a source that is not a URL."""
    return (
        len(given) > 2
        and given[0] not in COMMANDS
        and not any(word.startswith("-") for word in given[:2])
        and any(word.startswith("-o") for word in given[2:])
    )


def _narrow() -> int | None:
    """Return the terminal width (at least 20) if it is less than LEAST_COLUMNS, else None."""
    columns = shutil.get_terminal_size().columns
    return max(20, columns) if columns < LEAST_COLUMNS else None


def _say(line: str, code: int) -> int:
    from zonedrive.cli.text_output import complain

    complain(line)
    return code


def _sentence(text: str) -> str:
    """Return a click message without its final period, and with a lower-case first letter.

    The first letter of a name such as `BASE_URL` keeps its case.
    """
    text = text.rstrip(".")
    return text[:1].lower() + text[1:] if re.match(r"[A-Z][a-z]+ ", text) else text
