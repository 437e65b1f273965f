"""A log is told in words of ours: whoever wrote it, no name comes out."""

import pytest

from zonedrive.doctor import log_redaction

NAMES = ("alice", "acme", "secret", "4711", "Plan")


def told(*log: str) -> list[str]:
    """What is made of the lines of a log."""
    found = list(log_redaction.lines(log))
    assert not [name for name in NAMES if name in "\n".join(found)]
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("INFO zonedrive.daemon.serve: https://acme is mounted at /home/alice/Zones",
         "INFO zonedrive.daemon.serve: … is mounted at …"),
        ("INFO zonedrive.daemon.serve: SIGTERM: unmounting",
         "INFO zonedrive.daemon.serve: SIGTERM: unmounting"),
        ("WARNING zonedrive.fuse.deadline: lookup took longer than 30 s",
         "WARNING zonedrive.fuse.deadline: … took longer than 30 s"),
        ("WARNING zonedrive.content.cache_store: file content cannot be cached (No space left on"
         " device); reads go on uncached",
         "WARNING zonedrive.content.cache_store: file content cannot be cached (No space left on"
         " device); reads go on uncached"),
        ("INFO zonedrive.remote.connectivity: the service is offline, was online: alice Plan 4711",
         "INFO zonedrive.remote.connectivity: the service is offline, was online: …"),
        ("ERROR zonedrive.state.repair: /home/alice/4711 is damaged (secret): it is mended at"
         " the next start",
         "ERROR zonedrive.state.repair: … is damaged (…): it is mended at the next start"),
        ("INFO alice.secret: Plan", "INFO …: …"),
    ],
)  # fmt: skip
def test_a_sentence_of_ours_is_told(line: str, expected: str) -> None:
    """With what names nothing, without the rest."""
    when = "2026-11-22 10:00:00,123 "
    assert told(when + line + "\n") == [when + expected]


def test_a_traceback_says_where_and_what() -> None:
    """Not with which words, nor in whose folder."""
    source = log_redaction.SOURCES / "errors.py"
    assert told(
        "Traceback (most recent call last):\n",
        f'  File "{source}", line 12, in secret\n',
        "    raise Plan(alice)\n",
        '  File "/home/alice/secret.py", line 3, in <module>\n',
        "    4711\n",
        "zonedrive.errors.StoreError: /home/alice is damaged\n",
        "alice.Plan: secret\n",
    ) == [
        "Traceback",
        "    zonedrive/errors.py:12",
        "    (3 more)",
        "    StoreError: … is damaged",
        "    (1 more)",
    ]


def test_what_is_not_understood_is_left_out() -> None:
    """Names with line breaks in them can forge no entry that holds another name."""
    assert told(
        "alice\n",
        "2026-11-22 10:00:00,123 INFO zonedrive.daemon.serve: Plan\n",
        "2026-11-22 10:00:00,123 SECRET zonedrive: secret\n",
        "ValueError: secret 4711\n",
    ) == [
        "    (1 more)",
        "2026-11-22 10:00:00,123 INFO zonedrive.daemon.serve: …",
        "    (1 more)",
        "    ValueError: …",
    ]
