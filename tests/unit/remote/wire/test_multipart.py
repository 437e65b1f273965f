"""Body of an upload."""

from email import message_from_bytes
from email.policy import HTTP

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonedrive.errors import Rejected
from zonedrive.remote.wire.multipart import Cancelled, MultipartBody

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES, st.lists(st.binary(max_size=50)), st.integers(1, 100))
def test_name_and_content_arrive_as_they_are(name: str, parts: list[bytes], piece: int) -> None:
    """Any Unicode name and any bytes are sent unchanged, and the announced length is right."""
    content = b"".join(parts)
    form = MultipartBody(name, parts, len(content), piece=piece)
    sent = list(form)
    raw = b"".join(sent)
    assert len(raw) == len(form)
    mark = form.content_type.partition("boundary=")[2].encode()
    _, first, second, end = raw.split(b"--" + mark)
    assert end == b"--\r\n"
    head, _, value = first.partition(b"\r\n\r\n")
    assert head == b'\r\nContent-Disposition: form-data; name="fileName"'
    assert value == name.encode() + b"\r\n"
    head, _, value = second.partition(b"\r\n\r\n")
    assert value == content + b"\r\n"
    quoted = head.split(b'filename="')[1].split(b'"')[0]
    assert b"\r" not in quoted
    assert b"\n" not in quoted
    assert max(map(len, sent[1:-1]), default=0) <= piece
    assert form.complete


def test_a_common_parser_reads_it() -> None:
    """A parser of another project reads the body."""
    form = MultipartBody('a "quoted" name.txt', [b"abc"], 3)
    head = f"Content-Type: {form.content_type}\r\n\r\n".encode()
    message = message_from_bytes(head + b"".join(form), policy=HTTP)
    name, file = message.iter_parts()
    assert name.get_param("name", header="content-disposition") == "fileName"
    assert name.get_content().strip() == 'a "quoted" name.txt'
    assert file.get_filename() == "a %22quoted%22 name.txt"
    assert file.get_content() == b"abc"


def test_a_cancelled_body_stops() -> None:
    stop = False
    form = MultipartBody("n", [b"a", b"b"], 2, cancelled=lambda: stop)
    pieces = iter(form)
    next(pieces)
    next(pieces)
    stop = True
    with pytest.raises(Cancelled):
        next(pieces)
    assert not form.complete


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(Rejected):
        MultipartBody("\ud800", [], 0)
