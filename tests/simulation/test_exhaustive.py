"""Short sequences of operations with a death or a lost reply, and the oracle that judges them.

`python -m tests.simulation --exhaustive` runs all of them.
"""

import pytest

from tests.simulation.exhaustive import Sequence, cases, chosen, parse, run
from tests.simulation.operations import beginning
from tests.simulation.oracle import Oracle

# Of what .ci/run runs, a small part.
SHORT = chosen(1, 14)
LONGER = [each for each in chosen(2, 600) if len(each.operations) == 2]


@pytest.mark.parametrize("sequence", [*SHORT, *LONGER], ids=lambda each: str(each.case()))
def test_nothing_goes_wrong(sequence: Sequence) -> None:
    """Client and service agree with the oracle after each death, lost reply and overlap."""
    wrong = [(str(case), found.findings) for case, found in cases(sequence) if found.findings]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "both sandbox: create left/two.txt; die 19; create right/one.txt; sync;"
        " exchange left/two.txt right/one.txt",
        "both sandbox: exchange left/one.txt right/two.txt; hold 0 before; unlink left/one.txt",
        "both sandbox: save_again left/one.txt; exchange left/one.txt right/two.txt",
        "both published: die 19; create left/two.txt; sync; save_over left/two.txt",
        "both published: die 19; create left/two.txt; sync; save_again left/two.txt",
        "both sandbox: die 18; exchange left/one.txt right/two.txt; sync; unlink left/one.txt",
        "both sandbox: unlink left/one.txt; hold 0 before; rename right/two.txt left/one.txt",
    ],
)
def test_what_was_found_stays_mended(text: str) -> None:
    """Cases that failed in an earlier version succeed."""
    assert run(parse(text)).findings == []


def test_a_case_reads_its_own_text() -> None:
    """The text of a case describes it completely."""
    text = "both sandbox: die 3; save_over left/one.txt; sync; rename left/one.txt left/two.txt"
    assert str(parse(text)) == text


def test_the_same_case_runs_the_same_way() -> None:
    """Two runs of a case have the same trace."""
    case = parse("both sandbox: rewrite left/one.txt; lose 1; exchange left/one.txt right/two.txt")
    assert run(case) == run(case)


def _start() -> tuple[Oracle, dict[str, tuple[str, bytes | None]], dict[int, str]]:
    oracle = beginning("both")
    ids = {number: f"id {path}" for number, path in enumerate(oracle.tree, 1)}
    there = {path: (f"id {path}", node.content) for path, node in oracle.tree.items()}
    return oracle, there, ids


def test_the_oracle_agrees_with_what_it_expects() -> None:
    """The oracle finds no difference if the service has the entries that programs made."""
    oracle, there, ids = _start()
    assert oracle.findings(there, ids) == []


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"left/one.txt": ("id left/one.txt", b"other")}, "left/one.txt: the service has"),
        ({"left/one.txt": ("id anew", None)}, "left/one.txt: the service has"),
        ({"left/two.txt": ("id anew", b"")}, "the service has left/two.txt, which nobody made"),
    ],
)
def test_the_oracle_finds_differences(
    changed: dict[str, tuple[str, bytes | None]], finding: str
) -> None:
    """Other content and stray entries are found."""
    oracle, there, ids = _start()
    assert [each for each in oracle.findings(there | changed, ids) if each.startswith(finding)]


def test_the_oracle_finds_a_lost_history() -> None:
    """A save that is a new file of the service is found."""
    oracle, there, ids = _start()
    saved = oracle.removed("left/one.txt").saved("left/one.txt", b"new")
    there["left/one.txt"] = ("id anew", b"new")
    assert saved.findings(there, ids) == ["left/one.txt is a new file of the service"]


def test_the_oracle_finds_an_exchanged_history() -> None:
    """Two files that have each other's history are found."""
    oracle, there, ids = _start()
    one, two = there["left/one.txt"], there["right/two.txt"]
    there |= {"left/one.txt": (two[0], one[1]), "right/two.txt": (one[0], two[1])}
    assert oracle.findings(there, ids) == [
        "left/one.txt has the history of another file",
        "right/two.txt has the history of another file",
    ]
