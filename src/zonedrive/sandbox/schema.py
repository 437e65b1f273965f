"""Tables of the sandbox, with an explanation of each column.

Columns `…_us` are microseconds since the epoch. Secrets of sessions and tokens are stored only as
SHA-256 hashes. Levels in a zone: 0 None, 1 Add, 2 Modify, 3 Manage.
"""

VERSION = 4

TABLES = """
CREATE TABLE settings (
    key   TEXT PRIMARY KEY,       -- 'organization': the world file's table of that name
    value TEXT NOT NULL           -- JSON
);

CREATE TABLE users (
    id               TEXT PRIMARY KEY COLLATE NOCASE,  -- what a person logs on with
    name             TEXT NOT NULL,                    -- shown to people
    password         BLOB NOT NULL,                    -- salt and scrypt digest
    password_version INTEGER NOT NULL DEFAULT 1,       -- counts changes (see tokens)
    administrator    INTEGER NOT NULL,
    otp_secret       TEXT,                             -- base32; NULL: no one-time codes
    totp_step        INTEGER NOT NULL DEFAULT -1,      -- the last 30 s step whose code was used
    hotp_counter     INTEGER NOT NULL DEFAULT 0,       -- the next counter that is accepted
    mail_code        TEXT,                             -- the last code mailed; NULL: never one
    change_required  INTEGER NOT NULL                  -- 1: nothing but changing the password
);

CREATE TABLE groups (
    id            TEXT PRIMARY KEY,       -- group.<uuid>@<domain>
    name          TEXT NOT NULL UNIQUE,
    description   TEXT NOT NULL,
    created_us    INTEGER NOT NULL,
    created_by    TEXT NOT NULL,          -- user id
    scim          INTEGER NOT NULL        -- 1: made or changed through the scope SCIM
);

CREATE TABLE group_members (
    group_id  TEXT NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    member_id TEXT NOT NULL COLLATE NOCASE,  -- a user id or a group id
    is_group  INTEGER NOT NULL,
    manage    INTEGER NOT NULL,              -- 1 Manage, 0 Access
    PRIMARY KEY (group_id, member_id)
);
CREATE INDEX group_members_by_member ON group_members (member_id);

CREATE TABLE zones (
    id             TEXT PRIMARY KEY,      -- UUID
    name           TEXT NOT NULL,
    description    TEXT NOT NULL,
    root_id        TEXT NOT NULL,         -- the entry that holds the zone's folders and files
    created_us     INTEGER NOT NULL,
    created_by     TEXT NOT NULL,         -- user id
    allow_external_sharing INTEGER NOT NULL,
    accessible     INTEGER NOT NULL       -- 0: listed, but its content is closed to this API
);

CREATE TABLE zone_members (
    zone_id   TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    member_id TEXT NOT NULL COLLATE NOCASE,  -- a user id or a group id
    is_group  INTEGER NOT NULL,
    level     INTEGER NOT NULL,              -- 1..3; a group never has 3
    PRIMARY KEY (zone_id, member_id)
);
CREATE INDEX zone_members_by_member ON zone_members (member_id);

CREATE TABLE entries (
    serial          INTEGER PRIMARY KEY,  -- order of creation, which is the order of listings
    id              TEXT NOT NULL UNIQUE, -- 32 hexadecimal digits
    zone_id         TEXT NOT NULL REFERENCES zones(id),
    parent_id       TEXT,                 -- NULL: a zone's root folder
    name            TEXT NOT NULL,        -- any text; two entries of one name only by `plant`
    folder          INTEGER NOT NULL,
    trash_id        TEXT,                 -- NULL: present; else whose deletion took this along
    version_id      TEXT,                 -- the current version; NULL for a folder
    size            INTEGER NOT NULL,     -- bytes of the current version; 0 for a folder
    modified_us     INTEGER NOT NULL,     -- of the current version; a folder: made or renamed
    modified_by     TEXT NOT NULL,        -- user id
    executable      INTEGER NOT NULL DEFAULT 0,
    hidden          INTEGER NOT NULL DEFAULT 0,
    read_protected  INTEGER NOT NULL DEFAULT 0,   -- 1: content and listing are refused
    write_protected INTEGER NOT NULL DEFAULT 0    -- 1: changes are refused
);
CREATE INDEX entries_by_parent ON entries (parent_id, name);
CREATE INDEX entries_by_zone ON entries (zone_id, trash_id);

CREATE TABLE versions (
    id          TEXT PRIMARY KEY,         -- 32 hexadecimal digits; names the content file too
    entry_id    TEXT NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
    number      INTEGER NOT NULL,         -- 1 is the oldest; rows are never changed
    size        INTEGER NOT NULL,         -- bytes
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
    expires_us  INTEGER NOT NULL,         -- an expired token stays listed
    password_version INTEGER NOT NULL     -- users.password_version when it was made
);
"""

# Added by schema version 2; an older database is upgraded at the next start.
SINCE_2 = """
CREATE TABLE zone_log (
    serial   INTEGER PRIMARY KEY,         -- order of the messages
    id       TEXT NOT NULL UNIQUE,        -- UUID
    zone_id  TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    at_us    INTEGER NOT NULL,
    user_id  TEXT NOT NULL,               -- who did it
    event    TEXT NOT NULL,               -- one of zone_log.Event
    entry_id TEXT,                        -- what it was done to, present or not
    message  TEXT NOT NULL                -- a sentence for people
);
CREATE INDEX zone_log_by_zone ON zone_log (zone_id, serial);

CREATE TABLE shares (
    secret     BLOB PRIMARY KEY,          -- SHA-256 of the share key
    zone_id    TEXT NOT NULL REFERENCES zones(id) ON DELETE CASCADE,
    entry_id   TEXT NOT NULL REFERENCES entries(id) ON DELETE CASCADE,
    user_id    TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,  -- whose rights count
    created_us INTEGER NOT NULL
);
CREATE INDEX shares_by_entry ON shares (entry_id);
"""

# Added by schema version 3.
SINCE_3 = """
ALTER TABLE users ADD COLUMN mail_used INTEGER NOT NULL DEFAULT 0;  -- 1: mail_code was used
"""

# Added by schema version 4.
SINCE_4 = """
ALTER TABLE zone_log ADD COLUMN path TEXT;  -- of the entry in the zone at that time; NULL: none
"""

UPGRADES = {1: SINCE_2, 2: SINCE_3, 3: SINCE_4}  # schema version -> upgrade to the next one
