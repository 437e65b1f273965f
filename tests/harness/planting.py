"""Faults in a daemon that `zonedrive mount` starts, whose interpreter reads them first.

A `sitecustomize` on PYTHONPATH replaces the one place where a background task is run.  A task whose
name is in the file `planted` of the machine raises an exception at its first wait.  So the code
around that moment (its own handlers, its nurseries) is the real one.  The sources contain nothing
for this.
"""

from collections.abc import Iterable

from tests.harness.machine import Machine

ONCE = "once"
ALWAYS = "always"

_SITE = '''
import os, types
from pathlib import Path

import outcome
import trio
from zonedrive import supervisor

FILE = Path(os.environ["PLANTED"])
done = set()


class Planted(Exception):
    pass


def wanted(task):
    for line in FILE.read_text().splitlines():
        how, _, name = line.partition(" ")
        if name == task and (how == "always" or name not in done):
            done.add(name)
            return True
    return False


@types.coroutine
def failing(work, wrong):
    """Drive `work`; where it waits for the first time, `wrong` takes the place of what it gets."""
    def give(*_):
        raise wrong

    given = None
    planted = False
    while True:
        try:
            trap = work.send(given)
        except StopIteration as ended:
            if not planted:
                raise wrong
            return ended.value
        abort = getattr(trap, "abort_func", None)
        if not planted and abort is not None:
            if abort(give) is trio.lowlevel.Abort.SUCCEEDED:
                given, planted = outcome.Error(wrong), True
                continue
            # A nursery catches it and ends its children; a thread continues.
            planted = "Nursery" in abort.__qualname__
        given = yield trap


def planted_call(self, task, work, *args):
    prepare()
    if wanted(str(task)):
        def work(*args):
            raise Planted(f"planted in {task}")
    return call(self, task, work, *args)


prepared = False


async def planted_run(self, task, work):
    prepare()
    if wanted(str(task)):
        wrong = Planted(f"planted in {task}")
        return await run(self, task, lambda: failing(work(), wrong))
    return await run(self, task, work)


def prepare():
    global prepared
    if not prepared:
        prepared = True
        first()


def first():
    pass


run = supervisor.Supervisor._run
supervisor.Supervisor._run = planted_run
call = supervisor.Supervisor.call
supervisor.Supervisor.call = planted_call
supervisor.STEADY_S = supervisor.REMEMBERED_S = 1.0
supervisor.LONGEST_PAUSE_S = 2.0
'''


class Plant:
    """Faults in the daemons that `machine` starts from now on."""

    def __init__(self, machine: Machine, more: str = "") -> None:
        """Install the hook; `more` is Python that may define `first`, which is called before the
        first task."""
        folder = machine.folder / "site"
        folder.mkdir()
        self._file = folder / "planted"
        self.lift()
        (folder / "sitecustomize.py").write_text(_SITE + more)
        machine.environment |= {"PYTHONPATH": str(folder), "PLANTED": str(self._file)}

    def put(self, how: str, tasks: Iterable[str]) -> None:
        """Let these tasks fail, ONCE or ALWAYS, when they are started."""
        new = self._file.with_suffix(".new")
        new.write_text("".join(f"{how} {task}\n" for task in tasks))
        new.replace(self._file)

    def lift(self) -> None:
        """End all faults."""
        self.put(ONCE, [])


def planted_in(log: str, task: str) -> bool:
    """Return True if the log has the traceback of the fault in that task."""
    return f"Planted: planted in {task}" in log
