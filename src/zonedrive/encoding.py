"""UTF-8 for names on the disk, at the service and in zonedrive's files, in every locale.

Knows nothing about the running program.  In a locale with another encoding Python would use that
encoding for paths and text files.  A command and a daemon in different locales would then mean
different files by the same name.

INVARIANT: after `ensure`, the text of a path is its bytes in UTF-8; invalid bytes are lone
surrogates.
"""

import codecs
import contextlib
import io
import locale
import os
import sys


def ensure() -> None:
    """Restart this process in Python's UTF-8 mode if the file system encoding is not UTF-8.

    Must be called before all other code, and only by the main program.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "utf-8" or sys.flags.utf8_mode:
        return
    with contextlib.suppress(OSError):  # without it, names that are not ASCII may not be found
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def typed(word: str) -> str:
    """Return a command line word, decoded from the locale's encoding.

    A word in UTF-8, or the name of an existing file with exactly these bytes, is unchanged.
    """
    if word.isprintable() or "utf8" not in sys._xoptions or os.path.lexists(word):
        return word
    return os.fsencode(word).decode(locale.getencoding(), "surrogateescape")


def adapt_output() -> None:
    """Write output in the locale's encoding, with `?` or ASCII escapes for missing characters.

    If Python itself chose UTF-8, as it does in most C locales, that choice is kept.
    """
    known = codecs.lookup(locale.getencoding()).name
    if "utf8" not in sys._xoptions or known == "utf-8" or "PYTHONIOENCODING" in os.environ:
        return
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=known, errors=errors)
