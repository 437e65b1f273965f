"""Local state: inodes, intents, pending requests, open files, and recovery.

Knows nothing about the network.  Nothing here is `async`.

The crash protocol.  A daemon may die between any two lines; `failpoint.Place` names every step and
states which data is durable there.  Three stores change: rows (inodes, intents and pending
requests, in one SQLite file, so one transaction), bytes (one spool file for each generation), and
the service.

1. Bytes are stored before the row that names them, and deleted after the commit that removes the
   name (`Database.after_commit`).  So a row never names missing bytes, and bytes that no row names
   are not needed: they were never closed, or are already replaced.
   The same transaction records the manifest of the bytes (`content.manifest`), which
   distinguishes them from former ones.  Later writes are accepted by their nonces, so that the
   state left by a killed process never looks like an attack.
2. A generation that was closed never changes.  The next writer works on a copy.
3. Every local change is one transaction of inodes and intents: it takes effect completely or not at
   all.
   A new file has no row before its first close: until then the next start does not find it.
4. Before content, a new folder or another name is sent, a pending request is recorded; when the
   answer arrives, request and intent are deleted in one transaction.  A remaining pending request
   is resolved by looking at the service before any other request for the inode.  Deletions are
   simply repeated.

| step                        | data in the kernel             | data on the disk for sure         |
|-----------------------------|--------------------------------|-----------------------------------|
| write                       | at the latest at close         | -                                 |
| close                       | bytes, then their record       | -                                 |
| fsync                       | the same                       | bytes, their name, the record     |
| create                      | at the latest at close         | -                                 |
| mkdir, unlink, rename, ...  | the record                     | -, or with fsync of the folder    |
| an answer of the service    | the record                     | -                                 |

Data in the kernel survives the death of the process; data on the disk also survives a power cut.
After a power cut, rows may be older but are never torn (write-ahead log), and bytes may be torn:
therefore bytes written before it are checked before they are sent, and damaged bytes are never
sent.  The actions of the next start for each state are in `recovery`.
"""
