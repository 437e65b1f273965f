"""Names of `local_only`: files that stay on this machine, and those that the service has, too.

Nothing is removed on the service, except what somebody removes or replaces here.
"""

import errno
import unicodedata
from fnmatch import fnmatch
from typing import Literal

import pytest

from tests.harness import world
from tests.harness.machine import Mounted
from tests.in_process.test_entry_states import virtual
from zonedrive.config import LOCAL_ONLY

SEEDED = {"big.bin", "docs", "empty", "notes.txt"}

pytestmark = pytest.mark.mount("settle=60", "refresh=0.5")


LOCAL_NAMES = (
    ".~lock.Report.odt#", "lu55988ch5w.tmp", ".notes.txt.swp", ".notes.txt.swo", ".swp",
    "notes.swp", ".notes.txt.swx", "4913", "notes.txt~", "notes.txt.un~", ".notes.txt.kate-swp",
    ".#notes.txt", "#notes.txt#", ".goutputstream-OCY5Y3", ".~tmp~", "~$Report.docx", ".DS_Store",
    "._notes.txt", ".xdp-.~lock.notes.txt#-qO3971",
    ".Trash-1000", ".Trash", ".fuse_hidden0000000300000001", ".nfs000000000000001400000001",
)  # fmt: skip
PEOPLES_NAMES = (
    "intro.swf", "library.swc", "macro.swb", "swp", "swap.txt", "4914", "lunch.txt", "letter.tmp",
    ".notes.txt.26lczb", "poetry.lock", "index.lock", "#1 hit", "DS_Store", ".nfsrc", "lock.odt",
    "notes.bak", "notes.orig", ".Trashed", "notes.txt.part",
)  # fmt: skip


def test_every_default_glob_has_a_name_here() -> None:
    """Each default glob has a test name, with the program that creates it."""
    assert {glob for glob in LOCAL_ONLY if not any(fnmatch(n, glob) for n in LOCAL_NAMES)} == set()


@pytest.mark.parametrize(
    "_profile",
    [
        pytest.param(name, marks=pytest.mark.mount("settle=60", profile=name))
        for name in ("sandbox", "published")
    ],
)
def test_lock_swap_and_probe_files_come_and_go(desk: Mounted, _profile: str) -> None:
    """Local-only files can be created, renamed and removed without a request."""
    before = desk.zone.listing()
    for name in LOCAL_NAMES:
        with (desk.root / name).open("xb", buffering=0) as file:
            file.write(b"pid 4711\n")
            desk.system.fsync(file.fileno())
        assert desk.xattr(desk.root / name, "user.zonedrive.state") == "local", name
    for name, other in zip(LOCAL_NAMES, [*LOCAL_NAMES[1:], LOCAL_NAMES[0]], strict=True):
        (desk.root / name).rename(desk.root / other)
    (desk.root / LOCAL_NAMES[0]).unlink()
    desk.sync()
    assert desk.zone.listing() == before
    assert not {*LOCAL_NAMES} & {*desk.names(desk.root)}


@pytest.mark.mount("settle=60", profile="published")
def test_a_persons_document_is_not_taken_for_one(desk: Mounted) -> None:
    """Files with merely similar names are uploaded as usual."""
    for name in PEOPLES_NAMES:
        (desk.root / name).write_bytes(b"mine\n")
    desk.sync()
    assert desk.zone.listing().keys() >= set(PEOPLES_NAMES)


@pytest.fixture
def shared(desk: Mounted) -> str:
    """Return the id of todo~, which a coworker has uploaded."""
    desk.zone.write("todo~", b"by Bob\n")
    assert "todo~" in desk.names(desk.root)
    assert (desk.root / "todo~").read_bytes() == b"by Bob\n"
    return desk.zone.entry_id("todo~")


def kill(desk: Mounted) -> None:
    """Start again, before anything is sent."""
    desk.kill()
    desk.mount()


def in_place(desk: Mounted) -> None:
    (desk.root / "todo~").write_bytes(b"edited\n")


def by_rename(desk: Mounted, draft: str = "draft") -> None:
    (desk.root / draft).write_bytes(b"edited\n")
    (desk.root / draft).rename(desk.root / "todo~")


def by_rename_of_a_sent_file(desk: Mounted) -> None:
    (desk.root / "draft").write_bytes(b"edited\n")
    desk.sync()
    (desk.root / "draft").rename(desk.root / "todo~")


def by_rename_of_a_local_file(desk: Mounted) -> None:
    by_rename(desk, ".goutputstream-ABCDEF")


def by_exchange(desk: Mounted, draft: str = "draft") -> None:
    (desk.root / draft).write_bytes(b"edited\n")
    desk.exchange(desk.root / draft, desk.root / "todo~")
    (desk.root / draft).unlink()


def by_exchange_with_a_local_file(desk: Mounted) -> None:
    by_exchange(desk, ".goutputstream-ABCDEF")


def removed_first(desk: Mounted) -> None:
    (desk.root / "todo~").unlink()
    in_place(desk)


def removed_before_the_rename(desk: Mounted) -> None:
    (desk.root / "todo~").unlink()
    by_rename_of_a_local_file(desk)


def with_a_backup(desk: Mounted, backup: str = "todo.old") -> None:
    (desk.root / "todo~").rename(desk.root / backup)
    in_place(desk)
    (desk.root / backup).unlink()


def with_a_local_backup(desk: Mounted) -> None:
    with_a_backup(desk, "todo~~")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "save",
    [in_place, by_rename, by_rename_of_a_sent_file, by_rename_of_a_local_file, by_exchange,
     by_exchange_with_a_local_file, removed_first, removed_before_the_rename, with_a_backup,
     with_a_local_backup],
)  # fmt: skip
def test_a_save_under_a_name_that_the_service_has(
    desk: Mounted, shared: str, save: object, restarted: bool
) -> None:
    """However a program saves, the file of the service gets a version."""
    assert callable(save)
    save(desk)
    if restarted:
        kill(desk)
    desk.sync()
    assert desk.zone.entry_id("todo~") == shared
    assert desk.zone.read("todo~") == b"edited\n"
    assert len(desk.zone.versions("todo~")) == 2
    assert set(desk.zone.listing()) == SEEDED | {"todo~"}
    assert desk.xattr(desk.root / "todo~", "user.zonedrive.state") != "local"


def test_a_removed_name_is_of_this_machine_only(desk: Mounted, shared: str) -> None:
    """A new file with the name stays here, once the removal is sent."""
    (desk.root / "todo~").unlink()
    desk.sync()
    (desk.root / "todo~").write_bytes(b"new\n")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    assert desk.xattr(desk.root / "todo~", "user.zonedrive.state") == "local"


@pytest.mark.parametrize("sent", [False, True])
def test_renamed_and_renamed_back(desk: Mounted, shared: str, sent: bool) -> None:
    """The service has the file all the time."""
    (desk.root / "todo~").rename(desk.root / "todo.old")
    if sent:
        desk.sync()
    (desk.root / "todo.old").rename(desk.root / "todo~")
    desk.sync()
    kept = "todo.old" if sent else "todo~"
    assert set(desk.zone.listing()) == SEEDED | {kept}
    assert desk.zone.entry_id(kept) == shared


def test_a_folder_is_renamed_back(desk: Mounted) -> None:
    """A folder of the service can get its own name again."""
    desk.zone.make_folder("work~")
    identity = desk.zone.entry_id("work~")
    assert "work~" in desk.names(desk.root)
    (desk.root / "work~").rename(desk.root / "work")
    (desk.root / "work").rename(desk.root / "work~")
    desk.sync()
    assert desk.zone.entry_id("work~") == identity


def test_another_file_of_the_service_replaces_it(desk: Mounted, shared: str) -> None:
    """As with other names, the name gets a version, and only the former name is removed."""
    content = (desk.root / "notes.txt").read_bytes()
    (desk.root / "notes.txt").rename(desk.root / "todo~")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"} | {"todo~"}
    assert desk.zone.entry_id("todo~") == shared
    assert desk.zone.read("todo~") == content


def test_a_new_file_at_the_former_name_of_what_replaced_it(desk: Mounted, shared: str) -> None:
    """Both files of the service keep their histories."""
    entry, content = desk.zone.entry_id("big.bin"), desk.zone.read("big.bin")
    (desk.root / "big.bin").rename(desk.root / "todo~")
    (desk.root / "big.bin").write_bytes(b"new\n")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED | {"todo~"}
    assert (desk.zone.entry_id("big.bin"), desk.zone.read("big.bin")) == (entry, b"new\n")
    assert (desk.zone.entry_id("todo~"), desk.zone.read("todo~")) == (shared, content)


@pytest.mark.parametrize("draft", ["draft", "draft~"])
def test_a_new_file_replaces_a_backup(desk: Mounted, draft: str) -> None:
    """The service keeps the file that the backup stands for, until the backup is removed."""
    identity = desk.zone.entry_id("notes.txt")
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    (desk.root / draft).write_bytes(b"new\n")
    (desk.root / draft).rename(desk.root / "notes.txt~")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    assert desk.zone.read("notes.txt") == world.SEED["notes.txt"]
    assert (desk.root / "notes.txt~").read_bytes() == b"new\n"
    (desk.root / "notes.txt~").rename(desk.root / "plan.txt")
    desk.sync()
    assert desk.zone.entry_id("plan.txt") == identity
    assert desk.zone.read("plan.txt") == b"new\n"


@pytest.mark.parametrize("cached", [False, True])
def test_a_file_of_the_service_replaces_a_backup(desk: Mounted, cached: bool) -> None:
    """The file stays on the service; the backup is removed there, as by a removal here."""
    identity = desk.zone.entry_id("big.bin")
    if cached:
        (desk.root / "big.bin").read_bytes()
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    (desk.root / "big.bin").rename(desk.root / "notes.txt~")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"}
    assert desk.zone.entry_id("big.bin") == identity
    assert (desk.root / "notes.txt~").read_bytes() == world.SEED["big.bin"]


def test_an_exchange_with_a_backup_is_refused(desk: Mounted) -> None:
    """The service cannot show it; nothing is changed."""
    (desk.root / "notes.txt").rename(desk.root / "notes.txt~")
    with pytest.raises(OSError) as refused:
        desk.exchange(desk.root / "notes.txt~", desk.root / "big.bin")
    assert refused.value.errno == errno.EINVAL
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    assert (desk.root / "notes.txt~").read_bytes() == world.SEED["notes.txt"]


def test_the_last_backup_of_two_renames_is_removed(desk: Mounted) -> None:
    """Removing the file removes its entry, whatever name that has."""
    (desk.root / "notes.txt").rename(desk.root / "plan.txt")
    (desk.root / "plan.txt").rename(desk.root / "plan.txt~")
    (desk.root / "plan.txt~").unlink()
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED - {"notes.txt"}


@pytest.fixture
def forbidden(desk: Mounted, shared: str) -> str:
    """Return the id of todo~, whose upload a policy forbids."""
    policy = virtual(desk).folder / "account" / "config.toml"
    policy.write_text('[policy]\nlocal_only = ["*~"]\n')
    desk.restart()
    assert (desk.root / "todo~").read_bytes() == b"by Bob\n"
    return shared


@pytest.mark.parametrize(
    "save",
    [in_place, by_rename, by_rename_of_a_local_file, by_exchange, removed_first,
     removed_before_the_rename, with_a_backup, with_a_local_backup],
)  # fmt: skip
def test_a_save_that_a_policy_forbids(desk: Mounted, forbidden: str, save: object) -> None:
    """The service keeps the file as it is, and the new bytes stay here as failed."""
    desk.allow("forbids this upload")
    assert callable(save)
    save(desk)
    assert desk.try_sync() == 1
    assert desk.zone.entry_id("todo~") == forbidden
    assert desk.zone.read("todo~") == b"by Bob\n"
    assert set(desk.zone.listing()) == SEEDED | {"todo~"}
    assert (desk.root / "todo~").read_bytes() == b"edited\n"
    assert desk.status()["outbox"]["failed"] == 1


FORBIDDEN = {
    "exact": ("salaries.xlsx", "salaries.xlsx"),
    "suffix": ("q3-internal.docx", "*-internal.docx"),
    "shortened": (f"{'x' * 230}-internal.docx", "*-internal.docx"),
    "shortened extension": (f"{'x' * 225}.tar.gz", "*.tar.gz"),
}
"""Names of files, and globs of a policy that forbids their upload."""


def copies_at(desk: Mounted, name: str) -> list[str]:
    """Return the names of conflict copies on this machine, while the service has `name` alone."""
    shown = desk.names(desk.root)
    assert set(desk.zone.listing()) == SEEDED | {name}
    assert desk.zone.read(name) == b"by Bob again\n"
    assert (desk.root / name).read_bytes() == b"by Bob again\n"
    return [each for each in shown if " (conflict, " in each]


@pytest.mark.parametrize(("name", "glob"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("is_new", [False, True], ids=["edited", "new"])
def test_a_conflict_copy_of_a_file_that_a_policy_forbids(
    desk: Mounted, name: str, glob: str, is_new: bool
) -> None:
    """The copy is not uploaded either, also after a restart, until somebody gives it a name."""
    desk.allow("forbids this upload", "becomes a conflict copy")
    if is_new:  # saved before the policy
        (desk.root / name).write_bytes(b"secret\n")
    else:
        desk.zone.write(name, b"by Bob\n")
        assert (desk.root / name).read_bytes() == b"by Bob\n"
    (virtual(desk).folder / "account" / "config.toml").write_text(
        f'[policy]\nlocal_only = ["{glob}"]\n'
    )
    kill(desk)
    if not is_new:
        (desk.root / name).write_bytes(b"secret\n")
        assert desk.try_sync() == 1
    desk.zone.write(name, b"by Bob again\n")
    assert desk.try_sync() == 1
    kill(desk)
    assert desk.try_sync() == 1
    (copy,) = copies_at(desk, name)
    assert (desk.root / copy).read_bytes() == b"secret\n"
    assert desk.status()["outbox"]["failed"] == 1
    (desk.root / copy).rename(desk.root / "public.txt")
    desk.sync()
    assert desk.zone.read("public.txt") == b"secret\n"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("policy_form", ["NFC", "NFD"])
def test_a_policy_forbids_each_unicode_spelling_of_a_name(
    desk: Mounted, form: Literal["NFC", "NFD"], policy_form: Literal["NFC", "NFD"]
) -> None:
    """Programs of other systems compose letters with accents differently."""
    glob = unicodedata.normalize(policy_form, "Gehälter*")
    policy = virtual(desk).folder / "account" / "config.toml"
    policy.write_text(f'[policy]\nlocal_only = ["{glob}"]\n')
    desk.restart()
    name = unicodedata.normalize(form, "GEHÄLTER 2026.xlsx")
    (desk.root / name).write_bytes(b"secret\n")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    assert desk.xattr(desk.root / name, "user.zonedrive.state") == "local"
    reason = virtual(desk).command("place", path=f"Zone 01/{name}")["unknown"]
    assert f"matches {glob!r}, of local_only" in reason


def test_no_file_of_the_service_replaces_what_a_policy_forbids_to_upload(
    desk: Mounted, forbidden: str
) -> None:
    """Its bytes could not be sent as the next version, and it would be lost for coworkers."""
    (desk.root / "notes.txt").read_bytes()
    with pytest.raises(PermissionError):
        (desk.root / "notes.txt").rename(desk.root / "todo~")
    with pytest.raises(PermissionError):
        desk.exchange(desk.root / "notes.txt", desk.root / "todo~")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED | {"todo~"}
    assert desk.zone.entry_id("todo~") == forbidden


def test_a_file_of_the_service_at_the_former_place_of_a_forbidden_one(
    desk: Mounted, forbidden: str
) -> None:
    """The file is a backup, and stays on the service under its former name."""
    (desk.root / "notes.txt").read_bytes()
    (desk.root / "todo~").rename(desk.root / "todo.old")
    (desk.root / "notes.txt").rename(desk.root / "todo~")
    (desk.root / "todo.old").unlink()
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED
    assert (desk.root / "todo~").read_bytes() == world.SEED["notes.txt"]
    desk.restart()
    assert desk.xattr(desk.root / "todo~", "user.zonedrive.state") == "local"


def test_a_forbidden_name_is_renamed_and_renamed_back(desk: Mounted, forbidden: str) -> None:
    """The service has the file all the time, and it is no backup."""
    (desk.root / "todo~").rename(desk.root / "todo.old")
    (desk.root / "todo.old").rename(desk.root / "todo~")
    desk.sync()
    assert desk.zone.entry_id("todo~") == forbidden
    assert desk.xattr(desk.root / "todo~", "user.zonedrive.state") != "local"


def test_only_files_that_are_to_be_uploaded_are_only_here(desk: Mounted) -> None:
    """A file that is never uploaded counts as replaceable, a new one for the service does not."""
    found = []
    for name in ("a~", "new.txt"):
        (desk.root / name).write_bytes(b"x")
        found.append(virtual(desk).command("place", path=f"Zone 01/{name}")["only_here"])
    assert found == [False, True]


def test_new_files_whose_names_are_in_the_setting_now(desk: Mounted) -> None:
    """They stay here, as does what is in a new folder with such a name; other names do not."""
    (desk.root / "folder").mkdir()
    (desk.root / "folder" / "in.txt").write_bytes(b"in\n")
    (desk.root / "a.draft").write_bytes(b"a\n")
    (desk.root / "docs" / "b.draft").write_bytes(b"b\n")
    (desk.root / "other.txt").write_bytes(b"other\n")
    desk.kill()
    desk.mount("local_only=*.draft:folder")
    desk.sync()
    assert set(desk.zone.listing()) == SEEDED | {"other.txt"}
    assert "b.draft" not in desk.zone.listing("docs")
    for name in ("a.draft", "folder", "docs/b.draft"):
        assert desk.xattr(desk.root / name, "user.zonedrive.state") == "local"
    assert (desk.root / "folder" / "in.txt").read_bytes() == b"in\n"
    kill(desk)
    assert (desk.root / "a.draft").read_bytes() == b"a\n"


@pytest.mark.mount("local_only=*.nothing")
def test_a_waiting_file_with_the_name_of_a_temporary_file(desk: Mounted) -> None:
    """A logoff deletes local-only files with such names, so the file is uploaded."""
    (desk.root / "build").mkdir()
    for name in ("thesis~", "build/thesis~"):
        (desk.root / name).write_bytes(b"thesis\n")
    desk.kill()
    desk.mount("local_only=build")
    desk.sync()
    for name in ("thesis~", "build/thesis~"):
        assert desk.zone.read(name) == b"thesis\n"


def test_what_the_service_knows_when_its_name_is_in_the_setting(desk: Mounted) -> None:
    """A file of the service gets its version, also as a new file after its removal; a new folder
    with such a file is sent."""
    (desk.root / "notes.txt").unlink()
    (desk.root / "notes.txt").write_bytes(b"new\n")
    (desk.root / "folder").mkdir()
    (desk.root / "big.bin").rename(desk.root / "folder" / "big.bin")
    desk.kill()
    desk.mount("local_only=notes.txt:folder:big.bin")
    desk.sync()
    assert desk.zone.read("notes.txt") == b"new\n"
    assert len(desk.zone.versions("notes.txt")) == 2
    assert "big.bin" in desk.zone.listing("folder")
