"""Settings: a mistake is one line that names the place, the setting and the remedy."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from zonedrive import config
from zonedrive.config import POLICIES, Settings
from zonedrive.errors import BadOption, ConfigError, NotSupported
from zonedrive.remote.profiles.load import load_profile
from zonedrive.remote.transport import tls


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def organization(file: Path, text: str) -> config.Organization:
    """Return the settings of an administrator whose file is in a folder beside the user's file."""
    folder = file.parent / "etc"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text, "utf-8", "surrogateescape")
    return config.organization("default", folder)


def test_without_a_file_the_defaults_hold(file: Path) -> None:
    """All settings have defaults."""
    assert config.load(file, "default") == Settings()


@pytest.mark.parametrize(
    "text", ["settle = " + "9" * 5000, "settle = " + "[" * 900, "x = [\n" + "[\n" * 2000]
)
def test_a_file_that_the_parser_gives_up_on_is_refused(file: Path, text: str) -> None:
    """The error names the file."""
    file.write_text(f"\n{text}\n")
    with pytest.raises(ConfigError, match=r"config\.toml(, line 2)? cannot be read"):
        config.load(file, "default")


def test_the_file_an_account_and_an_option_override_in_this_order(file: Path) -> None:
    """An option overrides the account's table, which overrides the top level."""
    file.write_text('settle = 5\nrefresh = 7\nclose = "wait"\n[account.work]\nrefresh = 8\n')
    found = config.load(file, "work", {"settle": "6"})
    assert (found.settle, found.refresh, found.close) == (6.0, 8.0, "wait")
    assert config.load(file, "default").refresh == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settle", "nan"),
        ("settle", "1e12"),
        ("settle", "-1"),
        ("settle", "soon"),
        ("cache_size", "-5"),
        ("cache_size", "1e3"),
        ("connections", "0"),
        ("encrypt", "perhaps"),
        ("close", "maybe"),
        ("setle", "1"),
        ("settle", "\udc80"),
        ("profile", "a\0.toml"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(file: Path, name: str, text: str) -> None:
    """A wrong value is rejected at the start, not during a later write."""
    with pytest.raises(ConfigError, match=name) as refused:
        config.load(file, "default", {name: text})
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10G", 10 << 30),
        ("500M", 500 << 20),
        ("64 KiB", 65_536),
        ("2g", 2 << 30),
        ("1TB", 1 << 40),
        ("7", 7),
    ],
)
def test_a_size_may_have_a_unit(file: Path, text: str, size: int) -> None:
    """Units are powers of 1024, in the file and behind -o."""
    assert config.load(file, "default", {"cache_size": text}).cache_size == size
    file.write_text(f'upload_limit = "{text}"\n')
    assert config.load(file, "default").upload_limit == min(size, 1 << 40)


@pytest.mark.parametrize("text", ["10X", "G", "1.5G", "-1G", "9" * 19, "99999999999T"])
def test_the_error_for_a_wrong_size_has_an_example(file: Path, text: str) -> None:
    """The error shows a valid size."""
    with pytest.raises(ConfigError, match="cache_size") as refused:
        config.load(file, "default", {"cache_size": text})
    assert "use " in refused.value.line()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("settle = inf\n", "config.toml:1: settle"),
        ('\nclose = "maybe"\n', "config.toml:2: close cannot be 'maybe'; use background or wait"),
        ("sttle = 1\n", "did you mean settle"),
        ("settle = \n", "cannot be read"),
        ('account = "x"\n', "account must be tables"),
        ("local_only = 3\n", "a list of texts"),
        ("settle = 1\n[account.default]\nsettle = -1\n", "config.toml:3: settle"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(file: Path, text: str, said: str) -> None:
    """The error names file and line."""
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        config.load(file, "default")
    assert said in refused.value.line()


def test_a_file_that_is_not_text_is_refused(file: Path) -> None:
    """The error is one line; a pipe or a device, which may never end, is not read."""
    for make, said in (
        (lambda: file.write_bytes(b"settle = 1\nprofile = '\xff'\n"), "config.toml:2: not UTF-8"),
        (lambda: file.write_bytes(b"#" * (config.LONGEST + 1)), "is longer than"),
        (lambda: file.mkdir(), "is not a file"),
        (lambda: os.mkfifo(file), "is not a file"),
        (lambda: file.symlink_to("/dev/zero"), "is not a file"),
    ):
        make()
        with pytest.raises(ConfigError) as refused:
            config.load(file, "default")
        assert said in refused.value.line() and "\n" not in refused.value.line()
        file.rmdir() if file.is_dir() else file.unlink()


@pytest.mark.parametrize("link", ["etc/config.toml", "etc"])
def test_a_link_without_a_target_is_no_missing_file(tmp_path: Path, link: str) -> None:
    """The target may be on a disk that is not mounted yet: all policies are closed."""
    place = tmp_path / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "absent")
    system = config.organization("default", tmp_path / "etc")
    assert set(system.closed) == set(POLICIES)
    assert f"{place} is a broken link" in system.problems[0].message
    for use in (
        lambda: config.load(tmp_path / "etc/config.toml", "default"),
        lambda: config.change(tmp_path / "etc/config.toml", "default", {"settle": "1"}),
    ):
        with pytest.raises(ConfigError, match="is a broken link"):
            use()


def test_a_file_may_be_absent_from_the_target_of_a_link(tmp_path: Path) -> None:
    """This is the same as an absent file in a folder."""
    (tmp_path / "there").mkdir()
    (tmp_path / "etc").symlink_to("there")
    assert config.load(tmp_path / "etc/config.toml", "default") == Settings()
    assert config.organization("default", tmp_path / "etc").closed == {}


def test_a_profile_is_relative_to_where_it_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in the file is relative to the file, behind -o to the working directory."""
    monkeypatch.chdir(tmp_path)
    file.write_text('profile = "ours.toml"\n')
    assert config.load(file, "default").profile == str(file.parent / "ours.toml")
    there = config.load(file, "default", {"profile": "sub/theirs.toml"}).profile
    assert there == str(tmp_path / "sub/theirs.toml")
    assert config.load(file, "default", {"profile": "/etc/x.toml"}).profile == "/etc/x.toml"
    assert config.load(file, "default", {"profile": "sandbox"}).profile == "sandbox"


def test_options_need_no_working_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the relative path of a profile needs the working directory."""
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    options = {"settle": "6", "profile": "/etc/x.toml"}
    assert config.load(file, "default", options).settle == 6
    with pytest.raises(FileNotFoundError):
        config.load(file, "default", {"profile": "sub/theirs.toml"})


SYSTEM = """
refresh = 30
[account.default]
base_url = "https://service.example"
ca_file = "ca.pem"
profile = "acme"
[policy]
encrypt = true
cache_size = "5G"
local_only = ["*.pst"]
save_password = false
"""


def test_defaults_of_the_administrator_are_below_the_users_settings(file: Path) -> None:
    """The user's file overrides them; a profile among them is for logons only."""
    system = organization(file, SYSTEM)
    assert config.load(file, "default", system=system).refresh == 30
    file.write_text("refresh = 7")
    found = config.load(file, "default", system=system)
    assert (found.refresh, found.profile) == (7, None)
    assert (system.base_url, system.profile) == ("https://service.example", "acme")
    assert system.ca_file == str(file.parent / "etc/ca.pem")
    assert not system.problems
    assert config.organization("work", file.parent / "etc").base_url is None
    (file.parent / "etc/config.toml").write_text('profile = "acme"')
    system = config.organization("work", file.parent / "etc")
    assert (system.profile, config.load(file, "work", system=system).profile) == ("acme", None)


def test_neither_file_nor_option_overrides_a_policy(file: Path) -> None:
    """Lists can be extended; each overruled value is told."""
    system = organization(file, SYSTEM)
    file.write_text('encrypt = false\nlocal_only = ["mine"]\n[account.default]\ncache_size = 1')
    told: list[str] = []
    options = {"encrypt": "no", "cache_size": "2G"}
    found = config.load(file, "default", options, system=system, tell=told.append)
    assert (found.encrypt, found.cache_size) == (True, 5 << 30)
    assert (found.local_only, found.never_uploaded) == (("*.pst", "mine"), ("*.pst",))
    assert [line.split()[0] for line in told] == ["encrypt", "cache_size"]
    assert not system.allows_saved_password
    assert not system.is_read_only


def test_saves_without_a_change_can_be_versions_at_each_level(file: Path) -> None:
    """An option overrides the account's table, and a policy overrides both."""
    file.write_text('[account.work]\nunchanged = "version"')
    assert config.load(file, "default").unchanged == "skip"
    assert config.load(file, "work").unchanged == "version"
    options = {"unchanged": "skip"}
    assert config.load(file, "work", options).unchanged == "skip"
    system = organization(file, '[policy]\nunchanged = "version"')
    assert config.load(file, "work", options, system=system).unchanged == "version"


@pytest.mark.parametrize(
    "text",
    [
        "[policy",
        "[policy]\nlocla_only = []",
        "policy = 1",
        "\udcff",
        "[Policy]\nencrypt = true",
        "[polcy]\nencrypt = true",
        "[[Policies]]\nencrypt = true",
    ],
)
def test_an_unreadable_policy_forbids_all_that_it_could(file: Path, text: str) -> None:
    """Mounts are read-only and encrypted, there is no logon, and the problem names the file."""
    system = organization(file, text)
    assert set(system.closed) == set(POLICIES)
    assert system.is_read_only
    assert not system.allows_logon
    assert not system.allows_saved_password
    file.write_text('encrypt = false\nprofile = "other"\ncache_size = "20G"\nguard = []')
    found = config.load(file, "default", system=system)
    assert found == Settings(never_uploaded=("*",))
    assert str(file.parent / "etc/config.toml") in system.problems[0].message


@pytest.mark.parametrize("glob", ["HR/*.xlsx", "/x.pst", ""])
def test_a_policy_whose_names_no_file_can_have_forbids_all_uploads(file: Path, glob: str) -> None:
    """Such a glob would have no effect, because names are compared without their folders."""
    system = organization(file, f'[policy]\nlocal_only = ["*.pst", "{glob}"]\n')
    assert system.is_read_only
    (problem,) = system.problems
    assert f"config.toml:2: local_only cannot have {glob!r}" in problem.line()


@pytest.mark.parametrize(
    ("name", "item"),
    [("local_only", "mail/*.pst"), ("local_only", ""), ("guard", "/usr/bin/x"), ("guard", "x/")],
)
def test_an_item_of_a_list_that_matches_nothing_is_an_error(
    file: Path, name: str, item: str
) -> None:
    """The user's list has no effect; the administrator's other items keep theirs."""
    text = f'settle = 2\n{name} = ["good", "{item}"]\n'
    file.write_text(text)
    wanted = f"config.toml:2: {name} cannot have {item!r}, which matches nothing"
    with pytest.raises(ConfigError, match=re.escape(wanted)) as wrong:
        config.load(file, "default")
    assert wrong.value.remedy == "use names without folders"
    with pytest.raises(ConfigError, match=f"{name} cannot have"):
        config.change(file, "default", {name: item or "a/b/"})
    system = organization(file, text)
    assert [wanted in problem.line() for problem in system.problems] == [True]
    file.write_text("")
    assert "good" in getattr(config.load(file, "default", system=system), name)
    if item:
        with pytest.raises(BadOption, match=f"-o: {name} cannot have"):
            config.load(file, "default", {name: f"good:{item}"})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[account]\nsettle = 20\nrefresh = 1\n", 2, "account must be tables"),
        ("refresh = 2\n[account.Default]\nsettle = 20\n", 2, "'Default' is not an account name"),
        ('[account.work]\n[account."Bad Name"]\n', 2, "'Bad Name' is not an account name"),
    ],
)
def test_settings_in_a_table_of_no_account_are_an_error(
    file: Path, text: str, line: int, words: str
) -> None:
    """The error names the line; in the administrator's file it is a problem, and the rest holds."""
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"config.toml:{line}: {words}"):
        config.load(file, "default")
    system = organization(file, text)
    assert f"config.toml:{line}: {words}" in system.problems[0].message
    assert not system.closed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ca_file", '""'),
        ("profile", '""'),
        ("profile", r'"/a\u0000b"'),
        ("state_dir", '"relative"'),
        ("state_dir", "1"),
        ("state_dir", r'"/a\u0000b"'),
    ],
)
def test_a_policy_with_a_value_of_no_use_is_closed(file: Path, name: str, value: str) -> None:
    """Commands would crash, or a second state folder would hide the changes in the first one."""
    system = organization(file, f"[policy]\n{name} = {value}\n")
    assert set(system.closed) == {name}
    assert not system.allows_logon
    assert f"config.toml:2: {name} cannot be" in system.problems[0].message


@pytest.mark.parametrize("table", ["policy", "Policy"])
def test_a_refused_logon_names_the_policy_that_forbids_it(file: Path, table: str) -> None:
    """A user could not pass the right problem on to the administrator."""
    text = f'settle = "x"\n[{table}]\nencrypt = "perhaps"\nbase_url = "http://a.example"\n'
    system = organization(file, text)
    line = 4 if table == "policy" else 2
    with pytest.raises(ConfigError, match=rf"config\.toml:{line}: ") as refused:
        system.check_logon(ca_file=None, profile=None, save_password=False)
    assert table == "policy" or refused.value.remedy == "did you mean policy?"


def test_a_file_with_many_errors_is_parsed_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command and mount of every user would wait for many seconds."""
    parsed: list[str] = []
    loads = tomllib.loads

    def parse(text: str) -> dict[str, Any]:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", parse)
    file.write_text("".join(f"unknown{number} = 1\n" for number in range(100)))
    system = config.organization("default", file.parent)
    assert "config.toml:100: there is no setting 'unknown99'" in system.problems[-1].message
    assert len(parsed) <= 2  # the second time for the line numbers


def test_one_wrong_policy_closes_only_that_one(file: Path) -> None:
    """The others apply; a wrong default is ignored."""
    text = 'settle = "x"\n[policy]\nencrypt = "perhaps"\nrefresh = 9'
    system = organization(file, text)
    assert set(system.closed) == {"encrypt"}
    first, second = system.problems
    assert "config.toml:1:" in first.message
    assert "config.toml:3:" in second.message
    file.write_text("encrypt = false\nrefresh = 1")
    found = config.load(file, "default", system=system)
    assert (found.encrypt, found.refresh, found.settle) == (True, 9, 1)
    assert system.allows_logon


@pytest.mark.parametrize(
    "text", ["https://a.example", "https://a.example:443/", "https://A.example"]
)
def test_a_policy_names_the_only_service(file: Path, text: str) -> None:
    """Case, a final slash and the default port make no difference."""
    system = organization(file, f'[policy]\nbase_url = "{text}"')
    for same in ("https://a.example", "https://A.example/", "https://a.example:443"):
        system.check_service(same)
    with pytest.raises(ConfigError, match=r"allows only https://a\.example"):
        system.check_service("https://b.example")
    for option, remedy in (
        (None, "leave the address out"),
        (" --account work", "run 'zonedrive logon --account work' without an address"),
    ):
        with pytest.raises(ConfigError) as refused:
            system.check_service("https://b.example", option)
        assert refused.value.remedy == remedy


def test_a_policy_may_name_the_service_in_unicode(file: Path) -> None:
    """An account has the name of its service in ASCII."""
    system = organization(file, '[policy]\nbase_url = "https://münchen.example"')
    system.check_service("https://xn--mnchen-3ya.example")
    system.check_service("https://münchen.example")


def test_a_policy_for_an_address_that_is_none_forbids_logons(file: Path) -> None:
    """The problem names the line, and the error is not raised."""
    system = organization(file, '[policy]\nbase_url = "https://a.example/api"')
    assert not system.allows_logon
    assert "config.toml:2: " in system.problems[0].message
    assert "has more than scheme and host" in system.problems[0].message


def test_a_change_keeps_the_rest_of_the_file(file: Path) -> None:
    """Comments, other accounts and a symbolic link stay; None removes a value."""
    place = file.with_name("dotfiles.toml")
    place.write_text("# mine\nsettle = 3.0 # slow\n\n[account.work]\nrefresh = 9.0\n")
    file.symlink_to(place)
    config.change(
        file, "home", {"cache_size": "2G", "encrypt": "false", "local_only": "*.a\n\n b:c "}
    )
    assert file.is_symlink() and place.read_text().startswith("# mine\nsettle = 3.0 # slow\n")
    found = config.load(file, "home", system=config.Organization())
    assert (found.settle, found.cache_size, found.encrypt) == (3.0, 2 << 30, False)
    assert found.local_only == ("*.a", "b:c")
    assert config.load(file, "work", system=config.Organization()).refresh == 9.0
    config.change(file, "home", {"encrypt": None, "settle": None})
    again = config.load(file, "home", system=config.Organization())
    assert (again.encrypt, again.settle, again.cache_size) == (True, 3.0, 2 << 30)


@pytest.mark.parametrize("name", config.LISTS)
def test_a_long_list_can_be_changed(file: Path, name: str) -> None:
    """A line of the file has a limit, so the next mount would refuse the file."""
    items = [f"Confidential document {number:03}.docx" for number in range(100)]
    config.change(file, "default", {name: "\n".join(items)})
    found = config.load(file, "default", system=config.Organization())
    assert getattr(found, name) == tuple(items)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("account.work.settle = 1\nrefresh = 3\n", {"settle": "4"}),
        ("account.work.settle = 1\nrefresh = 3\n", {"refresh": "4"}),
        ("account = {}\n", {"refresh": "4"}),
        ("account = { default = { settle = 1 } }\n", {"profile": "/" + "x" * 2100}),
        ("refresh = 3\n", {"profile": "/" + "x" * 2100}),
    ],
)
def test_a_change_that_cannot_be_written_changes_nothing(
    file: Path, text: str, values: dict[str, str]
) -> None:
    """Another setting would move to another account, or the next mount would reject the file."""
    file.write_text(text)
    with pytest.raises(ConfigError, match="cannot be changed here"):
        config.change(file, "default", values)
    assert file.read_text() == text


@pytest.mark.parametrize(
    "values", [{"settle": "1", "nonsense": "1"}, {"cache_size": "many"}, {"settle": "-1"}]
)
def test_a_wrong_change_changes_nothing(file: Path, values: dict[str, str]) -> None:
    """One wrong value leaves the file as it was."""
    file.write_text("refresh = 5.0\n")
    with pytest.raises(ConfigError):
        config.change(file, "default", values)
    assert file.read_text() == "refresh = 5.0\n"


@pytest.mark.parametrize("name", config.NAMES)
def test_a_value_can_be_written_as_it_is_shown(file: Path, name: str) -> None:
    """The text of a value, changed into the file, gives the same value."""
    value = getattr(config.Settings(), name)
    config.change(file, "default", {name: config.as_text(value) or None})
    assert getattr(config.load(file, "default", system=config.Organization()), name) == value


def test_a_remedy_names_no_option_that_the_policy_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user cannot choose another profile or authority, so the administrator must correct it."""
    profile = load_profile("published")
    with pytest.raises(NotSupported) as free:
        profile.operation("delete")
    assert "--profile" in free.value.remedy
    assert "--ca-file" in tls.Trust("/x.pem", is_given=True).remedy
    policy: dict[str, object] = {"profile": "published", "ca_file": "/x.pem"}
    monkeypatch.setattr(config, "organization", lambda account: config.Organization(policy=policy))
    with pytest.raises(NotSupported) as bound:
        profile.operation("delete")
    ask = "ask the administrator of this computer to correct the policy"
    assert bound.value.remedy == f"{ask} profile"
    assert tls.Trust("/x.pem", is_given=True).remedy == f"{ask} ca_file"
    with pytest.raises(ConfigError) as typo:
        load_profile("typo")
    assert typo.value.remedy == f"{ask} profile"
    with pytest.raises(ConfigError) as missing:
        tls.trust("/nonexistent/x.pem")
    assert missing.value.remedy == f"{ask} ca_file"


@pytest.mark.parametrize("wrong", ["link", "folder", "bytes"])
def test_a_file_of_the_administrator_is_not_corrected_by_a_user(tmp_path: Path, wrong: str) -> None:
    """The remedy for a file that cannot be read is to ask the administrator."""
    place = tmp_path / "config.toml"
    if wrong == "link":
        place.symlink_to("/nonexistent/x")
    elif wrong == "folder":
        place.mkdir()
    else:
        place.write_bytes(b"# \xff")
    (problem,) = config.organization("default", tmp_path).problems
    assert problem.remedy == config.ADMINISTRATOR
