"""How local state and the service meet: listings in, changes out.

The only package that knows both.  The way of a change:

    intents           an intent for each inode with something to send (in `state/`)
    coalesce          a pure function: all intents -> the steps the service must see
    planner           which of them may start now
    dispatcher        runs the steps: several at once, in order where it matters, again on failure
    executor          has a step carried out: content by `upload`, names by `remote_namespace`
    conflict_check    a pure function: base, what the service has -> send, done already, or conflict
    conflict_copy     two versions of one file: both are kept
    reconcile         requests without an answer, resolved by looking at the service; `compare`
                      looks at the bytes, `misplaced_versions` at other files
    rollback          takes a rejected removal or name back

The way of a listing: `directory_cache` fetches it once for everybody who waits, `listing_batches`
merges it into the inodes (`state/merge`), `directory_walks` says which listings programs will want
next, `remote_binding` decides which inode stands for an entry, `moved_files` follows a file that a
coworker moved.
"""
