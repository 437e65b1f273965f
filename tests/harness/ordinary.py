"""Ordinary user without root's rights, who has a mount and works in it.

Knows nothing of the work.
"""

import importlib
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from tests.harness.machine import Address, Machine
from tests.harness.surroundings import NOBODY, Person

_P = ParamSpec("_P")
_R = TypeVar("_R")


class OrdinaryMachine(Machine):
    """Machine whose folders and commands are that user's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "Zones").mkdir()
        self._person = Person(self)

    def run(
        self, *arguments: str | Path, text: str = "", seconds: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command as that user."""
        return self._person.run(*arguments, text=text)

    def log_on(
        self,
        deployment: Address,
        *,
        name: str = "alice",
        profile: str,
        options: Sequence[str] = (),
    ) -> None:
        """Log on with a password, and with a certificate that this user may read."""
        certificate = self.folder / "ca.pem"
        shutil.copy(deployment.ca_file, certificate)
        self._person.give(certificate)
        service = _Service(deployment.base_url, certificate)
        super().log_on(service, name=name, profile=profile, options=options)


@dataclass
class _Service:
    base_url: str
    ca_file: Path


class Worker:
    """Caller of functions in a process of that user, one after the other; opened files stay
    open."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        """Use the pool of processes; None: this process."""
        self._pool = pool
        self.is_root = pool is None and os.geteuid() == 0

    def do(self, function: Callable[_P, _R], *arguments: _P.args, **named: _P.kwargs) -> _R:
        """Call a function of a module; return its result, or raise its error."""
        if self._pool is None:
            return function(*arguments, **named)
        return self._pool.submit(function, *arguments, **named).result(60)


@contextmanager
def working(*modules: str) -> Iterator[Worker]:
    """Yield a process of the ordinary user that has imported these modules."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _become, (modules,)) as pool:
        yield Worker(pool)


def _become(modules: tuple[str, ...]) -> None:
    for name in modules:  # the checkout may be in a folder that only root may enter
        importlib.import_module(name)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
