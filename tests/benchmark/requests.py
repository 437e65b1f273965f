"""`python -m tests.benchmark.requests`: zonedrive's requests alone, without a mount or a cache.

Reads one job as JSON from the standard input, makes its requests through the client of the service
that a daemon uses, and prints seconds and CPU seconds as JSON.  Large files come from and go to
encrypted files like those of a daemon.
"""

import json
import resource
import sys
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import msgspec
import trio

from tests.benchmark.dataset import MIB
from zonedrive.cipher import new_key
from zonedrive.config import Settings
from zonedrive.content.encrypted_file import EncryptedFile
from zonedrive.remote.http_service import open_service
from zonedrive.remote.profiles.load import load_profile


class Job(msgspec.Struct, frozen=True):
    """Requests to make: listings of folders, contents of files, or new files in a folder."""

    base_url: str
    ca_file: str
    authorization: str
    zone: str
    root: str  # id of the zone's top folder
    listings: list[str] = []  # ids of folders
    contents: list[str] = []  # ids of files
    uploads: list[str] = []  # names
    folder: str = ""  # id of the folder that the uploads go to
    size: int = 0  # bytes of each content
    large: list[str] = []  # ids of large files, downloaded at the same time
    source: str = ""  # file that is stored and uploaded as often, at the same time as the downloads
    scratch: str = ""  # folder for encrypted files


class Authorization(httpx.Auth):
    """Header with a bearer."""

    def __init__(self, value: str) -> None:
        self._value = value

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Send the header with the request."""
        request.headers["Authorization"] = self._value
        yield request


async def work(job: Job) -> dict[str, float]:
    """Make the requests, with the concurrency of a daemon; return seconds and CPU seconds."""
    settings = Settings()
    service = open_service(job, Authorization(job.authorization), load_profile("sandbox"), settings)
    await service.listing(job.zone, job.root)  # connected, as a mount is after its first listing
    turns = trio.CapacityLimiter(settings.connections)

    async def listing(folder: str) -> None:
        async with turns:
            await service.listing(job.zone, folder)

    async def content(file: str) -> None:
        async with turns:
            await service.content(job.zone, file, job.size)

    async def upload(name: str) -> None:
        async with turns:
            await service.upload(job.zone, job.folder, name, bytes(job.size))

    def download(file: str) -> None:
        kept = EncryptedFile.create(Path(job.scratch, f"{file}-down"), key)
        kept.disable_redo_log()
        offset = 0
        with service.transfer.download(job.zone, file) as stream:
            for chunk in stream:
                offset += kept.pwrite(offset, chunk)
        kept.close()
        assert offset == job.size, (offset, job.size)

    def store_and_upload(name: str) -> None:
        kept = EncryptedFile.create(Path(job.scratch, f"{name}-up"), key)
        with Path(job.source).open("rb", buffering=0) as file:
            while data := file.read(MIB):
                kept.pwrite(kept.size, data)
        kept.flush()
        service.transfer.upload(job.zone, job.folder, name, kept.blocks(), kept.size)
        kept.close()

    key = new_key()
    began, cpu_s = time.monotonic(), used_s()
    async with trio.open_nursery() as nursery:
        for folder in job.listings:
            nursery.start_soon(listing, folder)
        for file in job.contents:
            nursery.start_soon(content, file)
        for name in job.uploads:
            nursery.start_soon(upload, name)
        for file in job.large:
            nursery.start_soon(trio.to_thread.run_sync, download, file)
            nursery.start_soon(trio.to_thread.run_sync, store_and_upload, f"of-{file}")
    figures = {"s": time.monotonic() - began, "cpu_s": used_s() - cpu_s}
    await service.aclose()
    return figures


def used_s() -> float:
    """Return the CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print(json.dumps(trio.run(work, msgspec.json.decode(sys.stdin.buffer.read(), type=Job))))
