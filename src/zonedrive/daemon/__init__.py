"""Process that serves one account's mount: it builds, starts, controls and stops the components.

The only composition root; no lower package imports it. The command line uses the control socket and
imports only the light modules (`protocol`, `lock`, `daemonize`, `last_run`).
"""
