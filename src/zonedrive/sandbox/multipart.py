"""Incremental parser for the multipart form of an upload.

This module does not store the file's bytes. The parts `file` and `fileName` may come in any order;
other parts are ignored.
"""

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.intake import LONGEST_NAME

LONGEST_HEADERS = 16 * 1024


class UploadForm:
    """Parser of one upload form; `feed` returns the file's bytes, `finish` returns its name."""

    def __init__(self, content_type: str) -> None:
        """Create the parser; raise ApiError 400 if `content_type` has no boundary."""
        _kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise _broken("the Content-Type names no boundary")
        self._name = bytearray()
        self._seen: set[str] = set()
        self._part = ""
        self._header = bytearray()
        self._value = bytearray()
        self._disposition = b""
        self._pieces: list[bytes] = []
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begins,
                    "on_header_begin": self._header_begins,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_ends,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
        except FormParserError as wrong:
            raise _broken(str(wrong)) from wrong

    def feed(self, data: bytes) -> list[bytes]:
        """Parse a chunk of the body; return the file's bytes in the chunk.

        Raises ApiError 400 if the form is malformed or the file name is too long.
        """
        try:
            self._parser.write(data)
        except FormParserError as wrong:
            raise _broken(str(wrong)) from wrong
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> str:
        """Return the file name; call this method after the last chunk of the body.

        Raises ApiError 400 if the body is incomplete, a part is missing or the name is not UTF-8.
        """
        if not self._ended:
            raise _broken("the body ends before its last boundary")
        if "file" not in self._seen:
            raise _broken("there is no part named file")
        if "fileName" not in self._seen:
            raise ApiError(400, "ILLEGAL_ARGUMENT", "There is no part named fileName")
        try:
            return self._name.decode()
        except UnicodeDecodeError:
            raise ApiError(400, "ILLEGAL_NAME", "fileName is not UTF-8") from None

    def _part_begins(self) -> None:
        self._part, self._disposition = "", b""

    def _header_begins(self) -> None:
        self._header, self._value = bytearray(), bytearray()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._check_headers()

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_headers()

    def _check_headers(self) -> None:
        if len(self._header) + len(self._value) > LONGEST_HEADERS:
            raise _broken("a part's header is too long")

    def _header_ends(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            self._disposition = bytes(self._value)

    def _headers_finished(self) -> None:
        _kind, options = parse_options_header(self._disposition)
        self._part = options.get(b"name", b"").decode("utf-8", "replace")
        if self._part in ("file", "fileName"):
            if self._part in self._seen:
                raise _broken(f"there are two parts named {self._part}")
            self._seen.add(self._part)

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part == "file":
            whole = start == 0 and end == len(data)
            self._pieces.append(data if whole else data[start:end])
        elif self._part == "fileName":
            self._name += data[start:end]
            if len(self._name) > LONGEST_NAME:
                raise ApiError(400, "ILLEGAL_NAME", f"A name has at most {LONGEST_NAME} bytes")

    def _end(self) -> None:
        self._ended = True


def _broken(why: str) -> ApiError:
    return ApiError(400, "MULTIPARTUPLOAD_FAILED", f"This is not a usable upload form: {why}")
