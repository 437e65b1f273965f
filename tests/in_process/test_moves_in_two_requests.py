"""Profiles whose service renames and moves an entry by two requests."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.fake_service import Node
from tests.harness.partial_profile import COMBINED, profile_without
from tests.harness.virtual_mount import VirtualMount
from tests.in_process.test_folded_names import nfc
from zonedrive.sandbox.errors import ApiError


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[VirtualMount]:
    """Yield a mount with this profile, and the folders a and b on the service."""
    profile = tmp_path / "profile.toml"
    profile.write_text(profile_without([COMBINED]))
    mount = VirtualMount(tmp_path, "settle=0", "refresh=5", profile=str(profile))
    mount.mount()
    for folder in ("a", "b"):
        mount.zone.make_folder(folder)
    try:
        yield mount
    finally:
        mount.close()


@pytest.mark.parametrize("taken", [(), ("a/y",), ("b/x",), ("a/y", "b/x")], ids=" ".join)
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_move_to_another_name(
    desk: VirtualMount, taken: tuple[str, ...], is_folder: bool
) -> None:
    """The entry gets to its place, whatever has one of its names in the other folder."""
    if is_folder:
        desk.zone.make_folder("a/x")
        desk.zone.write("a/x/f", b"moved")
    else:
        desk.zone.write("a/x", b"moved")
    for path in taken:
        desk.zone.write(path, path.encode())
    identity = desk.zone.entry_id("a/x")
    assert "x" in desk.names(desk.root / "a")
    (desk.root / "a/x").rename(desk.root / "b/y")
    desk.sync()
    assert desk.zone.entry_id("b/y") == identity
    assert desk.zone.read("b/y/f" if is_folder else "b/y") == b"moved"
    for path in taken:
        assert desk.zone.read(path) == path.encode()
    assert set(desk.zone.listing("a")) == {path[2:] for path in taken if path[0] == "a"}
    assert set(desk.zone.listing("b")) == {"y"} | {path[2:] for path in taken if path[0] == "b"}


@pytest.mark.parametrize("to", ["a/y", "b/x", "b/y"])
def test_answers_do_not_tell_the_folder(desk: VirtualMount, to: str) -> None:
    """The listing of the folder shows that the entry is at its target."""
    desk.zone.write("a/x", b"moved")
    desk.deployment.world.unsaid = {"entry": {"parentId"}, "answer": {"parentId"}}
    above, _, name = to.partition("/")
    place = desk.zone.entry_id("a/x"), desk.zone.entry_id(above), name
    moved = desk.loop.run(desk.client.service.move, desk.zone.id, *place)
    assert (moved.id, moved.parent_id, moved.name) == place
    assert desk.zone.read(to) == b"moved"


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_move_out_of_a_folder_that_a_coworker_deletes(
    desk: VirtualMount, is_folder: bool
) -> None:
    """The service refuses to rename an entry in a deleted folder, so the entry moves first."""
    desk.deployment.world.marks_content = False
    if is_folder:
        desk.zone.make_folder("a/x")
        desk.zone.write("a/x/f", b"moved")
    else:
        desk.zone.write("a/x", b"moved")
    identity = desk.zone.entry_id("a/x")
    assert "x" in desk.names(desk.root / "a")
    desk.command("pause")
    (desk.root / "a/x").rename(desk.root / "b/y")
    desk.zone.delete("a")
    desk.command("resume")
    desk.sync()
    assert desk.zone.entry_id("b/y") == identity
    assert desk.zone.read("b/y/f" if is_folder else "b/y") == b"moved"


def test_a_coworkers_entry_at_the_target_is_kept(desk: VirtualMount) -> None:
    """The moved file becomes a conflict copy, without a temporary name."""
    for path in ("a/x", "a/y", "b/x"):
        desk.zone.write(path, path.encode())
    desk.names(desk.root / "a")
    desk.names(desk.root / "b")
    desk.command("pause")
    (desk.root / "a/x").rename(desk.root / "b/y")
    desk.zone.write("b/y", b"by Bob")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("b/y") == b"by Bob"
    (copy,) = set(desk.zone.listing("b")) - {"x", "y"}
    assert copy.startswith("y (conflict, ")
    assert desk.zone.read(f"b/{copy}") == b"a/x"
    assert set(desk.zone.listing("a")) == {"y"}


def test_an_entry_that_a_coworker_has_moved_meanwhile(desk: VirtualMount) -> None:
    """The entry gets to its place, though its present place has not been listed."""
    desk.zone.make_folder("c")
    for path in ("a/y", "b/z", "c/y"):
        desk.zone.write(path, path.encode())
    for folder in ("a", "b", "c"):
        desk.names(desk.root / folder)
    desk.command("pause")
    (desk.root / "c/y").rename(desk.root / "b/y")
    desk.zone.move("c/y", "a/z")
    desk.command("resume")
    desk.sync()
    assert desk.zone.read("b/y") == b"c/y"
    assert (set(desk.zone.listing("a")), set(desk.zone.listing("b"))) == ({"y"}, {"y", "z"})


@pytest.mark.parametrize("status", [401, 423, 429, 500])
@pytest.mark.parametrize("then", ["nothing", "back", "back after a crash", "removed"])
def test_a_move_whose_second_request_fails(
    desk: VirtualMount, status: int, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has the entry where it is here. Before, it kept the name of the first request.

    The move is undone or the file removed before the service accepts the second request.
    """
    desk.zone.write("a/x", b"moved")
    identity = desk.zone.entry_id("a/x")
    for folder in ("a", "b"):
        desk.names(desk.root / folder)
    service = desk.deployment.world
    move, is_first = service.move, [True]

    def once(zone_id: str, entry_id: str, parent_id: str, name: str, user: str) -> Node:
        if not is_first:
            raise ApiError(status, "", "Later")
        is_first.clear()
        return move(zone_id, entry_id, parent_id, name, user)

    monkeypatch.setattr(service, "move", once)
    source, target = desk.root / "a/x", desk.root / "b/y"
    source.rename(target)
    time.sleep(4)
    if then == "back after a crash":
        desk.kill()
        desk.mount()
    if then == "removed":
        target.unlink()
    elif then != "nothing":
        target.rename(source)
    monkeypatch.setattr(service, "move", move)
    desk.sync()
    time.sleep(20)
    there = [path for path in desk.zone.tree() if path.startswith(("a/", "b/"))]
    assert there == {"nothing": ["b/y"], "removed": []}.get(then, ["a/x"])
    assert [desk.zone.entry_id(path) for path in there] == [identity] * len(there)
    for folder in ("a", "b"):
        assert set(desk.names(desk.root / folder)) == set(desk.zone.listing(folder))


@pytest.mark.parametrize("key", [str.lower, nfc])
@pytest.mark.parametrize("target", ["a/E\u0301.txt", "b/E\u0301.txt"], ids=["rename", "move"])
def test_a_move_whose_answer_has_another_name(
    desk: VirtualMount, target: str, key: Callable[[str], str]
) -> None:
    """The service stores names in another form; the move ends with this name."""
    desk.deployment.world.key = desk.deployment.world.stored = key
    desk.zone.write("a/x", b"moved")
    desk.names(desk.root / "a")
    (desk.root / "a/x").rename(desk.root / target)
    answer = desk.command("sync", timeout=60)
    assert (answer["exit"], answer["failed"]) == (0, [])
    folder, _, name = target.partition("/")
    assert desk.zone.read(f"{folder}/{key(name)}") == b"moved"
