"""The command line: one module for each group of commands, imported when it is asked for.

Commands about a mount talk to its daemon over the control socket.
"""
