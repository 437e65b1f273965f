"""Synchronization of the local state with the service: merges listings, and sends changes.

The only package that knows both.  A change passes through these modules:

    dispatcher        runs steps: concurrently, in order where needed, with retries
    planner           computes the steps from the intents, and selects those that may start now
    executor          performs a step: content by `upload`, names by `remote_namespace`
    reconcile         records requests and their answers, and resolves unanswered requests by
                      looking at the service
    rollback          undoes a rejected removal or rename

What an answer means for the local state is in `state/remote_operations`, `state/remote_binding` and
`state/conflicts`; the states of a change are in `state/outbox_states`.

A listing passes through these modules: `directory_cache` fetches it once for all waiting callers,
`listing_batches` merges it into the inodes (`state/merge`), `directory_walks` predicts the listings
that programs will need next, and `moved_files` follows a file that a coworker moved.
"""
