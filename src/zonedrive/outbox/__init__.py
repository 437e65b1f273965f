"""What the service does not have yet: the journal of intents, and their way out.

Knows neither the tree nor the bytes nor the service: a `Carrier` describes the inodes and
carries the steps out.

The way of a change:

    journal    an intent for each inode with something to send; one row, made in the transaction
               of the tree's own change
    fold       a pure function: all intents -> the steps the service must see
    dispatch   runs the steps: several at once, in order where it matters, again after a failure
    doubts     requests whose outcome is not known: noted before they are sent
    verdict    a pure function: base, what the service has now -> send, done already, or conflict
"""
