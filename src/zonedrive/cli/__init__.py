"""Command line interface. Each group of commands has a module, which is imported on first use.

Commands that concern a mount send requests to the mount's daemon over the control socket.
"""
