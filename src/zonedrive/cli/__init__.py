"""The command line: one module for each group of commands, imported on first use.

Commands about a mount talk to its daemon over the control socket.
"""
