"""POSIX operations, independent of the kernel.

Combines tree, content and outbox, which do not know each other:

    filesystem   the facade that `fuse` calls and `daemon` starts
    namespace    lookup, readdir, create, mkdir, unlink, rmdir
    renaming     rename, and its effect on identity and history
    succession   which file continues the history of a file that leaves its name
    files        open files: reads and writes; `access` has the checks before them
    identity     which inode stands for an entry of the service
    sessions     write sessions, from the first write to the record in the journal
    folders      listings: one request for all waiting callers, fresh for `refresh` seconds
    walks        which listings to prefetch for programs that go from folder to folder
    siblings     prefetch of small files for programs that read one after the other
    callers      which program makes a request: programs of `guard` cause no download
    pins         entries that are kept on this machine; `keeping` fetches their content, and
                 `rounds` lists their folders
    delivery     the outbox's carrier: content by `uploads`, names by `placement`,
                 two versions of one file by `conflicts`, requests without an answer by
                 `resolution`, which uses `comparison` to compare bytes
    virtual      operations on virtual entries, which are not on the service; `nodes` defines
                 them and tells how to add a kind of them
    versions     the first kind: `.versions`, with the data of `history`
    wastebasket  the second kind: the trash folder of desktops; `trashing` deletes and restores
                 whole folders, `subtree` looks at the content of a folder at any depth
    unsent       local changes of an inode, for a listing's merge
    recovery     recovery of the state that a killed daemon left
    losses       recovery of data that a damaged database no longer refers to
    schema       the database of tree and outbox, and its upgrades
    upkeep       maintenance of the database
    report       the data for `status`, `sync` and `conflicts`
    status       the answer of `status`, with a daemon or without one
    state_reader the database, opened without changing anything

docs/SEMANTICS.md lists what each operation promises to programs.

The crash protocol.  A daemon may die between any two lines; `failpoint.Place` names every step and
what is durable at that point.  Three stores change: rows (tree, journal and pending requests, in
one SQLite file, so in one transaction), bytes (one spool file per generation), and the service.

1. Bytes are written before the row that refers to them, and deleted after the commit that
   removes the reference (`Database.after_commit`).  So a row never refers to missing bytes, and
   bytes without a row are not needed: never closed, or already replaced.
   The same transaction records the manifest of the bytes (`content.manifest`), which
   distinguishes them from former bytes.  Later writes are accepted by their nonces, so that the
   state after a kill never looks like an attack.
2. A closed generation never changes.  A new writer works on a copy.
3. Every local change is one transaction of tree and journal, so it has happened completely or
   not at all.  A new file has no row before its first close: until then the next start does not
   know it.
4. Before content, a new folder or a new name is sent, a pending request is recorded; the answer
   ends the pending request and the intent in one transaction.  A pending request that is left is
   resolved by looking at the service before the next request for the inode.  Deletions can be
   sent again.

| step                        | what reaches the kernel        | what reaches the disk for sure    |
|-----------------------------|--------------------------------|-----------------------------------|
| write                       | at the latest at close         | -                                 |
| close                       | bytes, then their record       | -                                 |
| fsync                       | the same                       | bytes, their name, the record     |
| create                      | at the latest at close         | -                                 |
| mkdir, unlink, rename, ...  | the record                     | -, or with fsync of the folder    |
| an answer of the service    | the record                     | -                                 |

Data that has reached the kernel survives the death of the process; data on the disk survives a
power cut.  After a power cut rows may be older but never damaged (write-ahead log), and bytes may
be damaged.  Therefore bytes from before the power cut are checked before they are sent, and damaged
bytes are never sent.  `recovery` lists what the next start does with each state, and `losses` does
so for lost rows.
"""
