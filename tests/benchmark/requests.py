"""`python -m tests.benchmark.requests`: zonedrive's requests alone, without a mount or a cache.

Reads one job as JSON from the standard input, makes its requests through the client of the service
that a daemon uses, and prints seconds and CPU seconds as JSON.
"""

import json
import resource
import sys
import time
from collections.abc import AsyncGenerator

import httpx
import msgspec
import trio

from zonedrive.config import Settings
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


class Authorization(httpx.Auth):
    """The header that a bearer makes."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the header with the request."""
        request.headers["Authorization"] = self._value
        yield request


async def work(job: Job) -> dict[str, float]:
    """Make the requests, as many at once as a daemon would; return seconds and CPU seconds."""
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

    began, cpu_s = time.monotonic(), used_s()
    async with trio.open_nursery() as nursery:
        for folder in job.listings:
            nursery.start_soon(listing, folder)
        for file in job.contents:
            nursery.start_soon(content, file)
        for name in job.uploads:
            nursery.start_soon(upload, name)
    figures = {"s": time.monotonic() - began, "cpu_s": used_s() - cpu_s}
    await service.aclose()
    return figures


def used_s() -> float:
    """Return the CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print(json.dumps(trio.run(work, msgspec.json.decode(sys.stdin.buffer.read(), type=Job))))
