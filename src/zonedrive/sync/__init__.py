"""Synchronization of the local state with the service: merges listings, and sends changes.

The only package that knows both.  A change passes through these modules:

    intents           an intent for each inode with something to send (in `state/`)
    coalesce          a pure function: all intents -> the steps to perform on the service
    planner           selects the steps that may start now
    dispatcher        runs the steps: concurrently, in order where needed, with retries
    executor          performs a step: content by `upload`, names by `remote_namespace`
    conflict_check    a pure function: base, service's version -> send, already done, or conflict
    conflict_copy     keeps both versions of a file after a conflict
    reconcile         resolves unanswered requests by looking at the service; `compare` checks the
                      bytes, `misplaced_versions` other files
    rollback          undoes a rejected removal or rename

A listing passes through these modules: `directory_cache` fetches it once for all waiting callers,
`listing_batches` merges it into the inodes (`state/merge`), `directory_walks` predicts the listings
that programs will need next, `state/remote_binding` decides which inode represents an entry, and
`moved_files` follows a file that a coworker moved.
"""
