"""POSIX operations, without the kernel interface. SEMANTICS.md describes their guarantees.

namespace         lookup, readdir, create, mkdir, unlink, rmdir, rename
files             open files: reading and writing; `open_checks` rejects forbidden operations
write_sessions    bytes that are being written, from the first write until they are recorded
caller_policy     detection of calling programs that must not cause downloads (setting `guard`)
fetch_failures    recently failed downloads, for the log and the status
xattrs            the extended attributes
maintenance       background maintenance of the cache and the database
"""
