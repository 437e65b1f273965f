"""Machine, versions and commit of a measurement."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

from tests.benchmark import usage
from tests.benchmark.servers import RCLONE

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 2.0

VERSIONS: dict[str, tuple[str | Path, ...]] = {
    "rclone": (RCLONE, "version"),
    "davfs2": ("mount.davfs", "-V"),
    "sshfs": ("sshfs", "-V"),
    "curl": ("curl", "-V"),
}


def machine() -> str:
    """Return the processor, the system, the kernel and the interpreter in one line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    kernel = platform.release().partition("-")[0]
    return (
        f"{os.cpu_count()} cores of {model}, {gib:.0f} GiB of memory, {system}, Linux {kernel}, "
        f"Python {platform.python_version()}"
    )


def commit() -> str:
    """Return the commit of the checkout, with a plus sign if files differ from it."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD"],
        capture_output=True, encoding="utf-8", check=False,
    ).stdout.strip()  # fmt: skip
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, check=False
    ).stdout
    return f"{found}+" if changed else found or "unknown"


def versions(who: set[str]) -> dict[str, str]:
    """Return the versions of zonedrive and of its alternatives."""
    found = {"zonedrive": metadata.version("zonedrive")}
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    for name, command in VERSIONS.items():
        if name in who:
            said = subprocess.run(
                command, capture_output=True, encoding="utf-8", check=False,
                env=dict(os.environ, PATH=path, LC_ALL="C"),
            )  # fmt: skip
            words = (said.stdout or said.stderr).split("\n")[0].split()
            found[name] = next((word for word in words if word.lstrip("v")[:1].isdigit()), "?")
    return found


def busy() -> float:
    """Return the number of cores that other programs use now."""
    before = _cpu_line()
    time.sleep(LOOK_SECONDS)
    return usage.busy_cores(before, _cpu_line(), LOOK_SECONDS)


def _cpu_line() -> str:
    return (usage.PROC / "stat").read_text().partition("\n")[0]
