"""Requests of curl for the limits, and the check of the answers."""

import re
from pathlib import Path

import pytest

from tests.benchmark import limits
from tests.benchmark.limits import Request
from tests.benchmark.measurements import Failed

GETS = [Request("/api/a"), Request("/api/b")]


def test_each_request_has_all_options() -> None:
    """curl forgets the options at each `next`: without them it sends no token."""
    requests = [*GETS, Request("/api/c", ("fileName=x", "file=@/x"))]
    text = limits.config(requests, "https://host:1", Path("/ca.pem"), "Bearer secret")
    sections = text.split("\nnext\n")
    assert len(sections) == 3
    for section, request in zip(sections, requests, strict=True):
        lines = section.splitlines()
        assert f'url = "https://host:1{request.path}"' in lines
        assert 'cacert = "/ca.pem"' in lines
        assert 'header = "Authorization: Bearer secret"' in lines
        assert 'output = "/dev/null"' in lines
        assert "http1.1" in lines
        assert re.findall('^form = "(.*)"$', section, re.MULTILINE) == list(request.form)


def test_a_request_that_fails_gives_no_figures() -> None:
    """A failed or missing answer is fast and shows nothing about the service."""
    assert limits.connections("200 1\n201 0\n200 1\n", 3) == 2
    for said in ("200 1\n503 0\n200 0\n", "200 1\n000 1\n200 0\n", "200 1\n200 0\n", ""):
        with pytest.raises(Failed, match="of 3 requests"):
            limits.connections(said, 3)
