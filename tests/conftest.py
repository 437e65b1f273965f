"""Fixtures of the mounted tests: a deployment, a separate zone on it, and a mount of the zone.

Every test has private XDG folders below a short temporary path, so that no test uses the
developer's own files or another test's account.
"""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.deployment import Deployment
from tests.harness.machine import Machine, Mounted

# The duration of an example depends on the machine, not on the tested code.  Each
# run tries the same ones; `--hypothesis-profile=search` looks for others, in a long run.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", PATIENT, derandomize=True)
settings.register_profile("search", PATIENT, max_examples=5000)
settings.load_profile("same")

TESTS = Path(__file__).parent
WINDOWS = tuple(
    str(TESTS / name)
    for name in (
        "desktop", "behaviour/test_window.py", "behaviour/test_signing_on_in_a_browser.py"
    )
)  # fmt: skip

# Quick uploads; everything else as a user has it.
OPTIONS = ("settle=0.2",)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and let Ctrl-C end programs however the tests were started.

    A shell without job control makes background processes ignore the signal, and children inherit
    that.
    """
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    config.addinivalue_line(
        "markers",
        "mount(*options, profile='sandbox'): -o options and deployment profile of `mounted`",
    )
    config.addinivalue_line("markers", "shared_mount: the test changes only its own zone")
    config.addinivalue_line("markers", "also_mounted: run the test on a real mount, too")
    config.addinivalue_line("markers", "real_mount: the test needs a daemon and a sandbox")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the imported modules and collected tests out of every garbage collection.

    They stay until the end. Each full collection would otherwise look at all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the shares of two workers with the tests of windows, which take longest.

    Each worker begins with an equal part of the tests, in their order. The end of the run would
    otherwise wait for a few tests of windows. More than two at once slow each other down.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = [item for item in items if str(item.path).startswith(WINDOWS)]
    of_windows = set(first)
    others = iter([item for item in items if item not in of_windows])
    total, shares = len(items), min(2, workers)
    items.clear()
    for number in range(workers):
        items += first[number::shares] if number < shares else []
        items += islice(others, total * (number + 1) // workers - len(items))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a failed test have no effect on the next ones.

    The traceback keeps what the test made.  When that is collected, each open file and each
    process is a warning, which would fail whichever test runs at that time.
    """
    failed = item.session.testsfailed
    done = yield
    if item.session.testsfailed > failed:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            gc.collect()
        for warning in found:
            if isinstance(warning.source, subprocess.Popen):
                warning.source.kill()
                warning.source.wait()
    return done


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a temporary folder with a short path, because a Unix socket's path ends at 107
    bytes."""
    path = Path(tempfile.mkdtemp(prefix="zd"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _own_folders() -> Iterator[None]:
    """Replace the folders, so that no test uses the developer's own account by mistake."""
    with pytest.MonkeyPatch.context() as patch, short_folder() as folder:
        for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "DATA_HOME", "RUNTIME_DIR"):
            patch.setenv(f"XDG_{name}", str(folder / name.lower()))
            (folder / name.lower()).mkdir(mode=0o700)
        patch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="session")
def _deployments() -> Iterator[list[Deployment]]:
    running: list[Deployment] = []
    yield running
    for deployment in running:
        deployment.close()
        shutil.rmtree(deployment.folder, ignore_errors=True)


@pytest.fixture
def deployment(_deployments: list[Deployment]) -> Iterator[Deployment]:
    """Yield a running sandbox without faults and with unused zones, which a worker's tests
    share."""
    if not _deployments or not _deployments[-1].is_usable():
        _deployments.append(Deployment(Path(tempfile.mkdtemp(prefix="zdsb"))))
    found = _deployments[-1]
    yield found
    if found.process.poll() is None:
        found.heal()


@pytest.fixture
def zone(deployment: Deployment) -> str:
    """Return the name of a zone that only this test uses, filled with `world.SEED`."""
    return deployment.fresh_zone()


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Yield a machine with private folders and the command, not logged on."""
    with short_folder() as folder:
        yield Machine(folder)


@pytest.fixture(scope="session")
def _logged_on() -> Iterator[dict[tuple[str, str], Machine]]:
    machines: dict[tuple[str, str], Machine] = {}
    yield machines
    for each in machines.values():
        shutil.rmtree(each.folder, ignore_errors=True)


@pytest.fixture
def shell(
    machine: Machine, deployment: Deployment, _logged_on: dict[tuple[str, str], Machine]
) -> Machine:
    """Return Alice's machine, logged on, nothing mounted."""
    machine.copy_account(_account(_logged_on, deployment, "published"))
    return machine


def _account(
    logged_on: dict[tuple[str, str], Machine], deployment: Deployment, profile: str
) -> Machine:
    """Return a machine that is logged on as Alice, to be copied."""
    key = (deployment.base_url, profile)
    if key not in logged_on:
        logged_on[key] = Machine(Path(tempfile.mkdtemp(prefix="zdlo")))
        logged_on[key].log_on(deployment, profile=profile)
    return logged_on[key]


def _bearer(machine: Machine) -> object:
    """Return the bearer of a machine, None after a logoff."""
    path = machine.state / "secrets.json"
    return json.loads(path.read_bytes()).get("bearer") if path.exists() else None


@pytest.fixture
def mounted(
    request: pytest.FixtureRequest,
    machine: Machine,
    deployment: Deployment,
    zone: str,
    _logged_on: dict[tuple[str, str], Machine],
) -> Iterator[Mounted]:
    """Yield Alice's mounted zones; unexpected warnings in the daemon's log fail the test."""
    marker = request.node.get_closest_marker("mount")
    options = [*OPTIONS, *(marker.args if marker else ())]
    profile = str(marker.kwargs.get("profile", "sandbox")) if marker else "sandbox"
    machine.copy_account(_account(_logged_on, deployment, profile))
    mount = Mounted(machine, deployment, zone, options)
    try:
        mount.mount()
        yield mount
    finally:
        if deployment.process.poll() is None:
            deployment.heal()
        mount.tear_down()
        shared = _logged_on[deployment.base_url, profile]
        if _bearer(machine) != _bearer(shared):  # a logoff may have revoked it
            del _logged_on[deployment.base_url, profile]
            shutil.rmtree(shared.folder, ignore_errors=True)
    complaints = mount.complaints()
    assert not complaints, "the daemon's log complains:\n" + "\n".join(complaints)
