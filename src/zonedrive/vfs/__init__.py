"""The POSIX verbs, without a kernel.

Brings tree, content and outbox together, which do not know each other:

    filesystem   the facade that `fuse` calls and `daemon` starts
    namespace    lookup, readdir, create, mkdir, unlink, rmdir
    renaming     rename, and what it means for identity and history
    succession   who takes over the history of a file that leaves its name
    files        open files: reading, and writing into; `access` has what is refused before
    identity     which inode stands for an entry of the service
    sessions     what is being written, from the first write to the record of it
    folders      listings: fetched once for everybody who waits, fresh for `refresh` seconds
    walks        which listings are wanted ahead of programs that go from folder to folder
    siblings     small files ahead of programs that read one after the other
    callers      which program asks: those of `guard` cause no download
    pins         what is kept on this machine, with all that appears in it; `keeping` fetches
                 that, `rounds` lists the folders that nobody else does
    delivery     the outbox's carrier: content by `uploads`, names by `placement`,
                 two versions of one file by `conflicts`, requests without an answer by
                 `resolution`, which lets `comparison` look at the bytes
    virtual      the verbs on virtual entries, which stand beside those of the service; `nodes` says
                 what they are, and how to add a kind of them
    versions     the first kind: `.versions`, from what `history` was told
    wastebasket  the second: the trash folder of desktops; `trashing` deletes and brings back as a
                 whole, `subtree` looks at what is in a folder at any depth
    unsent       what of an inode the service does not know yet, for a listing's merge
    recovery     what a daemon that was killed left behind
    losses       what a damaged database no longer names
    schema       the database of tree and outbox, and its upgrades
    upkeep       what the database needs beside the work
    report       what `status`, `sync` and `conflicts` tell
    status       the answer of `status`, with a daemon or without one
    state_reader the database, opened without changing anything

What each verb promises a program stands in docs/SEMANTICS.md.

The crash protocol.  A daemon may die between any two lines; `failpoint.Place` names every step
with what is durable there.  Three stores change: rows (tree, journal and doubts, in one SQLite
file, so one transaction), bytes (one spool file for each generation), and the service.

1. Bytes come before the row that names them, and go after the commit that names them no more
   (`Database.after_commit`).  So a row never names missing bytes, and bytes that no row names
   are of no use: never closed, or already replaced.
   The same transaction records the manifest of the bytes (`content.manifest`), which tells them
   from former ones.  Writes that come after it are accepted by their nonces, so that a killed
   process never leaves what looks like an attack.
2. A generation that was closed never changes.  Who writes again works on a copy.
3. Every local change is one transaction of tree and journal: it has happened in full or not.
   A new file has no row before its first close: until then the next start knows nothing of it.
4. Before content, a new folder or another name is sent, a doubt is noted; the answer ends doubt
   and intent in one transaction.  A doubt that is left is resolved by looking at the service
   before anything else is told of the inode.  Deletions may simply be told again.

| step                        | what reaches the kernel        | what reaches the disk for sure    |
|-----------------------------|--------------------------------|-----------------------------------|
| write                       | at the latest at close         | -                                 |
| close                       | bytes, then their record       | -                                 |
| fsync                       | the same                       | bytes, their name, the record     |
| create                      | at the latest at close         | -                                 |
| mkdir, unlink, rename, ...  | the record                     | -, or with fsync of the folder    |
| an answer of the service    | the record                     | -                                 |

What has reached the kernel survives the death of the process; what is on the disk, a power cut.
After a power cut rows may be older, never torn (write-ahead log), and bytes may be torn: so
those from before it are checked before they are sent, and damaged ones never are.  What the next
start does with each state it finds stands in `recovery`, and in `losses` for lost rows.
"""
