"""Files and folders in the tree of each zone, and the versions of each file.

This module checks no permissions, and accepts any text as a name. INVARIANT: a version row never
changes, a file's current version is its newest version, and `modified_us` of a file strictly
increases with each version.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zonedrive.sandbox.blobs import Blobs, new_id
from zonedrive.sandbox.clock import iso, now_us
from zonedrive.sandbox.database import Database, Row
from zonedrive.sandbox.errors import ApiError
from zonedrive.sandbox.zone_log import Event, ZoneLog

ATTRIBUTES = {
    "executable": "executable",
    "hidden": "hidden",
    "readProtected": "read_protected",
    "writeProtected": "write_protected",
}

# An entry and everything below it, deleted or not.
BELOW = """
    WITH RECURSIVE below(id) AS (
        SELECT ? UNION ALL
        SELECT e.id FROM entries e JOIN below ON e.parent_id = below.id
    )
"""


@dataclass(frozen=True, slots=True)
class Version:
    """Immutable version of a file."""

    number: int
    id: str
    size: int
    modified_us: int
    modified_by: str

    def wire(self) -> dict[str, Any]:
        """Return the version as an item of the API's list of versions."""
        return {
            "version": self.number,
            "id": self.id,
            "size": self.size,
            "lastModified": iso(self.modified_us),
            "lastModifiedBy": self.modified_by,
        }


def wire(row: Row) -> dict[str, Any]:
    """Return an entry as the API's JSON object."""
    name, folder = row["name"], bool(row["folder"])
    stem, _dot, extension = ("", "", "") if folder else name.rpartition(".")
    has_extension = bool(stem and extension)
    return {
        "id": row["id"],
        "zoneId": row["zone_id"],
        "parentId": row["parent_id"] or "",
        "name": name,
        "displayName": name,
        "properName": stem if has_extension else name,
        "folder": folder,
        "deleted": row["trash_id"] is not None,
        "size": row["size"],
        "type": "folder" if folder else extension.lower() if has_extension else "file",
        "lastModified": iso(row["modified_us"]),
        "lastModifiedBy": row["modified_by"],
        "synchronizationStatus": "NotSynchronizing",
        "attributes": {
            "executable": bool(row["executable"]),
            "hidden": bool(row["hidden"]),
            "readProtected": bool(row["read_protected"]),
            "synchronize": False,
            "writeProtected": bool(row["write_protected"]),
        },
    }


class Entries:
    """Tables of entries and versions, and the content files of the versions."""

    def __init__(self, database: Database, blobs: Blobs, log: ZoneLog) -> None:
        self._database = database
        self._log = log
        self.blobs = blobs

    # Queries

    def find(self, zone_id: str, entry_id: str) -> Row:
        """Return an entry; raise ApiError 404 UNKNOWN_FILE if the entry is missing or deleted."""
        row = self._database.one(
            "SELECT * FROM entries WHERE id = ? AND zone_id = ?", entry_id, zone_id
        )
        if row is None or row["trash_id"] is not None:
            raise ApiError(404, "UNKNOWN_FILE", "There is no such file or folder", entry_id)
        return row

    def find_in_trash(self, zone_id: str, entry_id: str) -> Row:
        """Return a deleted entry.

        Raises ApiError 404 UNKNOWN_FILE if the entry does not exist, 409 WRONG_STATE if the entry
        is not deleted.
        """
        row = self._database.one(
            "SELECT * FROM entries WHERE id = ? AND zone_id = ?", entry_id, zone_id
        )
        if row is None:
            raise ApiError(404, "UNKNOWN_FILE", "There is no such file or folder", entry_id)
        if row["trash_id"] is None:
            raise ApiError(409, "WRONG_STATE", "This is not deleted", entry_id)
        return row

    def folder(self, zone_id: str, folder_id: str) -> Row:
        """Return the folder; raise ApiError as `find` does, or 400 NOT_A_FOLDER for a file."""
        row = self.find(zone_id, folder_id)
        if not row["folder"]:
            raise ApiError(400, "NOT_A_FOLDER", "This is a file", folder_id)
        return row

    def file(self, zone_id: str, file_id: str) -> Row:
        """Return the file; raise ApiError as `find` does, or 400 NOT_A_FILE for a folder."""
        row = self.find(zone_id, file_id)
        if row["folder"]:
            raise ApiError(400, "NOT_A_FILE", "This is a folder", file_id)
        return row

    def write_protected(self, entry_id: str) -> bool:
        """Return True if an entry, deleted or not, is write-protected."""
        return bool(
            self._database.scalar("SELECT write_protected FROM entries WHERE id = ?", entry_id)
        )

    def children(self, folder_id: str, limit: int = -1, offset: int = 0) -> list[Row]:
        """Return the non-deleted entries of a folder, in order of creation.

        A `limit` of -1 means no limit.
        """
        return self._database.all(
            "SELECT * FROM entries WHERE parent_id = ? AND trash_id IS NULL"
            " ORDER BY serial LIMIT ? OFFSET ?",
            folder_id,
            limit,
            offset,
        )

    def child(self, folder_id: str, name: str) -> Row | None:
        """Return the folder's oldest non-deleted entry with this name, or None."""
        return self._database.one(
            "SELECT * FROM entries WHERE parent_id = ? AND name = ? AND trash_id IS NULL"
            " ORDER BY serial LIMIT 1",
            folder_id,
            name,
        )

    def trash(self, zone_id: str) -> list[Row]:
        """Return the deleted entries of a zone, except entries deleted as part of a folder.

        The additional column `deleted_us` is the time of the deletion in microseconds since the
        epoch, or None if the zone's log does not contain the deletion.
        """
        return self._database.all(
            """SELECT entries.*, gone.at_us AS deleted_us FROM entries
               LEFT JOIN (
                 SELECT entry_id, max(at_us) AS at_us FROM zone_log
                 WHERE zone_id = ?1 AND event = 'Deleted' GROUP BY entry_id
               ) AS gone ON gone.entry_id = entries.id
               WHERE zone_id = ?1 AND trash_id = id ORDER BY serial""",
            zone_id,
        )

    def versions(self, entry_id: str) -> list[Version]:
        """Return the versions of a file, newest first."""
        rows = self._database.all(
            "SELECT number, id, size, modified_us, modified_by FROM versions"
            " WHERE entry_id = ? ORDER BY number DESC",
            entry_id,
        )
        return [Version(*row) for row in rows]

    def version(self, entry_id: str, wanted: str | None) -> Version:
        """Return a version of a file; `wanted` is its number or its id (None: the newest version).

        Raises ApiError 404 UNKNOWN_FILE_VERSION if there is no such version.
        """
        for version in self.versions(entry_id):
            if wanted is None or wanted in (str(version.number), version.id):
                return version
        raise ApiError(404, "UNKNOWN_FILE_VERSION", "There is no such version", entry_id)

    # Creation

    def add_root(self, zone_id: str, entry_id: str, name: str, user_id: str) -> None:
        """Create the root folder of a new zone."""
        self._insert(zone_id, None, name, user_id, entry_id=entry_id, folder=True)

    def add_folder(self, zone_id: str, parent_id: str, name: str, user_id: str) -> str:
        """Create a folder, even if the name is taken; return the id of the folder."""
        with self._database.transaction():
            entry_id = self._insert(
                zone_id, parent_id, name, user_id, entry_id=new_id(), folder=True
            )
            said, path = f"Folder {name} was added", self._path(parent_id, name)
            self._log.add(zone_id, user_id, "FolderAdded", said, entry_id, path)
        return entry_id

    def add_file(self, zone_id: str, parent_id: str, name: str, user_id: str, source: Path) -> str:
        """Create a file, even if the name is taken; return the id of the file.

        `source`, a complete and synced file below `incoming/`, becomes the first version.
        """
        with self._database.transaction():
            entry_id = self._insert(
                zone_id, parent_id, name, user_id, entry_id=new_id(), folder=False
            )
            self.add_version(entry_id, user_id, source)
        return entry_id

    def add_version(self, entry_id: str, user_id: str, source: Path) -> None:
        """Add `source`, a complete and synced file below `incoming/`, as the newest version.

        `source` is renamed before the commit. A crash between the rename and the commit leaves a
        content file without a version; the next start removes this content file.
        """
        version_id, size = new_id(), source.stat().st_size
        with self._database.transaction():
            number, latest = self._database.all(
                "SELECT coalesce(max(number), 0) + 1, coalesce(max(modified_us), 0)"
                " FROM versions WHERE entry_id = ?",
                entry_id,
            )[0]
            modified = max(now_us(), latest + 1)
            self._database.run(
                "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?)",
                version_id,
                entry_id,
                number,
                size,
                modified,
                user_id,
            )
            self._database.run(
                "UPDATE entries SET version_id = ?, size = ?, modified_us = ?, modified_by = ?"
                " WHERE id = ?",
                version_id,
                size,
                modified,
                user_id,
                entry_id,
            )
            self._log_version(entry_id, user_id, number)
            self.blobs.publish(source, version_id)

    def set_attributes(self, row: Row, attributes: dict[str, bool], user_id: str) -> None:
        """Set attributes of an entry; `attributes` has the API's names (see ATTRIBUTES) as keys."""
        with self._database.transaction():
            for name, value in attributes.items():
                self._database.run(
                    f"UPDATE entries SET {ATTRIBUTES[name]} = ? WHERE id = ?",  # noqa: S608 our names
                    value,
                    row["id"],
                )
            said = ", ".join(f"{name} {value}" for name, value in attributes.items())
            self.tell(row, user_id, "AttributesChanged", f"{row['name']} is now {said}")

    # Changes

    def move(self, row: Row, parent_id: str, name: str, user_id: str) -> None:
        """Move an entry to the folder `parent_id` with the name `name`.

        A file keeps its `lastModified`, which is the time of its newest version. A new name with a
        leading dot hides the entry; a new name without the leading dot shows it again. Raises
        ApiError 409 if another entry of that folder has the name, 400 if a folder would move into
        itself or into a folder below itself.
        """
        if self.is_inside(parent_id, row["id"]):
            raise ApiError(400, "ILLEGAL_ARGUMENT", "A folder cannot move into itself", row["id"])
        self.refuse_taken(parent_id, name, but=row["id"])
        hidden = row["hidden"]
        if name.startswith(".") != row["name"].startswith("."):
            hidden = name.startswith(".")
        with self._database.transaction():
            self._database.run(
                "UPDATE entries SET parent_id = ?, name = ?, hidden = ? WHERE id = ?",
                parent_id,
                name,
                hidden,
                row["id"],
            )
            if row["folder"]:
                self._database.run(
                    "UPDATE entries SET modified_us = ?, modified_by = ? WHERE id = ?",
                    max(now_us(), row["modified_us"] + 1),
                    user_id,
                    row["id"],
                )
            path = self._path(parent_id, name)
            if name != row["name"]:
                self.tell(row, user_id, "Renamed", f"{row['name']} is now named {name}", path)
            if parent_id != row["parent_id"]:
                self.tell(row, user_id, "Moved", f"{name} was moved to another folder", path)

    def delete(self, row: Row, user_id: str) -> None:
        """Move an entry and everything below it to the trash."""
        with self._database.transaction():
            self._database.run(
                """WITH RECURSIVE below(id) AS (
                     SELECT ?1 UNION ALL
                     SELECT e.id FROM entries e JOIN below ON e.parent_id = below.id
                     WHERE e.trash_id IS NULL
                   ) UPDATE entries SET trash_id = ?1 WHERE id IN (SELECT id FROM below)""",
                row["id"],
            )
            self.tell(row, user_id, "Deleted", f"{row['name']} was deleted")

    def restore(self, row: Row, user_id: str) -> None:
        """Restore an entry from the trash, with everything that was deleted with it.

        Raises ApiError 409 if the name is taken now, if the entry's folder is deleted, or if the
        entry was deleted as part of a folder.
        """
        if row["trash_id"] != row["id"]:
            raise ApiError(409, "WRONG_STATE", "It was deleted with its folder", row["trash_id"])
        parent = self._database.one("SELECT * FROM entries WHERE id = ?", row["parent_id"])
        if parent is None or parent["trash_id"] is not None:
            raise ApiError(409, "WRONG_STATE", "The folder it was in is deleted", row["parent_id"])
        self.refuse_taken(row["parent_id"], row["name"])
        with self._database.transaction():
            self._database.run("UPDATE entries SET trash_id = NULL WHERE trash_id = ?", row["id"])
            self.tell(row, user_id, "Restored", f"{row['name']} was restored")

    def purge(self, row: Row, user_id: str) -> None:
        """Permanently delete an entry in the trash and everything below it."""
        with self._database.transaction():
            versions = self._database.all(
                BELOW + "SELECT id FROM versions WHERE entry_id IN (SELECT id FROM below)",  # noqa: S608
                row["id"],
            )
            self._database.run(
                BELOW + "DELETE FROM entries WHERE id IN (SELECT id FROM below)",  # noqa: S608
                row["id"],
            )
            self.tell(row, user_id, "Removed", f"{row['name']} was permanently removed")
        for version in versions:
            self.blobs.delete(version["id"])

    def refuse_taken(self, parent_id: str, name: str, *, but: str | None = None) -> None:
        """Raise ApiError 409 if the folder has an entry named `name`.

        Deleted entries, and the entry whose id is `but`, do not count.
        """
        there = self.child(parent_id, name)
        if there is not None and there["id"] != but:
            raise ApiError(409, "ALREADY_EXISTS", f"There is a {name!r} already", there["id"])

    def sweep(self) -> int:
        """Remove content files that a crash left behind; return the number of files removed."""
        known = {row["id"] for row in self._database.all("SELECT id FROM versions")}
        return self.blobs.sweep(known)

    def is_inside(self, entry_id: str, folder_id: str) -> bool:
        """Return True if an entry is the folder itself or anywhere below the folder."""
        step: str | None = entry_id
        while step is not None:
            if step == folder_id:
                return True
            step = self._database.scalar("SELECT parent_id FROM entries WHERE id = ?", step)
        return False

    def _log_version(self, entry_id: str, user_id: str, number: int) -> None:
        row = self._database.one("SELECT * FROM entries WHERE id = ?", entry_id)
        assert row is not None, "a version belongs to an entry"
        if number == 1:
            self.tell(row, user_id, "FileAdded", f"{row['name']} was added")
        else:
            self.tell(row, user_id, "FileModified", f"{row['name']} has the version {number}")

    def tell(
        self, row: Row, user_id: str, event: Event, message: str, path: str | None = None
    ) -> None:
        """Write a message about a changed entry to the zone's log.

        The caller must call this method in the transaction that changes the entry.
        `path` is the entry's path after the change; None means the path according to `row`.
        """
        path = path or self._path(row["parent_id"], row["name"])
        self._log.add(row["zone_id"], user_id, event, message, row["id"], path)

    def _path(self, parent_id: str | None, name: str) -> str:
        """Return the path of the entry `name` in a folder, relative to the zone's root folder.

        `parent_id` is the id of the folder. If `parent_id` is None, the entry is the root folder,
        whose path is "".
        """
        names = [] if parent_id is None else [name]
        while parent_id is not None:
            sql = "SELECT name, parent_id FROM entries WHERE id = ?"
            if (parent := self._database.one(sql, parent_id)) is None:
                break
            parent_id = parent["parent_id"]
            if parent_id is not None:
                names.append(parent["name"])
        return "/".join(reversed(names))

    def _insert(
        self,
        zone_id: str,
        parent_id: str | None,
        name: str,
        user_id: str,
        *,
        entry_id: str,
        folder: bool,
    ) -> str:
        self._database.run(
            "INSERT INTO entries (id, zone_id, parent_id, name, folder, size, modified_us,"
            " modified_by, hidden) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)",
            entry_id,
            zone_id,
            parent_id,
            name,
            folder,
            now_us(),
            user_id,
            name.startswith("."),
        )
        return entry_id
