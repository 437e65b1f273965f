"""Model of a file system as a dict, with which each mount is compared."""

import errno
from itertools import accumulate


class Model:
    """File system as a dict: folders are None, files are bytes, by path; raises the same errors."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes | None] = {}

    def parent(self, path: str) -> None:
        """Check that the folder of `path` is a folder."""
        parts = path.split("/")[:-1]
        for above in accumulate(parts, "{}/{}".format):
            if above not in self.entries:
                raise FileNotFoundError(errno.ENOENT, path)
            if self.entries[above] is not None:
                raise NotADirectoryError(errno.ENOTDIR, path)

    def file(self, path: str) -> bytes:
        """Return the content of a file."""
        self.parent(path)
        if path not in self.entries:
            raise FileNotFoundError(errno.ENOENT, path)
        content = self.entries[path]
        if content is None:
            raise IsADirectoryError(errno.EISDIR, path)
        return content

    def put(self, path: str, content: bytes) -> None:
        """Write a whole file."""
        self.parent(path)
        if self.entries.get(path, b"") is None:
            raise IsADirectoryError(errno.EISDIR, path)
        self.entries[path] = content

    def below(self, path: str) -> list[str]:
        """Return everything in a folder, at any depth."""
        return [each for each in self.entries if each.startswith(path + "/")]

    def mkdir(self, path: str) -> None:
        self.parent(path)
        if path in self.entries:
            raise FileExistsError(errno.EEXIST, path)
        self.entries[path] = None

    def rmdir(self, path: str) -> None:
        self.parent(path)
        if path not in self.entries:
            raise FileNotFoundError(errno.ENOENT, path)
        if self.entries[path] is not None:
            raise NotADirectoryError(errno.ENOTDIR, path)
        if self.below(path):
            raise OSError(errno.ENOTEMPTY, path)
        del self.entries[path]

    def unlink(self, path: str) -> None:
        self.file(path)
        del self.entries[path]

    def rename(self, old: str, new: str) -> None:
        self.parent(old)
        self.parent(new)
        if old not in self.entries:
            raise FileNotFoundError(errno.ENOENT, old)
        if old == new:
            return
        if new.startswith(old + "/"):
            raise OSError(errno.EINVAL, new)
        if old.startswith(new + "/"):
            raise OSError(errno.ENOTEMPTY, new)
        if new in self.entries:
            if self.entries[old] is None:
                if self.entries[new] is not None:
                    raise NotADirectoryError(errno.ENOTDIR, new)
                if self.below(new):
                    raise OSError(errno.ENOTEMPTY, new)
            elif self.entries[new] is None:
                raise IsADirectoryError(errno.EISDIR, new)
        for path in [old, *self.below(old)]:
            self.entries[new + path[len(old) :]] = self.entries.pop(path)
