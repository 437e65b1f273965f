"""File names of versions."""

import pytest

from zonedrive.model import Version
from zonedrive.views.versions import extension_of, version_name

MOMENT_NS = 1_763_733_787_000_000_000  # 2025-11-21 14:03:07 UTC


def version(number: str, *, by: str = "ann@acme.example", at_ns: int = MOMENT_NS) -> Version:
    """Return a version with that number, or with that id if it is not a number."""
    return Version(number, f"id of {number}", 1, at_ns, by)


@pytest.mark.parametrize(
    ("file", "told", "name"),
    [
        ("a.odt", version("7"), "00007_2025-11-21T14-03-07Z_ann@acme.example.odt"),
        ("a.tar.gz", version("12345"), "12345_2025-11-21T14-03-07Z_ann@acme.example.gz"),
        ("a.odt", version("123456"), "123456_2025-11-21T14-03-07Z_ann@acme.example.odt"),
        ("a.odt", version("7", by="", at_ns=0), "00007.odt"),
        ("a.odt", version("7", by="a/b\n"), "00007_2025-11-21T14-03-07Z_a\uff0fb\u240a.odt"),
        # An address would pass for an extension, and this one for that of a program.
        ("Makefile", version("7", by="a@b.com"), "00007_2025-11-21T14-03-07Z_a@b.com_"),
        (".profile", version("7"), "00007_2025-11-21T14-03-07Z_ann@acme.example_"),
        ("a.odt", version("x"), "2025-11-21T14-03-07Z_ann@acme.example~f6570fd7.odt"),
        ("a.odt", version("x", by="", at_ns=0), "version~f6570fd7.odt"),
    ],
)
def test_names(file: str, told: Version, name: str) -> None:
    """A name has number, time, author, and the file's own extension."""
    assert version_name(told, extension_of(file)) == name


def test_a_name_is_never_too_long() -> None:
    """The limit holds for any author that the service reports."""
    authors = ["é" * 300, "é" * 300 + "x"]
    for extension in (".odt", ""):
        names = {version_name(version(n, by=by), extension) for n in "12" for by in authors}
        assert all(len(name.encode()) <= 255 and name.endswith(extension) for name in names)
        assert len({name.partition("_")[0] for name in names}) == 2


def test_names_sort_in_version_order() -> None:
    """The order of names does not depend on the times."""
    names = [version_name(version(str(n), at_ns=MOMENT_NS - n), ".txt") for n in range(1, 20_000)]
    assert names == sorted(names)
