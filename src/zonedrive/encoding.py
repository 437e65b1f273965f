"""Names are UTF-8 on the disk, at the service and in our files, whatever the locale is.

Must not know who runs.  In a locale of another encoding Python would read the bytes of a path in
that one, and write texts of ours in it: a command and a daemon of different locales would mean
different files by the same words.

INVARIANT: after `ensure`, a path's text is its bytes in UTF-8, odd bytes as lone surrogates.
"""

import codecs
import contextlib
import io
import locale
import os
import sys


def ensure() -> None:
    """Begin this process again in Python's UTF-8 mode, where that is another one.

    To be called before anything else, and only by the main program.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "utf-8" or sys.flags.utf8_mode:
        return
    with contextlib.suppress(OSError):  # then a name with an umlaut is not found, at worst
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def typed(word: str) -> str:
    """A word of the command line, where it was typed in the encoding of the locale.

    What is UTF-8, or a file that is there under just these bytes, stays as it is.
    """
    if word.isprintable() or "utf8" not in sys._xoptions or os.path.lexists(word):
        return word
    return os.fsencode(word).decode(locale.getencoding(), "surrogateescape")


def adapt_output() -> None:
    """Show texts in the encoding of the locale, what it lacks as `?` or in ASCII.

    Where Python itself took to UTF-8, as it does for most C locales, its choice stays.
    """
    known = codecs.lookup(locale.getencoding()).name
    if "utf8" not in sys._xoptions or known == "utf-8" or "PYTHONIOENCODING" in os.environ:
        return
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=known, errors=errors)
