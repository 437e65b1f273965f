"""Profile of an account whose profile file is not valid."""

from pathlib import Path

import pytest

from zonedrive.config import Settings
from zonedrive.daemon import service_commands
from zonedrive.errors import ProfileError
from zonedrive.logon.account import Account
from zonedrive.logon.account_profile import account_profile
from zonedrive.paths import AccountPaths
from zonedrive.remote.http_service import HttpService
from zonedrive.remote.profiles import load


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the administrator's folder, with the invalid profile `acme`."""
    for name in ("CONFIG_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr(load, "SYSTEM_FOLDER", tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "acme.toml").write_text("[nonsense]\n", "utf-8")
    (tmp_path / "own.toml").write_text("[nonsense]\n", "utf-8")
    return tmp_path


def account(profile: str) -> Account:
    """Return an account that was logged on with this profile."""
    return Account(
        name="work", base_url="https://a.example", username="alice", user_id="alice",
        organization="Acme", ca_file=None, profile=profile,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("logon", "setting"),
    [("acme", ""), ("gone", ""), ("published", "acme"), ("own.toml", "profiles/acme.toml")],
)
def test_published_replaces_a_wrong_profile_of_the_administrator(
    system: Path, logon: str, setting: str
) -> None:
    """The profile is replaced whoever named it, and in whatever form."""
    name = str(system / setting) if "/" in setting else setting
    found = account_profile(account(logon), Settings(profile=name or None))
    assert found.name == "published"
    assert found.wrong is not None
    assert found.find("delete") is None


@pytest.mark.parametrize(("logon", "setting"), [("published", "gone"), ("own.toml", "")])
def test_a_wrong_profile_of_the_user_is_an_error(system: Path, logon: str, setting: str) -> None:
    """The user can correct the file or the name, so a mount refuses it."""
    found = account(str(system / logon) if "." in logon else logon)
    with pytest.raises(ProfileError):
        account_profile(found, Settings(profile=setting or None))


def test_published_operations_need_no_mount(system: Path) -> None:
    """A command that asks the service itself works with a wrong profile of the administrator."""
    paths = AccountPaths("work")
    account("acme").save(paths)

    async def name(service: HttpService) -> str:
        return service.profile.name

    assert service_commands.ask(paths, name) == "published"
