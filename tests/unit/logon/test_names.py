"""Public names of the packages, and the cost of their import."""

import subprocess
import sys

import pytest

import zonedrive.logon
import zonedrive.remote


def test_a_command_that_needs_no_client_loads_none() -> None:
    """Reading the account imports no HTTP client, so that mounting is faster."""
    code = "import sys, zonedrive.logon.account; print(*sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "zonedrive.service_address" in ended.stdout.split()
    assert not {"httpx", "trio", "zonedrive.remote.client"} & set(ended.stdout.split())


@pytest.mark.parametrize("package", [zonedrive.logon, zonedrive.remote])
def test_every_name_is_there(package: object) -> None:
    """All names in `__all__` can be imported, and no other ones."""
    names = package.__all__  # type: ignore[attr-defined]
    assert all(getattr(package, name) is getattr(package, name) for name in names)
    assert not [name for name in names if type(getattr(package, name)).__name__ == "module"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018
