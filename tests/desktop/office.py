"""Real office programs and editors with windows, on a real mount: the results of their saves.

    python -m tests.desktop.office [--pictures FOLDER] [PROGRAM...]

Not a part of the suite, because LibreOffice is half a gigabyte. Needs the programs that it runs
(`writer`: libreoffice-writer, libreoffice-gtk3; `uno`: python3-uno as well; `mousepad`), an X
server (xvfb) and xdotool; installs nothing.  Each program opens a document of the mount, changes
and saves it twice and is closed.  Expected: one new version for each save, under the id that the
document had, with what was typed in it; the lock only on this machine, and nothing left behind.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.desktop.session import Session
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted
from tests.harness.waiting import eventually

SECONDS = 120.0  # LibreOffice may need a while, the first time
STARTED = "The document.\n"
TEXTS = ("paragraph", "text")  # roles
ADDED = ("First change. ", "Second change. ")
UNO = """
import sys, time, uno
from com.sun.star.beans import PropertyValue
local = uno.getComponentContext()
resolve = local.ServiceManager.createInstance("com.sun.star.bridge.UnoUrlResolver").resolve
for _ in range(600):
    try:
        context = resolve(f"uno:pipe,name={sys.argv[1]};urp;StarOffice.ComponentContext")
        break
    except Exception:
        time.sleep(0.2)
desktop = context.ServiceManager.createInstance("com.sun.star.frame.Desktop")
hidden = PropertyValue("Hidden", 0, True, 0)
url = uno.systemPathToFileUrl(sys.argv[2])
document = desktop.loadComponentFromURL(url, "_blank", 0, (hidden,))
print("open", flush=True)
for text in sys.stdin:
    document.Text.insertString(document.Text.Start, text.rstrip("\\n"), False)
    document.store()
    print("saved", flush=True)
document.close(True)
desktop.terminate()
"""


class Failed(Exception):
    """Error for a wrong result or a missing requirement."""


def require(*programs: str) -> None:
    for each in programs:
        if shutil.which(each) is None:
            raise Failed(f"{each} is missing: see the head of {Path(__file__).name}")


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


class Document:
    """Document of the mount while a program works on it."""

    def __init__(self, mounted: Mounted, name: str) -> None:
        self._mounted = mounted
        self.path = mounted.root / name
        self.name = name
        mounted.sync()
        self._id = mounted.zone.entry_id(name)
        self._first = len(mounted.zone.versions(name))
        self._around = set(mounted.zone.listing())

    def opened(self, lock: str) -> None:
        """Check after opening: the lock file is local and not on the service."""
        if lock:
            eventually((self.path.parent / lock).exists, SECONDS, what=f"the lock {lock}")

    def saved(self, times: int) -> None:
        """Check after that many saves."""
        versions = self._mounted.zone.versions
        wanted = self._first + times
        eventually(lambda: len(versions(self.name)) >= wanted, SECONDS, what=f"version {wanted}")
        self._mounted.sync()
        found = len(versions(self.name))
        expect(found == wanted, f"{times} saves made {found - self._first} versions")
        expect(self._mounted.zone.entry_id(self.name) == self._id, "the document has another id")
        expect(
            set(self._mounted.zone.listing()) == self._around, "something else is on the service"
        )
        text = _text(self._mounted.zone.read(self.name))
        for each in ADDED[:times]:
            expect(each.strip() in text, f"{each!r} is not in the version on the service: {text}")

    def closed(self) -> None:
        """Check that no local files are left."""
        eventually(
            lambda: set(_names(self.path.parent)) == self._around, SECONDS, what="all is tidied up"
        )


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def _text(data: bytes) -> str:
    if not data.startswith(b"PK"):
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as parts:
        return parts.read("content.xml").decode()


class Bench:
    """Mount and session in which programs are tested."""

    def __init__(self, mounted: Mounted, session: Session, pictures: Path | None) -> None:
        self.mounted = mounted
        self.session = session
        self._pictures = pictures
        self.profile = f"-env:UserInstallation={(mounted.machine.folder / 'office').as_uri()}"

    def tool(self, *command: str | Path) -> str:
        """Run a program to its end in the session."""
        return subprocess.run(
            command, env=self.session.environment, check=True, timeout=SECONDS,
            capture_output=True, encoding="utf-8",
        ).stdout  # fmt: skip

    def new_document(self, name: str) -> Document:
        """Create an .odt that LibreOffice itself wrote, or a text."""
        source = self.mounted.machine.folder / f"{Path(name).stem}.txt"
        source.write_text(STARTED)
        if name.endswith(".odt"):
            self.tool("soffice", self.profile, "--headless", "--convert-to", "odt",
                      "--outdir", source.parent, source)  # fmt: skip
            source = source.with_suffix(".odt")
        shutil.copy(source, self.mounted.root / name)
        return Document(self.mounted, name)

    def with_keys(self, document: Document, lock: str, *command: str | Path) -> None:
        """Type, save with Ctrl+S, twice, and quit with Ctrl+Q."""
        self.session.run(*command, document.path)
        window = eventually(
            lambda: self._window(document.name), SECONDS, what=f"a window of {document.name}"
        )
        document.opened(lock)
        eventually(self._shows_it, SECONDS, what="the document is shown")
        self.tool("xdotool", "windowsize", window, "1024", "700")
        self.tool("xdotool", "windowfocus", "--sync", window)
        for times, text in enumerate(ADDED, 1):
            self.tool("xdotool", "type", "--delay", "20", text)
            self.tool("xdotool", "key", "ctrl+s")
            document.saved(times)
            if self._pictures and times == 1:
                self.tool("import", "-window", "root", self._pictures / f"{document.path.stem}.png")
        self.tool("xdotool", "key", "ctrl+q")
        document.closed()

    def _shows_it(self) -> bool:
        """Return True if the text is on the screen: earlier keys are lost."""
        places = (each for each in self.session.screen.inside() if each.role in TEXTS)
        return any(STARTED.strip() in each.text and each.is_showing for each in places)

    def _window(self, name: str) -> str:
        found = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--name", f"{name} .*(Writer|Mousepad)"],
            env=self.session.environment, capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        return found.stdout.split()[0] if found.stdout.strip() else ""


def writer(bench: Bench) -> None:
    """Edit with LibreOffice Writer in its window."""
    require("soffice")
    document = bench.new_document("Offer.odt")
    command = ("soffice", bench.profile, "--norestore", "--nologo", "--nofirststartwizard")
    bench.with_keys(document, ".~lock.Offer.odt#", *command)


def uno(bench: Bench) -> None:
    """Edit with LibreOffice without a window, controlled by a program."""
    require("soffice", "/usr/bin/python3")
    document = bench.new_document("Report.odt")
    pipe = bench.mounted.machine.folder.name
    bench.session.run(
        "soffice", bench.profile, "--headless", "--norestore", f"--accept=pipe,name={pipe};urp"
    )
    with subprocess.Popen(
        ["/usr/bin/python3", "-c", UNO, pipe, document.path],
        env=bench.session.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as driver:  # fmt: skip
        assert driver.stdin is not None and driver.stdout is not None
        expect(driver.stdout.readline() == "open\n", "python3-uno is missing, or cannot open it")
        document.opened(".~lock.Report.odt#")
        for times, text in enumerate(ADDED, 1):
            driver.stdin.write(f"{text}\n")
            driver.stdin.flush()
            expect(driver.stdout.readline() == "saved\n", "it cannot be saved")
            document.saved(times)
        driver.stdin.close()
    document.closed()


def mousepad(bench: Bench) -> None:
    """Edit with a small editor with a window, which saves like GLib."""
    require("mousepad")
    bench.with_keys(bench.new_document("Notes.txt"), "", "mousepad")


PROGRAMS: dict[str, Callable[[Bench], None]] = {"writer": writer, "uno": uno, "mousepad": mousepad}


def attempt(programs: Sequence[str], pictures: Path | None) -> None:
    """Run the programs in turn on one mount."""
    require("Xvfb", "dbus-daemon", "xdotool", *(["import"] if pictures else []))
    folder = Path(tempfile.mkdtemp(prefix="zdo"))
    deployment = Deployment(folder)
    (folder / "m").mkdir()
    machine = Machine(folder / "m")
    mounted = Mounted(machine, deployment, deployment.fresh_zone(), ["settle=0.2"])
    try:
        machine.log_on(deployment, profile="sandbox")
        mounted.mount()
        for name in programs:
            with Session(machine.environment) as session:
                PROGRAMS[name](Bench(mounted, session, pictures))
            print(f"{name}: 2 saves, 2 versions, the same id, nothing left behind")
        complaints = mounted.complaints()
        expect(not complaints, "the daemon's log complains:\n" + "\n".join(complaints))
    finally:
        mounted.tear_down()
        deployment.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the requested programs, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.desktop.office")
    parser.add_argument("program", nargs="*", choices=[*PROGRAMS, []], help="which; all of them")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the screen")
    chosen = parser.parse_args()
    try:
        attempt(chosen.program or list(PROGRAMS), chosen.pictures)
    except (Failed, AssertionError) as wrong:
        print(f"office: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
