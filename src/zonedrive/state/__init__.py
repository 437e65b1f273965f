"""Everything that this machine knows: inodes, intents, requests in flight, open files, recovery.

Knows no network.  Nothing here is `async`.

The crash protocol.  A daemon may die between any two lines; `failpoint.Place` names every step
with what is durable there.  Three stores change: rows (inodes, intents and pending requests, in one
SQLite file, so one transaction), bytes (one spool file for each generation), and the service.

1. Bytes come before the row that names them, and go after the commit that names them no more
   (`Database.after_commit`).  So a row never names missing bytes, and bytes that no row names
   are of no use: never closed, or already replaced.
   The same transaction records the manifest of the bytes (`content.manifest`), which tells them
   from former ones.  Writes that come after it are accepted by their nonces, so that a killed
   process never leaves what looks like an attack.
2. A generation that was closed never changes.  Who writes again works on a copy.
3. Every local change is one transaction of inodes and intents: it has happened in full or not.
   A new file has no row before its first close: until then the next start knows nothing of it.
4. Before content, a new folder or another name is sent, a pending request is noted; the answer ends
   request and intent in one transaction.  A pending request that is left is resolved by looking at
   the service before anything else is told of the inode.  Deletions may simply be told again.

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
start does with each state it finds is in `recovery`, and in `lost_found` for lost rows.
"""
