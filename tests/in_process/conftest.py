"""Fixture `desk`: a test's zones, in this process or, for some tests, on a real mount.

A test runs on a client in this process (`VirtualMount`). With the mark `also_mounted` it runs a
second time on a real mount of a sandbox, which has the same interface. The mark can name values of
the test's parameters; then only the cases with these values do.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import OPTIONS
from tests.harness.machine import Mounted
from tests.harness.virtual_mount import VirtualMount


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test in this process, and those with the mark `also_mounted` on a mount, too."""
    if "desk" in metafunc.fixturenames:
        kinds = [pytest.param("process")]
        if metafunc.definition.get_closest_marker("also_mounted"):
            kinds.append(pytest.param("mount", marks=pytest.mark.real_mount))
        metafunc.parametrize("desk", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the mounted cases that the mark does not name."""
    unwanted = [item for item in items if isinstance(item, pytest.Function) and not _wanted(item)]
    config.hook.pytest_deselected(items=unwanted)
    items[:] = [item for item in items if item not in unwanted]


def _wanted(item: pytest.Function) -> bool:
    marker = item.get_closest_marker("also_mounted")
    if marker is None or item.get_closest_marker("real_mount") is None:
        return True
    cases = item.callspec.params
    return all(cases[name] in _several(values) for name, values in marker.kwargs.items())


def _several(values: object) -> tuple[object, ...]:
    return values if isinstance(values, tuple) else (values,)


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mounted]:
    """Yield Alice's zones; unexpected warnings fail the test."""
    if request.param == "mount":
        yield request.getfixturevalue("dying" if _is_dying(request) else "mounted")
        return
    marker = request.node.get_closest_marker("mount")
    options = [*OPTIONS, *(marker.args if marker else ())]
    if _is_dying(request):
        options += ["settle=0", "refresh=600"]
    profile = str(marker.kwargs.get("profile", "sandbox")) if marker else "sandbox"
    mount = VirtualMount(tmp_path, *options, profile=profile)
    try:
        if not _is_dying(request):
            mount.mount()
        yield cast(Mounted, mount)
    finally:
        mount.close()
    complaints = mount.complaints()
    assert not complaints, "the log complains:\n" + "\n".join(complaints)


def _is_dying(request: pytest.FixtureRequest) -> bool:
    """Return True if the test mounts itself, with a place to die at."""
    return hasattr(request.module, "dying")
