"""State of an account in the side bar."""

import pytest

from zonedrive.desktop.side_bar import described


@pytest.mark.parametrize(
    ("link", "counts", "state", "text"),
    [
        ("online", {}, "IDLE", "Everything is on the service."),
        ("online", {"pending": 1}, "SYNCING", "1 change is being uploaded."),
        ("online", {"pending": 1, "uploading": 2}, "SYNCING", "3 changes are being uploaded."),
        ("online", {"pending": 9, "failed": 1}, "ERROR", "1 upload failed."),
        ("online", {"conflict": 2}, "ERROR", "2 conflicts are undecided."),
        ("offline", {}, "ERROR", "The service cannot be reached."),
        (
            "offline",
            {"pending": 2},
            "ERROR",
            "The service cannot be reached. 2 changes are waiting.",
        ),
        (
            "logon-required",
            {"pending": 2},
            "ERROR",
            "You are logged off. Your changes are safe on this computer.",
        ),
    ],
)
def test_the_most_urgent_fact_is_shown(
    link: str, counts: dict[str, int], state: str, text: str
) -> None:
    """The most urgent fact decides the state and the text."""
    assert described(link, counts) == (state, text)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "Uploads are paused."),
        ({"pending": 1}, "Uploads are paused. 1 change is waiting."),
        ({"pending": 2, "uploading": 1}, "Uploads are paused. 3 changes are waiting."),
    ],
)
def test_a_pause_is_shown(counts: dict[str, int], text: str) -> None:
    """A pause is not shown as an error, because the user has requested it."""
    assert described("online", counts, paused=True) == ("IDLE", text)
    assert described("online", {**counts, "failed": 1}, paused=True)[0] == "ERROR"
    assert described("offline", counts, paused=True)[0] == "ERROR"
