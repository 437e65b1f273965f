"""Outbox: the journal of changes that the service does not have yet, and their upload.

Knows nothing of the tree, the bytes and the service: a `Carrier` describes the inodes and executes
the steps.

The way of a change:

    journal    an intent for each inode with something to send: one row, written in the
               transaction of the tree's change
    fold       a pure function: all intents -> steps for the service
    dispatch   runs the steps: several at once, in order where necessary, with retries
    doubts     requests with an unknown outcome: recorded before they are sent
    verdict    a pure function: base, the service's version -> send, already done, or conflict
"""
