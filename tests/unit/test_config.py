"""Settings: a mistake is one line that names the place, the setting and the remedy."""

import os
from pathlib import Path

import pytest

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


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
        ("settle", "inf"),
        ("settle", "nan"),
        ("settle", "1e12"),
        ("settle", "-1"),
        ("settle", "soon"),
        ("refresh", "nan"),
        ("cache_size", "-5"),
        ("cache_size", "1e3"),
        ("connections", "0"),
        ("connections", "999"),
        ("upload_limit", "x"),
        ("encrypt", "perhaps"),
        ("close", "maybe"),
        ("fsync", "never"),
        ("setle", "1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(file: Path, name: str, text: str) -> None:
    """A wrong value is rejected at the start, not during a later write."""
    with pytest.raises(ConfigError, match=name) as refused:
        config.load(file, "default", {name: text})
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    ("text", "size"),
    [("10G", 10 << 30), ("500M", 500 << 20), ("64 KiB", 65_536), ("1TB", 1 << 40), ("7", 7)],
)
def test_a_size_may_have_a_unit(file: Path, text: str, size: int) -> None:
    """Units are powers of 1024, in the file and behind -o."""
    assert config.load(file, "default", {"cache_size": text}).cache_size == size
    file.write_text(f'upload_limit = "{text}"\n')
    assert config.load(file, "default").upload_limit == min(size, 1 << 40)


@pytest.mark.parametrize("text", ["10X", "G", "1.5G", "-1G", "9" * 19, "99999999999T"])
def test_a_wrong_size_says_how_to_write_one(file: Path, text: str) -> None:
    """The error has an example."""
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


def test_what_is_no_text_is_refused(file: Path) -> None:
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
