"""The POSIX verbs, without a kernel: what each one promises a program is in SEMANTICS.md.

namespace         lookup, readdir, create, mkdir, unlink, rmdir
rename            rename, and what it means for identity and history
files             open files: reading and writing; `open_checks` refuses what is not allowed
write_sessions    what is being written, from the first write to the record of it
caller_policy     which program asks: those of `guard` cause no download
xattrs            the extended attributes
maintenance       what the database needs beside the work
"""
