"""The operations of the exhaustive cases stand for all recorded saves."""

import os
from typing import Any

import pytest

from tests.simulation.operations import PATTERNS
from tests.traces.trace import DATA, Trace, load

TRACES = {path.stem: load(path) for path in sorted(DATA.glob("*.json"))}
EXPECTED = {name: verb for verb, names in PATTERNS.items() for name in names.split()}


def _pattern(trace: Trace) -> str:
    """Return the operation that does what the calls of a recording do with its main file."""
    main = next(name for name in trace.before if trace.before[name] is not None)
    files: dict[int, str] = {}
    done = set[str]()
    for step in trace.steps:
        name, *arguments = step.call
        if not step.error:
            done |= _effects(name, arguments, main, files)
    size = _size(trace.before[main])
    has_backup = f"{main}~" in trace.after
    if "aside" in done:
        return "save_backup" if has_backup else "save_aside"
    if "unlink" in done:
        return "save_again"
    if "over" in done:
        return "save_over"
    if "empty" in done:
        return "rewrite"
    if "empty in place" in done:
        return "rewrite_in_place"
    if "append" in done or f"at {size}" in done:
        return "append"
    return "write" if any(each.startswith("at ") for each in done) else "create"


def _effects(name: str, arguments: list[Any], main: str, files: dict[int, str]) -> set[str]:
    match name, arguments:
        case "open", [path, flags, _, file]:
            files[file] = path
            is_emptied = path == main and "O_TRUNC" in flags
            is_appended = path == main and "O_APPEND" in flags
            return {"empty"} if is_emptied else {"append"} if is_appended else set()
        case "ftruncate", [file, 0] if files.get(file) == main:
            return {"empty in place"}
        case "write", [file, offset, _] if files.get(file) == main:
            return {f"at {offset}"}
        case "rename", [path, other, _]:
            is_over = other == main or path == f"{other}.lock"
            return {"aside"} if path == main else {"over"} if is_over else set()
        case "unlink", [path] if path == main:
            return {"unlink"}
    return set()


def _size(kept: str | list[int] | None) -> int:
    return kept[0] if isinstance(kept, list) else len(os.fsencode(kept or ""))


@pytest.mark.parametrize("name", sorted(TRACES))
def test_every_recorded_save_is_one_operation(name: str) -> None:
    """The table of patterns agrees with the calls of each recording.

    With the published profile some programs are refused a call, and save in another way.
    """
    program, _, profile = name.rpartition(".")
    found, expected = _pattern(TRACES[name]), EXPECTED[program]
    if profile == "published" and found != expected:
        assert any(step.error == "EPERM" for step in TRACES[name].steps)
        assert found in EXPECTED.values()
    else:
        assert found == expected


def test_every_pattern_was_recorded() -> None:
    """The table of patterns names the programs that were recorded."""
    assert {name.rpartition(".")[0] for name in TRACES} == EXPECTED.keys()
