"""Manual pages and shell completions, generated from the definitions of commands and settings.

Knows nothing of the commands beyond their definitions.
"""
