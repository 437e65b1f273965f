"""Two machines, one folder, a bad network: confirmed content is kept, and no other appears.

    python -m tests.model.two_machines --minutes 20 --seed 1
    python -m tests.model.two_machines --round 17

The number of a round determines it: the users of the two machines, the profile, the operations and
the faults. Prints the operations before each finding, and continues.
"""

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPException
from pathlib import Path

from tests.crash.mounts import Mortal, mortal
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Machine
from tests.harness.waiting import eventually
from tests.model.claims import COPY, NOT_READ, Claims, History, head, short
from tests.model.programs import ASIDE, FOLDERS, NAMES, PATHS, Program, Trace

ZONES = 40
BURSTS = 8
STEPS = 8  # of each machine in a burst
FOLDER = "shared"
OPTIONS = ("settle=0.2", "refresh=1")
REFUSED = re.compile(r"refused(?: by the service| and rolled back)?: (.*)$")

ALLOWED = (
    "refused", "reach", "offline", "answer", "reply", "a conflict copy",
    "deleted on the service", "newer version on the service", "stays on the service",
    "has new entries on the service", "is retried", "taken in the united folder",
    "renamed by a coworker during the upload", "deleted on the service during the upload",
)  # fmt: skip
"""Expected warnings; refusals are compared with the service's answers."""

FAULTS: tuple[dict[str, object], ...] = (
    {"latency_ms": 60},
    {"latency_ms": 250},
    {"status": 503, "error": "NOT_AVAILABLE", "method": "POST", "times": 3},
    {"status": 503, "error": "NOT_AVAILABLE", "times": 5},
    {"drop_reply": True, "method": "POST", "times": 2},
    {"drop_reply": True, "method": "PUT", "times": 2},
    {"drop_reply": True, "method": "DELETE", "times": 1},
    {"drop_reply": True, "times": 3},
    {"cut_after": 100, "method": "GET", "times": 2},
    {"cut_after": 30_000, "times": 3},
    {"stall": 1.0, "times": 2},
    {"down": True},
)


class Finding(AssertionError):
    """Violation of a guarantee that a round has found."""


@dataclass
class Side:
    """Machine, and the service's answers to it."""

    who: str
    mount: Mortal
    program: Program
    said: list[str] = field(default_factory=list)  # the messages of its answers of 400 to 499


class Service:
    """Deployment with a connection for each machine, on which every answer is recorded."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.deployment = Deployment(folder, zones=ZONES, world_file=_world(folder))
        self.ways = {who: FaultProxy(self.deployment) for who in "AB"}
        self.answers: dict[str, list[str]] = {who: [] for who in self.ways}
        for who, way in self.ways.items():
            way.about = lambda _asked: True
            way.alter = self._note(self.answers[who])
        self._accounts: dict[tuple[str, str, str], Machine] = {}
        self._folder = folder

    @staticmethod
    def _note(answers: list[str]) -> Callable[[Answer], None]:
        def note(answer: Answer) -> None:
            if 400 <= answer.status < 500:
                with suppress(ValueError, AttributeError):
                    answers.append(str(json.loads(answer.body).get("message", "")))

        return note

    def account(self, who: str, user: str, profile: str) -> Machine:
        """Return a machine that is logged on through that connection."""
        key = who, user, profile
        if key not in self._accounts:
            machine = Machine(self._folder / "-".join(key))
            machine.log_on(self.ways[who], name=user, profile=profile)
            self._accounts[key] = machine
        return self._accounts[key]

    def histories(self, zone: str) -> list[History]:
        """Return every file that ever was in the zone, from the service's own records."""
        data = self.deployment.folder / "data"
        with sqlite3.connect(f"file:{data}/sandbox.db?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT id, parent_id, name, folder FROM entries WHERE zone_id = ?",
                (zone,),
            ).fetchall()
            versions = database.execute(
                "SELECT entry_id, id, modified_us FROM versions ORDER BY number"
            )
            made: dict[str, list[tuple[str, float]]] = {}
            for entry, version, at_us in versions:
                made.setdefault(entry, []).append((version, at_us / 1e6))
        names = {row[0]: (row[1], row[2]) for row in rows}

        def path(entry: str) -> str:
            parent, name = names[entry]
            return f"{path(parent)}/{name}" if parent in names and names[parent][0] else name

        def token(version: str) -> str | None:
            return head((data / "content" / version[:2] / version).read_bytes())

        found = []
        for entry in [entry for entry, _, _, folder in rows if not folder]:
            tokens = tuple(token(version) for version, _ in made.get(entry, ()))
            times = tuple(at for _, at in made.get(entry, ()))
            found.append(History(entry, path(entry), tokens, times))
        return found

    def close(self) -> None:
        """Close everything."""
        for way in self.ways.values():
            way.close()
        self.deployment.close()


def _world(folder: Path) -> Path:
    """Return a world of empty zones."""
    lines = [f'[organization]\nname = "Acme"\ndomain = "{world.DOMAIN}"\n']
    for name, password in world.PASSWORDS.items():
        user = f'id = "{name}@{world.DOMAIN}"\nname = "{name}"\npassword = "{password}"\n'
        lines.append(f"[[users]]\n{user}administrator = true\n")
    member = f'members = [{{ id = "bob@{world.DOMAIN}", access = "Modify" }}]'
    for number in range(1, ZONES + 1):
        manager = f'manager = "alice@{world.DOMAIN}"\n{member}'
        lines.append(f'[[zones]]\nname = "Zone {number:02}"\n{manager}\n')
    path = folder / "world.toml"
    path.write_text("\n".join(lines), "utf-8")
    return path


class Round:
    """Work in one folder, from its creation to the comparison."""

    def __init__(self, service: Service, number: int) -> None:
        self.numbers = random.Random(number)
        self._pauses = random.Random(number)  # of the uploads; the other numbers stay the same
        self.trace, self.claims, self._lock = Trace(), Claims(), threading.Lock()
        self.profile = "published" if number % 3 == 2 else "sandbox"
        self.users = ("alice", "bob") if number % 2 else ("alice", "alice")
        self.done: Counter[str] = Counter()
        self._service = service
        self._zone = service.deployment.fresh_zone()
        self._web = service.deployment.person("bob").zone(self._zone)
        self._sides: list[Side] = []

    def run(self, bursts: int, steps: int) -> list[str]:
        """Run the round; return the findings."""
        findings: list[str] = []
        with ExitStack() as stack:
            try:
                self._begin(stack)
                for _ in range(bursts):
                    self._burst(steps)
                self._end()
            except Exception as wrong:
                found = "" if isinstance(wrong, Finding) else traceback.format_exc()
                findings.append(f"{wrong}\n{found}".strip())
            finally:
                with suppress(AssertionError, OSError):
                    self._service.deployment.heal()
            findings += [each for side in self._sides for each in side.program.wrong]
            findings += self._complaints()
            for side in self._sides:
                self.done += side.program.done
            if findings:
                findings += [f"log of {side.who}:\n{side.mount.log()}" for side in self._sides]
        return findings

    # ---- the days ----

    def _begin(self, stack: ExitStack) -> None:
        self._web.make_folder(FOLDER)
        for folder in FOLDERS[1:]:
            self._web.make_folder(f"{FOLDER}/{folder}")
        for path in PATHS:
            if self.numbers.random() < 0.7:
                self._web_writes(path)
        for who, user in zip("AB", self.users, strict=True):
            account = self._service.account(who, user, self.profile)
            way = mortal(account, self._service.deployment, self._zone, OPTIONS)
            mount = stack.enter_context(way)
            mount.allow(*ALLOWED)
            mount.mount()
            program = Program(who, mount.root / FOLDER, self.claims, self._lock, self.trace)
            answers = self._service.answers[who]
            answers.clear()
            self._sides.append(Side(who, mount, program, answers))

    def _burst(self, steps: int) -> None:
        """Let both machines work for a while, with a possible fault."""
        numbers, deployment = self.numbers, self._service.deployment
        fault = numbers.choice(FAULTS) if numbers.random() < 0.6 else None
        death = numbers.choice(self._sides) if numbers.random() < 0.3 else None
        asleep = numbers.uniform(0.02, 0.5)
        plans = [self._plan(numbers.randrange(1 << 32), side, steps) for side in self._sides]
        if numbers.random() < 0.3:
            plans = self._crossing()
        paused = [side for side in self._sides if self._pauses.random() < 0.2]
        plans += [self._pausing(side) for side in paused]
        for side in self._sides:
            away = side.mount.ask("status", 20, paths=[])["state"] != "online"
            side.program.troubled = bool(fault or death or away or side in paused)
        if fault:
            self.trace.note("-", f"fault {fault}")
            deployment.fault(**fault)
        if numbers.random() < 0.1:
            self.trace.note("-", "sessions end")
            deployment.tell({"expire_sessions": True})
        threads = [threading.Thread(target=plan) for plan in plans]
        for thread in threads:
            thread.start()
        if death is not None:
            time.sleep(asleep)
            self.trace.note(death.who, "dies")
            death.mount.kill()
            # A write waits for ever if the dead daemon was just dropping pages of the same file:
            # its thread in the kernel waits for the write, and keeps the connection open.
            subprocess.run(["umount", "-f", death.mount.path], capture_output=True, check=False)
        for thread in threads:
            thread.join(120)
        if any(thread.is_alive() for thread in threads):
            raise Finding("a program hangs")
        deployment.heal()
        self._web = deployment.person("bob").zone(self._zone)
        if death is not None:
            self.trace.note(death.who, "is back")
            death.mount.mount()
        for side in paused:
            side.mount.ask("resume", 20)
        for side in self._sides:
            self._compare_refusals(side)
            if numbers.random() < 0.2:
                self._sync(side, final=False)
        if numbers.random() < 0.5:
            self._web_works()

    def _plan(self, seed: int, side: Side, steps: int) -> Callable[[], None]:
        def work() -> None:
            numbers = random.Random(seed)
            for _ in range(steps):
                side.program.step(numbers)

        return work

    def _pausing(self, side: Side) -> Callable[[], None]:
        """Pause the uploads of a machine while it works, and send some files nevertheless."""
        waits = [self._pauses.uniform(0.0, 0.4) for _ in range(2)]
        path = self._pauses.choice(PATHS)

        def work() -> None:
            with suppress(OSError):  # the daemon dies
                time.sleep(waits[0])
                self.trace.note(side.who, "pauses")
                side.mount.ask("pause", 20)
                time.sleep(waits[1])
                sent = side.mount.ask("send", 20, paths=[f"{side.mount.root}/{FOLDER}/{path}"],
                                      timeout=5)  # fmt: skip
                self.trace.note(side.who, f"sends {path}: {sent.get('exit', sent.get('error'))}")

        return work

    def _crossing(self) -> list[Callable[[], None]]:
        """Edit a file on one machine, while the other moves it and replaces it by another."""
        path, other, place = self.numbers.sample(PATHS, 3)
        verb = self.numbers.choice(("save_within", "append", "aside", "save_over", "save"))
        editor, mover = self.numbers.sample(self._sides, 2)
        pause = self.numbers.choice((0.0, 0.3, 1.2))

        def edit() -> None:
            editor.program.do("list_all", "")
            time.sleep(pause)
            editor.program.do(verb, path, place, 10)

        def move() -> None:
            mover.program.do("rename", path, place)
            mover.program.do("rename", other, path)
            mover.program.do("save_within", place, "", 20)

        return [edit, move]

    # ---- somebody at a browser ----

    def _web_writes(self, path: str) -> None:
        with self._lock:
            token, line = self.claims.begin("W", NOT_READ)
            self.claims.saved("W", path, token)
        self._web.write(f"{FOLDER}/{path}", line)
        self.trace.note("W", f"saved {token} at {path}")

    def _web_works(self) -> None:
        """Write, rename, remove or restore an entry as a person in a browser."""
        path, other = self.numbers.sample(PATHS, 2)
        what = self.numbers.choice(("write", "write", "move", "delete", "restore"))
        self.trace.note("W", f"{what} {path} {other}")
        with suppress(
            AssertionError, HTTPException, OSError
        ):  # not there, taken, or in a lost folder
            if what == "write":
                self._web_writes(path)
            elif what == "move":
                with self._lock:
                    self.claims.renamed("W", path, other)
                self._web.move(f"{FOLDER}/{path}", f"{FOLDER}/{other}")
            elif what == "delete":
                self._web.delete(f"{FOLDER}/{path}")
            elif trash := self._web.trash():
                self._web.restore(trash[-1]["id"])

    # ---- the end ----

    def _end(self) -> None:
        for side in self._sides:
            side.program.troubled = False
            side.program.clean_up()
        for final in (False, False, True):
            for side in self._sides:
                self._sync(side, final=final)
        try:
            eventually(self._agree, what="both machines show what the service has")
        except AssertionError as wrong:
            raise Finding(f"no agreement: {self._differences()}") from wrong
        for side in self._sides:
            self._sync(side, final=True)
        allowed = {side.program.draft for side in self._sides if self.profile == "published"}
        strays = [path for path in self._there() if not _expected(path, allowed)]
        found = [f"a stray entry: {path}" for path in strays]
        found += self.claims.findings(self._service.histories(self._web.id))
        if found:
            raise Finding("\n".join(found))

    def _sync(self, side: Side, *, final: bool) -> None:
        """Send everything that was saved; before the end, name changes may have been refused."""
        with self._lock:
            before = {**self.claims.here(side.who)}
        answer = side.mount.ask("sync", 70, paths=[], timeout=60)
        self.trace.note(side.who, f"sync exits with {answer.get('exit')}")
        self._compare_refusals(side)
        left = {key: answer.get(key) for key in ("reason", "left", "failed", "lost", "taken_back")}
        if answer.get("exit") == 0:
            with self._lock:
                self.claims.sent(before)
        elif final or not answer.get("taken_back"):
            raise Finding(f"sync of {side.who} exits with {answer.get('exit')}: {left}")

    def _compare_refusals(self, side: Side) -> None:
        """Check that every reported refusal was an answer of the service."""
        try:
            status = side.mount.ask("status", 20, paths=[], most=1000)
        except OSError:
            return
        told = [(one["cause"], one["error"], one["path"]) for one in status["uploads"]]
        wrong = [one for one in told if one[0] in ("local", "unclear", "unexpected")]
        said = [error for cause, error, _ in told if cause == "refused"]
        said += [found[1] for line in side.mount.log().splitlines()
                 if (found := REFUSED.search(line))]  # fmt: skip
        wrong += [("refused", each, "by nobody") for each in said
                  if not any(answer and answer in each for answer in side.said)]  # fmt: skip
        if wrong:
            raise Finding(f"{side.who} says {wrong}; the service said {side.said[-20:]}")

    def _complaints(self) -> list[str]:
        return [f"{side.who} logged {each}" for side in self._sides
                for each in side.mount.complaints()]  # fmt: skip

    def _there(self) -> dict[str, bytes | None]:
        tree = self._web.tree(FOLDER)
        return {path.removeprefix(f"{FOLDER}/"): content for path, content in tree.items()}

    def _here(self, side: Side) -> dict[str, bytes | None]:
        root = side.mount.root / FOLDER
        found: dict[str, bytes | None] = {}
        for path in sorted(root.rglob("*")):
            try:
                content = None if path.is_dir() else path.read_bytes()
            except OSError as wrong:
                content = f"{wrong.strerror}, {_attributes(path)}".encode()
            found[str(path.relative_to(root))] = content
        return found

    def _agree(self) -> bool:
        there = self._there()
        return all(self._here(side) == there for side in self._sides)

    def _ids(self, folder: str = FOLDER) -> dict[str, str]:
        found = {}
        for name, entry in self._web.listing(folder).items():
            found[f"{folder}/{name}"] = entry["id"]
            if entry["folder"]:
                found |= self._ids(f"{folder}/{name}")
        return found

    def _differences(self) -> str:
        """Return the differences between the machines and the service."""
        there, said = self._there(), []
        for side in self._sides:
            here = self._here(side)
            for path in sorted(here.keys() | there.keys()):
                one, other = here.get(path, b"(none)"), there.get(path, b"(none)")
                if one != other:
                    said.append(f"{side.who} {path}: {short(one)}, the service {short(other)}")
        said.append(f"ids on the service: {self._ids()}")
        return "; ".join(said)


def _attributes(path: Path) -> str:
    """Return the attributes of an entry that cannot be read."""
    with suppress(OSError):
        return ", ".join(
            f"{name}={os.getxattr(path, name).decode()}"
            for name in ("user.zonedrive.id", "user.zonedrive.state")
        )
    return "which is gone"


def _expected(path: str, allowed: Container[str]) -> bool:
    """Return True if an entry of that name was requested, or it is a conflict copy of one."""
    plain = COPY.sub("", path)
    folder, _, name = plain.rpartition("/")
    known = {part for each in FOLDERS for part in each.split("/") if part}
    name = name.removesuffix(ASIDE)
    is_known = name in NAMES or name in known or name in allowed
    return is_known and set(folder.split("/")) <= known | {""}


class Run:
    """Rounds, one after the other."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zd2m"))
        self.service: Service | None = None
        self.done: Counter[str] = Counter()

    def play(self, number: int, bursts: int = BURSTS, steps: int = STEPS) -> list[str]:
        """Play the round of that number; return its findings with the operations before."""
        if self.service is None or not self.service.deployment.is_usable():
            if self.service is not None:
                self.service.close()
            self.service = Service(self.folder / f"service-{number}-{time.monotonic_ns()}")
        played = Round(self.service, number)
        findings = played.run(bursts, steps)
        self.done += played.done
        return [*played.trace.lines, *findings] if findings else []

    def close(self) -> None:
        """Close everything."""
        if self.service is not None:
            self.service.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> None:
    """Run the long test; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the number of the first round")
    parser.add_argument("--round", type=int, help="play this one alone")
    given = parser.parse_args()
    run, found = Run(), 0
    number = given.seed if given.round is None else given.round
    end = time.monotonic() + 60 * (given.minutes if given.round is None else 0)
    try:
        while True:
            findings = run.play(number)
            found += bool(findings)
            for line in findings:
                print(line)
            outcome = "FOUND" if findings else "well"
            said = f"{run.done.total()} operations, {found} rounds with findings"
            print(f"{datetime.now():%H:%M:%S} round {number}: {outcome}; {said}", flush=True)
            number += 1
            if time.monotonic() > end:
                break
    finally:
        run.close()
    print(dict(run.done))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
