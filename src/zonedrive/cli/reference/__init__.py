"""The manual pages and the shells' completions, made from the definitions of commands and settings.

Must not know what a command does: what is written is what its definition says.
"""
