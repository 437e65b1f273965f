"""Sanitizing of foreign text to one line without control characters.

Such a line cannot control a terminal, a log, a bus or a service manager.  Knows nothing about the
origin or the use of a text.  File names are not changed here; `state.names` defines their display.
"""

_BREAKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_PLAIN = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), _REPLACED)
_PLAIN |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _REPLACED)
_PLAIN |= dict.fromkeys(range(0xD800, 0xE000), _REPLACED)  # halves of characters: no valid UTF-8
_PLAIN |= {ord(char): " " for char in _BREAKS}


def plain(text: str) -> str:
    """Return `text` on one line, without control characters and text direction overrides."""
    return text if text.isprintable() else text.translate(_PLAIN)
