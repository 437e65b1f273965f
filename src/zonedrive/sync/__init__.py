"""Synchronization of the local state with the service: merging listings, and sending changes.

A local change passes through these modules:

    dispatcher        runs steps: concurrently, in order where needed, with retries
    planner           computes the steps from the intents (the unsent local changes), and selects
                      those that may start now
    executor          performs a step: content by `upload`, names by `remote_namespace`
    reconcile         records requests and their responses, and determines whether an unanswered
                      request had an effect
    compare           compares local bytes with versions on the service
    rollback          undoes a rejected removal or rename

The functions that apply a response to the local state are in `state/remote_operations`,
`state/remote_binding` and `state/conflicts`. The states of a change are in `state/outbox_states`.

A listing passes through these modules:

    directory_cache   fetches the listing, once for all waiting callers
    listing_batches   merges the listing into the inodes (`state/merge`)
    directory_walks   predicts the listings that programs will need next
    moved_entries     applies a coworker's moves of folders and edited files locally
"""
