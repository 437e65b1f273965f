"""Initial users, groups, zones and content of a sandbox, created from its world file.

This module does not parse TOML; see `world`. INVARIANT: the database contains all of the initial
data or none of it. If the first start was killed before the commit, the next start loads the data.
"""

import os
import secrets
import shutil
from pathlib import Path

import msgspec

from zonedrive.sandbox import settings
from zonedrive.sandbox.blobs import new_id
from zonedrive.sandbox.deployment import Deployment
from zonedrive.sandbox.errors import FULL, SandboxError, WorldError, unusable
from zonedrive.sandbox.groups import Change
from zonedrive.sandbox.world import World, WorldZone
from zonedrive.sandbox.zones import Level

PACKAGED_WORLD = Path(__file__).parent / "world" / "world.toml"


def with_passwords(world: World, file: Path) -> World:
    """Return a copy of the world in which users without a password have a random password.

    Writes the random passwords to `file` with mode 0600. Raises SandboxError if the file cannot be
    written.
    """
    made = {user.id: secrets.token_hex(12) for user in world.users if user.password is None}
    if not made:
        return world
    text = "".join(f"{user} {password}\n" for user, password in made.items())
    try:
        file.unlink(missing_ok=True)  # left behind by a first start that was killed
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
            written.write(text)
    except OSError as wrong:
        raise unusable(file, wrong) from wrong
    users = [
        msgspec.structs.replace(user, password=made.get(user.id, user.password))
        for user in world.users
    ]
    return msgspec.structs.replace(world, users=users)


def fill(deployment: Deployment, world: World) -> None:
    """Load a validated world into an empty deployment.

    All users of `world` must have passwords. Raises OSError or sqlite3.Error if the disk is full,
    and SandboxError if the content of a zone cannot be copied for another reason.
    """
    with deployment.database.transaction():
        settings.save(deployment.database, deployment.organization)
        for user in world.users:
            deployment.users.add(
                user.id,
                user.name,
                user.password or "",
                administrator=user.administrator,
                otp_secret=user.otp_secret,
                change_required=user.password_change_required,
            )
        _groups(deployment, world)
        for zone in world.zones:
            _zone(deployment, world, zone)


def _groups(deployment: Deployment, world: World) -> None:
    groups, creator = deployment.groups, _creator(world)
    for group in world.groups:
        # Members are added when all groups exist. Only their levels determine who manages a group.
        groups.create(group.name, group.description, creator, [], creator_manages=False)
    for group in world.groups:
        changes = [
            Change(_member(deployment, member.id, member.group), member.access)
            for member in group.members
        ]
        groups.change(_group_id(deployment, group.name), changes, relative=False)


def _creator(world: World) -> str:
    administrators = [user.id for user in world.users if user.administrator]
    return (administrators or [user.id for user in world.users] or [""])[0]


def _group_id(deployment: Deployment, name: str) -> str:
    group_id = deployment.groups.by_name(name)
    assert group_id is not None, "the world was checked"
    return group_id


def _member(deployment: Deployment, user_id: str | None, group: str | None) -> str:
    if group is not None:
        return _group_id(deployment, group)
    user = deployment.users.find(user_id or "")
    assert user is not None, "the world was checked"
    return user.id


def _zone(deployment: Deployment, world: World, zone: WorldZone) -> None:
    manager = _member(deployment, zone.manager, None)
    root_id = new_id()
    zone_id = deployment.zones.create(
        zone.name,
        zone.description,
        manager,
        root_id,
        allow_external_sharing=zone.allow_external_sharing,
        accessible=zone.accessible,
    )
    deployment.log.add(zone_id, manager, "ZoneCreated", f"{zone.name} was made")
    for member in zone.members:
        level = Level.parse(member.access)
        member_id = _member(deployment, member.id, member.group)
        if level is not None and member_id != manager:
            deployment.zones.set_member(
                zone_id, member_id, level, is_group=member.group is not None
            )
    deployment.entries.add_root(zone_id, root_id, zone.name, manager)
    if zone.content is not None:
        copy = _Copy(deployment, zone_id, manager)
        try:
            copy.folder(Path(world.folder) / zone.content, root_id)
        except OSError as wrong:
            if wrong.errno in FULL:
                raise  # the disk is full; the content is valid
            raise SandboxError(f"{wrong.filename} cannot be copied: {wrong.strerror}") from wrong


class _Copy:
    """Recursive copy of a local folder into a zone."""

    def __init__(self, deployment: Deployment, zone_id: str, user_id: str) -> None:
        self._entries = deployment.entries
        self._zone_id = zone_id
        self._user_id = user_id

    def folder(self, source: Path, folder_id: str) -> None:
        """Copy the content of the local folder `source` into a folder of the zone, in name order.

        Raises WorldError for a symlink to a folder or to a missing file, a special file, or a name
        that is not UTF-8. Raises OSError if a file cannot be copied.
        """
        for item in sorted(os.scandir(source), key=lambda item: item.name):
            path = Path(item.path)
            try:
                item.name.encode()
            except UnicodeEncodeError:
                raise WorldError(
                    f"{source} holds a name that is not UTF-8: {item.name!r}"
                ) from None
            if item.is_dir(follow_symlinks=False):
                inner = self._entries.add_folder(self._zone_id, folder_id, item.name, self._user_id)
                self.folder(path, inner)
            elif item.is_file():
                self._file(path, folder_id)
            elif item.is_dir():
                raise WorldError(f"{path} is a link to a folder: put a copy of the folder there")
            elif item.is_symlink():
                raise WorldError(f"{path} is a link to no file: remove it")
            else:
                raise WorldError(f"{path} is neither a file nor a folder: remove it")

    def _file(self, path: Path, folder_id: str) -> None:
        target = self._entries.blobs.incoming()
        shutil.copyfile(path, target)
        with target.open("rb") as copied:
            os.fsync(copied.fileno())
        entry_id = self._entries.add_file(
            self._zone_id, folder_id, path.name, self._user_id, target
        )
        if path.stat().st_mode & 0o100:
            row = self._entries.find(self._zone_id, entry_id)
            self._entries.set_attributes(row, {"executable": True}, self._user_id)
