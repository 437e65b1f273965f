"""Local state: inodes, intents, pending requests, open files, and recovery.

An intent is a local change that the service does not have yet. A pending request is a request with
an unknown outcome.

This package does not use the network, and none of its functions is `async`.

Crash protocol: a daemon may be killed between any two statements. `failpoint.Place` lists every
step and states which data is durable at that step. A change affects up to three stores. The first
holds the rows: inodes, intents and pending requests are in one SQLite file, so that one transaction
covers all of them. The second is the spool, with one file for each generation (saved state) of
a file's bytes. The third is the service.

1. Bytes are stored before the row that refers to them, and deleted after the commit that removes
   the reference (`Database.after_commit`). So a row never refers to missing bytes. Bytes without a
   row are not needed, because the file was never closed, or because newer bytes have replaced them.
   The transaction that records the bytes also records their manifest (`content.manifest`), which
   distinguishes these bytes from older ones. Bytes that a killed process wrote after this record
   are recognised by their nonces, so that they are not mistaken for tampering.
2. The bytes of a closed generation never change. The next writer works on a copy.
3. Every local change is one transaction of inodes and intents: it takes effect completely or not at
   all.
   A new file has no row before its first close or fsync, so a file that was neither closed nor
   synced is lost when the daemon ends.
4. Before the daemon sends content, a new folder or a new name, it records a pending request. When
   the service answers, the request and the intent are deleted in one transaction. If a pending
   request remains, the daemon queries the service for the outcome of this request before it sends
   any other request for the inode. Deletions have no pending request, because they can be repeated
   safely.

| step                        | stored in the kernel           | durable after the step            |
|-----------------------------|--------------------------------|-----------------------------------|
| write                       | nothing before fsync or close  | nothing                           |
| close                       | bytes, then their record       | nothing                           |
| fsync                       | bytes, then their record       | bytes, their name, the record     |
| create                      | nothing before fsync or close  | nothing                           |
| mkdir, unlink, rename, ...  | the record                     | nothing before a folder fsync     |
| a response of the service   | the record                     | nothing                           |

Data in the kernel survives the death of the process; durable data also survives a power cut.
After a power cut, rows may be older but are never torn (write-ahead log). Bytes may be torn, so
bytes that were written before the power cut are checked before they are sent, and damaged bytes are
never sent. The table in `recovery` lists the action of the next start for each state.
"""
