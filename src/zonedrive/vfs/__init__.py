"""The POSIX verbs, without a kernel.

Brings tree, content and outbox together, which do not know each other:

    filesystem   the facade that `fuse` calls and `daemon` starts
    namespace    lookup, readdir, create, mkdir, unlink, rmdir
    renaming     rename, and what it means for identity and history
    files        open files: reading, and writing into
    sessions     what is being written, from the first write to the record of it
    folders      listings: fetched once for everybody who waits, fresh for `refresh` seconds
    delivery     the outbox's carrier: content by `uploads`, names by `placement`,
                 two versions of one file by `conflicts`, requests without an answer by
                 `resolution`
    recovery     what a daemon that was killed left behind
    schema       the database of tree and outbox, and its upgrades
    report       what `status`, `sync` and `conflicts` tell

What each verb promises a program stands in SEMANTICS.md beside this file.
"""
