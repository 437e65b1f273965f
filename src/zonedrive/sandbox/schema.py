"""Tables of the sandbox, with comments on their columns.

Columns `…_us` are microseconds since the epoch. Secrets of sessions and tokens are stored only as
SHA-256 hashes. Levels in a zone: 0 None, 1 Add, 2 Modify, 3 Manage.
"""

VERSION = 4

TABLES = """
CREATE TABLE settings (
    key   TEXT PRIMARY KEY,       -- name of the setting; only 'organization' is used
    value TEXT NOT NULL           -- JSON of the setting (see settings.Organization)
);

CREATE TABLE users (
    id               TEXT PRIMARY KEY COLLATE NOCASE,  -- user name for the logon
    name             TEXT NOT NULL,                    -- display name
    password         BLOB NOT NULL,                    -- salt, followed by the scrypt digest
    password_version INTEGER NOT NULL DEFAULT 1,       -- increased by each password change
    administrator    INTEGER NOT NULL,
    otp_secret       TEXT,                             -- base32; NULL: user has no one-time codes
    totp_step        INTEGER NOT NULL DEFAULT -1,      -- last 30 s step of a used code; -1: none
    hotp_counter     INTEGER NOT NULL DEFAULT 0,       -- smallest counter that is still accepted
    mail_code        TEXT,                             -- last code sent by mail; NULL: none
    change_required  INTEGER NOT NULL                  -- 1: the user must change the password first
);

CREATE TABLE groups (
    id            TEXT PRIMARY KEY,       -- group.<uuid>@<domain>
    name          TEXT NOT NULL UNIQUE,
    description   TEXT NOT NULL,
    created_us    INTEGER NOT NULL,
    created_by    TEXT NOT NULL,          -- user id
    scim          INTEGER NOT NULL        -- 1: was created or changed with the scope SCIM
);

CREATE TABLE group_members (
    group_id  TEXT NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    member_id TEXT NOT NULL COLLATE NOCASE,  -- a user id or a group id
    is_group  INTEGER NOT NULL,
    manage    INTEGER NOT NULL,              -- 1: level Manage, 0: level Access
    PRIMARY KEY (group_id, member_id)
);
CREATE INDEX group_members_by_member ON group_members (member_id);

CREATE TABLE zones (
    id             TEXT PRIMARY KEY,      -- UUID
    name           TEXT NOT NULL,
    description    TEXT NOT NULL,
    root_id        TEXT NOT NULL,         -- id of the zone's root folder in `entries`
    created_us     INTEGER NOT NULL,
    created_by     TEXT NOT NULL,         -- user id
    allow_external_sharing INTEGER NOT NULL,
    accessible     INTEGER NOT NULL       -- 0: listed, but the API cannot access its content
);

CREATE TABLE zone_members (
    zone_id   TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    member_id TEXT NOT NULL COLLATE NOCASE,  -- a user id or a group id
    is_group  INTEGER NOT NULL,
    level     INTEGER NOT NULL,              -- 1 to 3 for a user, 1 or 2 for a group
    PRIMARY KEY (zone_id, member_id)
);
CREATE INDEX zone_members_by_member ON zone_members (member_id);

CREATE TABLE entries (
    serial          INTEGER PRIMARY KEY,  -- ascending in order of creation; listings use this order
    id              TEXT NOT NULL UNIQUE, -- 32 hexadecimal digits
    zone_id         TEXT NOT NULL REFERENCES zones(id),
    parent_id       TEXT,                 -- id of the parent folder; NULL for a zone's root folder
    name            TEXT NOT NULL,        -- any text; only `plant` creates equal names in a folder
    folder          INTEGER NOT NULL,     -- 1: folder, 0: file
    trash_id        TEXT,                 -- NULL: not deleted; otherwise, id of the entry that the
                                          -- user deleted: this entry or a folder above it
    version_id      TEXT,                 -- id of the current version; NULL for a folder
    size            INTEGER NOT NULL,     -- size of the current version in bytes; 0 for a folder
    modified_us     INTEGER NOT NULL,     -- file: time of the current version; folder: time of its
                                          -- creation or of its last rename or move
    modified_by     TEXT NOT NULL,        -- id of the user who made the change at modified_us
    executable      INTEGER NOT NULL DEFAULT 0,
    hidden          INTEGER NOT NULL DEFAULT 0,
    read_protected  INTEGER NOT NULL DEFAULT 0,   -- 1: content or listing cannot be read
    write_protected INTEGER NOT NULL DEFAULT 0    -- 1: changes are rejected
);
CREATE INDEX entries_by_parent ON entries (parent_id, name);
CREATE INDEX entries_by_zone ON entries (zone_id, trash_id);

CREATE TABLE versions (
    id          TEXT PRIMARY KEY,         -- 32 hexadecimal digits; also the content file's name
    entry_id    TEXT NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,         -- 1 for the oldest version; rows never change
    size        INTEGER NOT NULL,         -- size in bytes
    modified_us INTEGER NOT NULL,         -- strictly increasing with the number
    modified_by TEXT NOT NULL,            -- user id
    UNIQUE (entry_id, number)
);

CREATE TABLE sessions (
    secret     BLOB PRIMARY KEY,          -- SHA-256 of the session id
    user_id    TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    scope      TEXT,                      -- JSON; NULL: unlimited
    expires_us INTEGER NOT NULL
);

CREATE TABLE tokens (
    id          TEXT PRIMARY KEY,         -- UUID
    secret      BLOB NOT NULL UNIQUE,     -- SHA-256 of the token
    user_id     TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    scope       TEXT,                     -- JSON; NULL: unlimited
    created_us  INTEGER NOT NULL,
    expires_us  INTEGER NOT NULL,         -- an expired token remains in this table
    password_version INTEGER NOT NULL     -- users.password_version when the token was created; the
                                          -- token is valid only while both are equal
);
"""

# Added by schema version 2; an older database is upgraded at the next start.
SINCE_2 = """
CREATE TABLE zone_log (
    serial   INTEGER PRIMARY KEY,         -- order of the messages
    id       TEXT NOT NULL UNIQUE,        -- UUID
    zone_id  TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    at_us    INTEGER NOT NULL,
    user_id  TEXT NOT NULL,               -- id of the user who caused the event
    event    TEXT NOT NULL,               -- kind of the event (see zone_log.Event)
    entry_id TEXT,                        -- id of the changed entry, which may be deleted; or NULL
    message  TEXT NOT NULL                -- description of the event for users
);
CREATE INDEX zone_log_by_zone ON zone_log (zone_id, serial);

CREATE TABLE shares (
    secret     BLOB PRIMARY KEY,          -- SHA-256 of the share key
    zone_id    TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    entry_id   TEXT NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
    -- The user who created the share. The key gives at most this user's permissions.
    user_id    TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    created_us INTEGER NOT NULL
);
CREATE INDEX shares_by_entry ON shares (entry_id);
"""

# Added by schema version 3.
SINCE_3 = """
ALTER TABLE users ADD COLUMN mail_used INTEGER NOT NULL DEFAULT 0;  -- 1: mail_code was used
"""

# Added by schema version 4; `path` is the entry's path in the zone after the event.
SINCE_4 = """
ALTER TABLE zone_log ADD COLUMN path TEXT;  -- of the entry in the zone at that time; NULL: none
"""

UPGRADES = {1: SINCE_2, 2: SINCE_3, 3: SINCE_4}  # schema version -> upgrade to the next one
