"""Speed and cost of zonedrive and its alternatives, measured in one run.

    python -m tests.benchmark

The modules; each imports only those above it:

    dataset       files to read, and files to copy
    delay         proxy that adds a round trip time
    usage         CPU time and memory of process trees
    work          timed works, one function each, in separate processes with a deadline
    servers       the sandbox with the data set, and the alternatives' servers for the same files
    mounts        mounts of zonedrive and its alternatives
    measurements  measurement of each work on one mount
    limits        limits of some works: by curl alone, and by FUSE alone
    spread        medians
    rows          figures of the table, and their goals
    table         output of the figures, for people and as JSON
    surroundings  machine, versions and commit of a run
    compare       comparison of two reports

`scale` is a separate program: one daemon with very many entries.
"""
