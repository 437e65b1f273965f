"""Speed and cost of zonedrive beside what one would use instead, measured in one run.

    python -m tests.benchmark

The modules, each knowing only those above it:

    dataset       the files that are read, and those that are copied in
    delay         a proxy that adds a round trip time
    usage         CPU time and memory of process trees
    work          what is timed, one function each, run in a process of its own with a deadline
    servers       the sandbox with the data set, and the peers' servers over the same files
    mounts        zonedrive and its peers, mounted
    measurements  how each work is measured on one mount
    limits        how some are measured by curl alone, and by FUSE alone
    spread        medians
    rows          the figures of the table and their goals
    table         the figures as people read them, and as JSON
    surroundings  machine, versions and commit of a run
    compare       two reports beside each other

`scale` is a program of its own: one daemon and very many entries.
"""
