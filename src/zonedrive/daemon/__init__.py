"""Daemon that builds, runs and stops the components of one account's mount.

Only this package combines all components, so no lower package imports it. The command line talks to
the daemon over the control socket, and imports only modules that load fast, such as `protocol` and
`lock`.
"""
