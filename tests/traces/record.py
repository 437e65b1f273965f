"""Record what real programs do with a folder: a command for developers, not used by the tests.

    python -m tests.traces.record                       every recipe, with both profiles
    python -m tests.traces.record vim git               these
    python -m tests.traces.record NAME -- COMMAND ...   a command of your own, on a file notes.txt

Needs strace and the programs.  Each runs in a folder on a mount of a sandbox of its own; the
finished trace is played on a plain folder, which must end with the recorded names and sizes.
"""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.workplace import content as present
from tests.traces import player, strace
from tests.traces.recipes import RECIPES, Recipe, one
from tests.traces.trace import DATA, Trace, content, save

PROFILES = ("sandbox", "published")
CALM_SECONDS = 1.0
LONGEST_SECONDS = 120


def run(recipe: Recipe, folder: Path, elsewhere: Path) -> Path:
    """Run the recipe under strace; return the log."""
    log = elsewhere / "log" / "calls"
    log.parent.mkdir()
    out = elsewhere / "out"
    out.mkdir()
    watch = ["strace", *strace.OPTIONS, "-o", os.fspath(log)]
    environment = dict(os.environ, HOME=os.fspath(elsewhere), OUT=os.fspath(out), LC_ALL="C.UTF-8")
    environment["STRACE"] = " ".join(watch)
    whole = "$STRACE" not in recipe.command
    command = [*(watch if whole else []), "sh", "-c", recipe.command]
    if recipe.keys:
        _typed(command, folder, environment, recipe.keys)
    else:
        subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False,
            timeout=LONGEST_SECONDS,
        )  # fmt: skip
    return log


def _typed(
    command: Sequence[str], folder: Path, environment: dict[str, str], keys: Sequence[str]
) -> None:
    """Run the command on a terminal, and type the keys."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], list(command), environment)
    left = list(keys)
    while True:
        ready, _, _ = select.select([terminal], [], [], CALM_SECONDS)
        try:
            if ready:
                if not os.read(terminal, 65536):
                    break
            elif left:
                os.write(terminal, left.pop(0).encode())
            else:
                break
        except OSError:  # the terminal is gone with the program
            break
    if left:
        raise SystemExit(f"ended before {left} was typed")
    os.waitpid(pid, 0)
    os.close(terminal)


def version(package: str) -> str:
    """Return the package with its version, without Debian's revision."""
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{package} {asked.stdout.split('+')[0].split('-')[0].rpartition(':')[2]}"


def document(elsewhere: Path) -> bytes:
    """Return a small text document, created by the office program itself."""
    (elsewhere / "letter.txt").write_text("Dear Bob,\n\nall is well.\n")
    subprocess.run(
        ["soffice", f"-env:UserInstallation=file://{elsewhere}/o", "--headless", "--convert-to",
         "odt", "--outdir", elsewhere, elsewhere / "letter.txt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (elsewhere / "letter.odt").read_bytes()


def record(name: str, recipe: Recipe, profile: str, mounted: Mounted) -> None:
    """Run one recipe, and store its trace."""
    folder = mounted.root / name
    with tempfile.TemporaryDirectory(prefix="zdrec") as scratch:
        log = run(recipe, folder, Path(scratch))
        steps, lost = strace.read(log, folder)
    after = {each: None if data is None else len(data) for each, data in present(folder).items()}
    before = {each: (data if data is None else content(seed(data))) for each, data in
              recipe.before.items()}  # fmt: skip
    trace = Trace(version(recipe.program), recipe.command, profile, before, after, steps)
    for each in lost:
        print(f"{name}, {profile}: {each} is not in the trace", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="zdrec") as scratch:
        player.prepare(Path(scratch), trace)
        try:
            for _ in player.Player(Path(scratch), refuses=False).play(trace):
                pass
            found = {
                each: None if data is None else len(data)
                for each, data in present(Path(scratch)).items()
            }
        except (OSError, KeyError) as wrong:
            found = {repr(wrong): 0}
    if found != after:
        print(f"{name}, {profile}: the trace gives {found}, not {after}", file=sys.stderr)
    save(DATA / f"{name}.{profile}.json", trace)
    print(f"{name}, {profile}: {len(steps)} steps, {len(after)} names", flush=True)


DOCUMENTS: dict[str, bytes] = {}


def seed(text: str) -> bytes:
    """Return the bytes of a recipe's initial file."""
    return DOCUMENTS[text] if text in DOCUMENTS else text.encode()


def main(arguments: Sequence[str]) -> None:
    """Run the command; see the module."""
    chosen: dict[str, Recipe] = {}
    if "--" in arguments:
        name, _, *command = arguments
        chosen[name] = one(command[0], shlex.join(command))
    else:
        chosen = {name: RECIPES[name] for name in arguments or RECIPES}
    base = Path(tempfile.mkdtemp(prefix="zdrec", dir="/var/tmp"))  # editors make no backups in /tmp
    if any("@odt" in recipe.before.values() for recipe in chosen.values()):
        DOCUMENTS["@odt"] = document(base)
    deployment = Deployment(base / "service")
    try:
        for profile in PROFILES:
            (base / profile).mkdir()
            machine = Machine(base / profile)
            machine.log_on(deployment, profile=profile)
            mounted = Mounted(machine, deployment, deployment.fresh_zone(), ["settle=30"])
            for name, recipe in chosen.items():
                mounted.zone.make_folder(name)
                for each, data in sorted(recipe.before.items()):
                    if data is None:
                        mounted.zone.make_folder(f"{name}/{each}")
                    else:
                        mounted.zone.write(f"{name}/{each}", seed(data))
            mounted.mount()
            mounted._unwatch()
            try:
                for name in chosen:
                    present(mounted.root / name)  # what is seen first is not in the traces
                for name, recipe in chosen.items():
                    record(name, recipe, profile, mounted)
            finally:
                mounted.tear_down()
    finally:
        deployment.close()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
