"""Entries of unknown type are not shown, and never overwritten."""

import json
import os
from collections.abc import Callable
from typing import Any

from tests.harness.fault_proxy import Answer, FaultProxy
from tests.harness.machine import Mounted
from tests.harness.waiting import eventually

Item = dict[str, Any]
ODD: dict[str, Callable[[Item], Item]] = {
    "size-null": lambda item: item | {"size": None},
    "size-negative": lambda item: item | {"size": -1},
    "size-missing": lambda item: {k: v for k, v in item.items() if k != "size"},
    "size-text": lambda item: item | {"size": "large"},
    "kind-missing": lambda item: {k: v for k, v in item.items() if k != "folder"},
    "kind-null": lambda item: item | {"folder": None},
    "id-missing": lambda item: {k: v for k, v in item.items() if k != "id"},
}
THEIRS, MINE = b"theirs", b"mine, "  # of one length


def odd(answer: Answer) -> None:
    """Remove data from the entries with special names in the listing."""
    items = json.loads(answer.body)
    answer.say([ODD[item["name"]](item) if item["name"] in ODD else item for item in items])


def test_a_name_that_cannot_be_shown_is_not_written_over(
    proxied: Mounted, proxy: FaultProxy
) -> None:
    """A file saved under the name is kept as a conflict copy and reported; later both are
    visible."""
    proxied.allow("no id", "no valid id", "a conflict copy")
    proxy.about = lambda asked: asked.method == "GET" and "/folder/" in asked.path
    proxy.alter = odd
    for name in ODD:
        proxied.zone.write(name, THEIRS)

    def notice() -> str:
        os.listdir(proxied.root)
        return str(proxied.status().get("notice", ""))

    said = f"{len(ODD)} entries in {proxied.root.name} are not shown"
    eventually(lambda: said in notice(), what="it is said that some are not shown")
    assert said in proxied.machine.done("status")
    for name in ODD:
        path = proxied.root / name
        assert not path.exists()
        path.write_bytes(MINE)
    proxied.sync()
    copies = json.loads(proxied.machine.done("conflicts", "--json"))
    assert len(copies) == len(ODD)
    for name in ODD:
        assert any(f"/{name} (conflict" in each["path"] for each in copies)
        assert proxied.zone.read(name) == THEIRS
        assert len(proxied.zone.versions(name)) == 1
    assert list(proxied.zone.tree().values()).count(MINE) == len(ODD)
    proxy.alter = lambda answer: None
    for name in ODD:
        eventually((proxied.root / name).exists, what="it shows once the service says what it is")
        assert (proxied.root / name).read_bytes() == THEIRS
    eventually(lambda: not notice(), what="nothing is hidden any more")
