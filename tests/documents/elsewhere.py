"""Commands of the documents that these tests cannot run: the reason, and the tests that run them.

Every other line is run.  A row whose pattern matches no line any more must be removed, and a
misspelled command matches none.
"""

import re
from dataclasses import dataclass

from tests.documents.pages import ROOT


@dataclass(frozen=True)
class Row:
    """Pattern for a whole line, with the reason."""

    pattern: str
    why: str
    tested: tuple[str, ...]  # files, from the top, of what does run it
    instead: str = ""  # a command whose output names every option of the line

    def fits(self, line: str) -> bool:
        """Return True if the row matches this line."""
        return re.fullmatch(self.pattern, line) is not None


MACHINE = "changes the machine that it runs on"
LONG = "takes hours, or as long as one likes"
NETWORK = "needs root and the network, and takes minutes"

ROWS = (
    Row(
        r"zonedrive ui( --no-browser)?",
        "serves until it is closed",
        ("tests/behaviour/test_window.py",),
    ),
    Row(r"packaging/test( --fast| -k saving)?", "is what runs this", (".ci/run", "packaging/test")),
    Row(
        r"\.venv/bin/python -m tests\.model\.two_machines --minutes 20",
        LONG,
        ("tests/model/test_two_machines.py",),
    ),
    Row(r"mount -o setuid=USER", MACHINE, ("tests/systemd/test_root_for_a_user.py",)),
    Row(
        r"git (status|checkout|bundle|clone --no-local|"
        r"config --global safe\.bareRepository explicit)|tar x",
        "is a command of another program, named without its arguments",
        (),
    ),
    Row(
        r"""rsync (-a|-X|-aX --filter='-x user\.(zonedrive\.)?\*'( Drafts/ ~/Zones/.*)?)|"""
        r"cp (-a|--preserve=xattr)|getfattr -d",
        "is a command of another program, named without its files",
        ("tests/behaviour/test_promises.py",),
    ),
    Row(r"packaging/setup( --tests| --benchmark)?", MACHINE, ("packaging/test", "packaging/demo")),
    Row(r"packaging/deb 13", NETWORK, ("packaging/deb-test",)),
    Row(r"packaging/deb-test 13", NETWORK, ("packaging/deb-tour",)),
    Row(r"packaging/(suite|service-test) 13", NETWORK, ("packaging/service-tour",)),
    Row(r"packaging/pipx-test", NETWORK, ("tests/unit/test_packages.py",)),
    Row(r"packaging/translate", "writes in the checkout", ("tests/unit/test_translation.py",)),
    Row(r"packaging/lock", NETWORK, ("tests/unit/test_packages.py",)),
    Row(r"sudo apt install \./dist/zonedrive_\*~deb13_\*\.deb", MACHINE, ("packaging/deb-tour",)),
    Row(r"sudo apt install (--reinstall )?fuse3", MACHINE, ("packaging/setup",)),
    Row(r"sudo modprobe fuse", MACHINE, ("packaging/setup",)),
    Row(
        r"sudo mount -t fusectl fusectl /sys/fs/fuse/connections|"
        r"echo 1 \| sudo tee /sys/fs/fuse/connections/57/abort",
        MACHINE,
        ("tests/unit/fuse/test_lifecycle.py",),
    ),
    Row(r"sudo timedatectl set-ntp true", MACHINE, ()),
    Row(r"sudo update-ca-certificates", MACHINE, ("tests/unit/remote/transport/test_tls.py",)),
    Row(
        r"sudo journalctl -k --grep fusermount3",
        "needs the journal of a system that systemd has started",
        (),
    ),
    Row(
        r"sudo sed -i 's/\^#user_allow_other/user_allow_other/' /etc/fuse\.conf",
        MACHINE,
        ("tests/documents/test_pages.py",),
    ),
    Row(r"pipx install( \.)?", NETWORK, ("packaging/pipx-test",)),
    Row(
        r'"\$\(pipx environment --value PIPX_LOCAL_VENVS\)/zonedrive/bin/python"'
        r" -m zonedrive\.cli\.reference ~/\.local/share",
        "needs what pipx has installed",
        ("packaging/pipx-test",),
    ),
    Row(
        r"systemctl --user (enable --now|status|edit|start|restart|reset-failed|mask)"
        r" zonedrive@default\.service",
        "needs a user instance of systemd",
        ("tests/systemd/test_service.py",),
    ),
    Row(
        r"journalctl --user -u zonedrive@default\.service -n 20",
        "needs a journal, which only a booted system has",
        (),
    ),
    Row(
        r"journalctl( --user)? SYSLOG_IDENTIFIER=zonedrive.*",
        "needs a journal, which only a booted system has",
        ("packaging/service-tour", "tests/unit/daemon/test_journal.py"),
    ),
    Row(
        r"systemctl --user enable --now zonedrive-metrics\.timer",
        "needs a user instance of systemd",
        (),
    ),
    Row(
        r"sudo systemctl --global (en|dis)able zonedrive@default\.service",
        MACHINE,
        ("packaging/service-tour",),
    ),
    Row(r"packaging/container-test 13", NETWORK, ("packaging/container-tour",)),
    Row(
        r"podman (secret create|build|run|volume create|stop) .*|podman stop",
        "needs podman, root and the network",
        ("packaging/container-tour",),
    ),
    Row(r"(sudo )?loginctl enable-linger( USER)?", MACHINE, ("packaging/service-tour",)),
    Row(r"(mount|umount) ~/Zones", "needs a line in /etc/fstab", ("packaging/service-tour",)),
    Row(
        r"systemd-creds encrypt --user --name=zonedrive\.default\.password"
        r" - ~/\.config/zonedrive/password\.cred",
        "needs systemd 256",
        ("packaging/service-tour",),
    ),
    Row(
        r"mount -t fuse\.zonedrive( -o setuid=me https://service\.example /home/me/Zones)?",
        "needs root, another user, and /sbin/mount.fuse.zonedrive",
        ("packaging/deb-tour", "packaging/service-tour"),
    ),
    Row(r"\.venv/bin/mypy", "takes a minute", ("packaging/test",)),
    Row(r"\.venv/bin/ruff (check|format --check) src tests", "is done before", ("packaging/test",)),
    Row(
        r"\.venv/bin/pytest -q tests/unit/test_config\.py",
        "is a part of the suite",
        ("packaging/test", "tests/unit/test_config.py"),
        "python -m pytest --help",
    ),
    Row(
        r"\.venv/bin/pytest -q tests/unit -k mistyped",
        "is a part of the suite",
        ("packaging/test", "tests/unit/fuse/test_options.py"),
        "python -m pytest --help",
    ),
    Row(
        r"\.venv/bin/python -m tests\.crash\.soak --rounds 200",
        LONG,
        ("tests/crash/test_random_kill.py",),
        "python -m tests.crash.soak --help",
    ),
    Row(
        r"\.venv/bin/python -m tests\.simulation --(.*minutes 60.*|exhaustive 2|planner)",
        LONG,
        (
            "tests/simulation/test_found.py",
            "tests/simulation/test_exhaustive.py",
            "tests/simulation/test_planner.py",
        ),
        "python -m tests.simulation --help",
    ),
    Row(
        r"\.venv/bin/python -m tests\.model\.soak --minutes 10",
        LONG,
        ("tests/model/test_against_a_dict.py",),
        "python -m tests.model.soak --help",
    ),
    Row(
        r"\.venv/bin/python -m tests\.benchmark",
        LONG,
        ("tests/benchmark/test_table.py",),
        "python -m tests.benchmark --help",
    ),
    Row(
        r"python -m tests\.traces\.record",
        "runs editors that the suite does not install, and writes recordings",
        ("tests/in_process/test_save_patterns.py",),
    ),
    Row(
        r"man -l /tmp/reference/man/man1/zonedrive\.1",
        "needs man, which bare machines lack",
        ("tests/unit/cli/test_manual.py",),
    ),
    Row(
        r"zonedrive logon https://service\.example --(idp corp|personal-id eid)",
        "needs a browser and somebody in front of it",
        ("tests/behaviour/test_signing_on_in_a_browser.py",),
    ),
    Row(
        r"zonedrive logon( --save-password| --account work| --at-login)?",
        "needs the settings of an organization in /etc/zonedrive",
        ("tests/behaviour/test_organization_settings.py",),
    ),
    Row(
        r"zonedrive password",
        "would change the password that all else here uses",
        ("tests/behaviour/test_password_from_the_shell.py",),
    ),
    Row(r"cp -p", "is a name for what `cp` does", ("tests/behaviour/test_promises.py",)),
)


# The demo first makes an environment, with the network and for minutes, where packaging/setup has
# made none: where the suite runs on an installed package, say.
UNPREPARED = Row(r"packaging/demo( --once)?", NETWORK, ("packaging/demo",))


def row_for(line: str) -> Row | None:
    """Return the first matching row, or None if the line is to be run."""
    if UNPREPARED.fits(line) and not (ROOT / ".venv" / "zonedrive.setup").is_file():
        return UNPREPARED
    return next((row for row in ROWS if row.fits(line)), None)
