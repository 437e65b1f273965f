"""Base URLs and paths of the service, which no value can redirect to another address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive.errors import ConfigError, Rejected
from zonedrive.remote.urls import fill_path
from zonedrive.service_address import base_url


@pytest.mark.parametrize(
    ("given_text", "meant"),
    [
        ("https://zones.example", "https://zones.example"),
        ("https://zones.example/", "https://zones.example"),
        ("  https://Zones.Example//  ", "https://zones.example"),
        ("HTTPS://zones.example:443", "https://zones.example"),
        ("https://zones.example:8443", "https://zones.example:8443"),
        ("zones.example", "https://zones.example"),
        ("https://[::1]:444", "https://[::1]:444"),
        ("https://zönen.example", "https://xn--znen-5qa.example"),
        ("https://zo\u0308nen.example", "https://xn--znen-5qa.example"),
        ("https://straße.example", "https://xn--strae-oqa.example"),
        ("https://βόλος.example", "https://xn--nxasmm1c.example"),
    ],
)
def test_an_address_may_be_written_in_several_ways(given_text: str, meant: str) -> None:
    """An address that is copied from a browser is accepted."""
    assert base_url(given_text) == meant


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("http://zones.example", "plain HTTP"),
        ("", "empty"),
        ("ftp://zones.example", "https"),
        ("https://", "names no host"),
        ("https://zones.example/api", "more than scheme and host"),
        ("https://zones.example/?a=b", "more than scheme and host"),
        ("https://zones.example:port", "not a URL"),
        ("https://zones.example:99999", "not a URL"),
        ("https://a b.example", "names no host"),
        ("https://[zones", "not a URL"),
        ("https://[v1.a]", "names no host"),
        ("https:/zones.example", "names no host; give one such as"),
        ("https:zones.example", "names no host; give one such as"),
        ("//zones.example", "names no host; give one such as"),
    ],
)
def test_an_invalid_address_is_one_line(text: str, word: str) -> None:
    """In particular, plain HTTP is refused before a connection is made."""
    with pytest.raises(ConfigError) as refused:
        base_url(text)
    assert word in refused.value.line()
    assert "\n" not in refused.value.line()


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@zones.example",
        "http://me:hunter2@zones.example",
        "https://me:hunter2/x@zones.example",
        "https://me:1/hunter2@zones.example",
        "https:/me:hunter2@zones.example",
    ],
)
def test_a_password_in_an_address_is_not_repeated(text: str) -> None:
    """The error message, which may be logged, does not contain the password."""
    with pytest.raises(ConfigError) as refused:
        base_url(text)
    assert "hunter2" not in refused.value.line()


@given(st.text(min_size=1).filter(lambda text: text not in (".", "..")))
def test_no_value_leaves_its_segment(value: str) -> None:
    """An id or name with slashes, dots, question marks or NUL stays within its path segment."""
    try:
        path = fill_path("/api/zones/{zone}/files/{file}", {"zone": value, "file": "f"})
    except Rejected:
        assert any("\ud800" <= char <= "\udfff" for char in value)
        return
    assert path.count("/") == 5
    assert not set(path) & set("?#%\\ \x00") - {"%"}
    assert path.endswith("/files/f")


@pytest.mark.parametrize("value", ["", ".", "..", "\ud800"])
def test_a_value_that_would_bend_the_path_is_refused(value: str) -> None:
    """An id from the service cannot change the path of a request."""
    with pytest.raises(Rejected):
        fill_path("/api/zones/{zone}", {"zone": value})
