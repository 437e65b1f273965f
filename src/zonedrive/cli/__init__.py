"""Command line interface, with one module for each group of commands, imported on first use.

Commands that concern a mount send requests to the mount's daemon over the control socket.
"""
