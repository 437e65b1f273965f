"""How fast zonedrive is beside what one would use instead, measured in one run.

    python -m tests.benchmark

The rooms, each knowing only those above it:

    dataset   the files that are read, and those that are copied in
    delay     a proxy that makes the other side as far away as one likes
    work      what is timed, one function each, run in a process of its own with a deadline
    servers   the sandbox with the data set, and the peers' servers over the same files
    mounts    zonedrive and its peers, mounted
    rows      which work is done by whom and what is aimed at
    table     the figures as people read them

`scale` is a program of its own: one daemon and very many entries.
"""
