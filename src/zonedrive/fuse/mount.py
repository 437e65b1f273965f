"""Life cycle of one mount: the FUSE session with the kernel.

This module does not use accounts, the service or the control socket. `mountpoint` checks
where a mount may be made, and `operations` answers the kernel's requests.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyfuse3
import trio

from zonedrive.errors import MountError
from zonedrive.fuse import invalidate, mountpoint, tuning
from zonedrive.fuse.eintr_timer import EintrTimer
from zonedrive.fuse.mountpoint import Mount
from zonedrive.fuse.operations import Operations
from zonedrive.fuse.options import Options, for_session
from zonedrive.paths import quoted
from zonedrive.supervisor import Supervisor, Task
from zonedrive.translation import marked
from zonedrive.views.stack import FileSystem

MAX_TASKS = 1000
"""Maximum number of requests that are handled at the same time.

With pyfuse3's default of 99, 99 readers that wait for the network would block all other requests.
"""

ANSWER_SECONDS = 30.0
"""Seconds that a new mount may take to answer its first stat."""


class Session:
    """FUSE session with the kernel.

    A process can have only one session at a time, because pyfuse3 stores its session in a global
    variable.
    """

    def __init__(
        self,
        files: FileSystem,
        folder: Path,
        source: str,
        supervisor: Supervisor,
    ) -> None:
        """Create a session for a mount on `folder`, as returned by `mountpoint.check`.

        mount(8) shows `source` as the mounted device.
        """
        self._folder = folder
        self.identity = ""  # of the mount, see `Mount.identity`; "": no mount
        self._is_aborted = False  # True if the connection was aborted, but the mount exists
        self._operations = Operations(files)
        self._invalidations = files.invalidations
        self._source = source
        self._supervisor = supervisor
        self._invalidating = trio.CancelScope()
        self._trying = trio.CancelScope()
        self.ended = trio.Event()

    @property
    def folder(self) -> Path:
        """Current path of the mount point; if nothing is mounted, the path given at creation."""
        mount = self._mount()
        return self._folder if mount is None else mount.path

    def attach(self, options: Options) -> None:
        """Mount the file system; the caller must call `close` later.

        The kernel's requests are not answered until `run` is called. Raises MountError with the
        reason from libfuse or fusermount3, or if `mountpoint.check_sharing` or
        `mountpoint.reserved` refuses the mount.
        """
        mountpoint.check_sharing(self.folder, options.kernel)
        said: list[str] = []
        try:
            with mountpoint.reserved(self.folder):
                with _captured_stderr(said):
                    pyfuse3.init(
                        self._operations, os.fspath(self.folder), for_session(options, self._source)
                    )
                mount = mountpoint.at(self.folder)
        except RuntimeError as wrong:
            raise MountError(
                _reason(said, str(wrong), self.folder),
                remedy=f"run 'zonedrive doctor {quoted(self.folder)}'",
            ) from wrong
        self.identity = mount.identity if mount else ""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Answer the kernel's requests until `stop`, cancellation, or an external unmount.

        The task reports as started after the mount has answered a stat, or after `stop`. Raises
        MountError if the mount does not answer. The event `ended` is set at the end, also after an
        error.
        """
        try:
            async with trio.open_nursery() as watching:
                watching.start_soon(self._stop_when_cancelled)
                # A cancelled session also ends in order, see `_invalidate_until_stopped`.
                with trio.CancelScope(shield=True), EintrTimer():
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._answer)
                        nursery.start_soon(self._invalidate_until_stopped)
                        await self._try()
                        task_status.started()
                watching.cancel_scope.cancel()
        finally:
            self.ended.set()

    @property
    def is_stopped(self) -> bool:
        """True if `stop` was called."""
        return self._operations.gate.is_shut

    def stop(self) -> None:
        """End `run`, even before it begins; unanswered requests get ENOTCONN."""
        self._operations.gate.shut()
        self._trying.cancel()
        self._invalidating.cancel()

    def detach(self) -> bool:
        """Detach the mount, unless a program uses it; return True if the mount is detached."""
        mount = self._mount()
        if mount is not None and not mountpoint.detach(mount.path, lazy=False):
            return False
        self.identity = ""
        return True

    def close(self, *, unmount: bool = True) -> None:
        """Unmount lazily, which also works for a mount in use, and free the session's resources.

        If `unmount` is false, the mount stays, and every access to the mount fails with ENOTCONN.
        If the mount does not exist any more, nothing is unmounted, because libfuse would report an
        error or unmount a later mount on the same folder.
        """
        mount = self._mount() if unmount else None
        if self._is_aborted and not self._is_dead():
            mount = None  # the mount was detached meanwhile; another mount may have its number
        # libfuse knows only the first path, and leaves a mount whose connection was aborted.
        by_libfuse = mount is not None and mount.path == self._folder and not self._is_aborted
        try:
            if mount is not None and not by_libfuse:
                mountpoint.detach(mount.path, lazy=True)
        finally:
            pyfuse3.close(unmount=by_libfuse)
        if unmount:
            self.identity = ""

    def _mount(self) -> Mount | None:
        return mountpoint.find(self.identity, self._folder)

    async def _answer(self) -> None:
        try:
            try:
                await pyfuse3.main(max_tasks=MAX_TASKS)
            except OSError as wrong:
                if wrong.errno not in (errno.ENODEV, errno.ECONNABORTED):  # unmounted or aborted
                    raise
            if not self._invalidating.cancel_called:
                self._is_aborted = await trio.to_thread.run_sync(self._is_dead)
                if not self._is_aborted:  # the kernel may use the number again
                    self.identity = ""
        finally:
            self._invalidating.cancel()

    def _is_dead(self) -> bool:
        """Return True if the mount exists without a connection.

        For example, `umount -f` aborts the connection of a mount in use, and does not unmount it.
        """
        mount = self._mount()
        try:
            return mount is not None and mountpoint.dead(mount.path)
        except MountError:  # another mount, which has the number now
            return False

    async def _invalidate_until_stopped(self) -> None:
        with self._invalidating:
            supervisor = self._supervisor
            invalidate_caches = partial(invalidate.run, self._invalidations, supervisor)
            await supervisor.keep(Task.KERNEL_CACHE, invalidate_caches)
            await trio.sleep_forever()
        # pyfuse3's loop may end only now: the threads that invalidate caches wait for requests,
        # which the loop must answer.
        pyfuse3.terminate()

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.stop()

    async def _try(self) -> None:
        """Wait until the mount answers a stat, then apply the settings of `tuning`.

        If the mount fails or does not answer within ANSWER_SECONDS, stop the session and raise
        MountError. Return early after `stop`. The calls to the mount run in threads, because this
        event loop answers them.
        """
        in_thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
        try:
            with self._trying, trio.fail_after(ANSWER_SECONDS):
                above = await in_thread(os.stat, self.folder.parent)
                await in_thread(os.statvfs, self.folder)
                here = await in_thread(os.stat, self.folder)
                if here.st_dev == above.st_dev:
                    raise MountError(f"the mount at {self.folder} disappeared at once")
                tuning.tune(here.st_dev)
        except trio.TooSlowError as slow:
            self.stop()
            raise MountError(
                f"{self.folder} did not answer within {ANSWER_SECONDS:.0f} s"
            ) from slow
        except OSError as wrong:
            self.stop()
            raise MountError(f"the mount at {self.folder} fails ({wrong.strerror})") from wrong
        except MountError:
            self.stop()
            raise


@contextmanager
def _captured_stderr(lines: list[str]) -> Iterator[None]:
    """Capture output to file descriptor 2 while the `with` block runs, and append it to `lines`.

    The output of C code and of child processes is included.
    """
    # A file in memory, because the temporary folder may be full or read-only.
    with os.fdopen(os.memfd_create("stderr"), "w+b") as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def _reason(said: list[str], fallback: str, folder: Path) -> str:
    """Return the error message for a failed mount on `folder`.

    The message ends with the last nonempty line of `said`, or else with `fallback`.
    """
    for line in reversed(said):
        text = re.sub(r"^(fuse|fusermount3|mount)( error)?:\s*", "", line.strip())
        if text:
            return marked(f"{folder} cannot be mounted: {text}")
    return marked(f"{folder} cannot be mounted ({fallback})")
