"""Manual pages and shell completions, generated from the definitions of commands and settings.

Knows nothing about the commands beyond their definitions.
"""
