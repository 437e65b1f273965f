"""Options after -o."""

import pytest

from zonedrive.config import NAMES
from zonedrive.errors import ConfigError
from zonedrive.fuse.options import IGNORED, KERNEL, for_session, parse


def test_settings_and_fuse_options_are_distinguished() -> None:
    """Settings and options of FUSE may be mixed, in any number of -o."""
    found = parse(["settle=2,allow_other,close=wait", "ro", "", "local_only=*.a:b\\,c", "ro"])
    assert found.kernel == ("allow_other", "ro")
    assert found.settings == {"settle": "2", "close": "wait", "local_only": "*.a:b,c"}


def test_every_setting_is_an_option() -> None:
    """The option names are those of config.toml."""
    assert set(parse([f"{name}=1" for name in NAMES]).settings) == set(NAMES)
    assert not set(NAMES) & (KERNEL | IGNORED)


def test_a_line_of_fstab_works_as_it_is() -> None:
    """Options of mount(8) and systemd are ignored."""
    line = "rw,noauto,user,_netdev,x-systemd.automount,x-gvfs-show,setuid=me,nofail,exec,suid,dev"
    found = parse([line, "account=work"])
    assert (found.kernel, found.settings, found.account) == ((), {}, "work")


@pytest.mark.parametrize("word", ["settel=1", "allow_others", "foo", "ro=1", "fsname=x"])
def test_a_mistyped_word_is_refused_by_name(word: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        parse([word])
    assert word.partition("=")[0] in wrong.value.line()


def test_the_kernel_gets_safe_defaults_and_the_services_address() -> None:
    """Set-uid programs and devices are disabled; commas and backslashes of the address are kept."""
    given = for_session(parse(["allow_other,suid,dev"]), "https://x/a,b\\c")
    assert given == {
        "fsname=https://x/a\\,b\\\\c",
        "subtype=zonedrive",
        "nosuid",
        "nodev",
        "default_permissions",
        "allow_other",
    }


def test_an_option_that_libfuse_refuses_is_ignored() -> None:
    """`nodiratime` is a common option of fstab, and has no effect on a FUSE file system."""
    assert parse(["noatime,nodiratime"]).kernel == ("noatime",)
