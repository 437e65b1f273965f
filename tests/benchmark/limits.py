"""Limits for the mounts: the same requests by curl or by zonedrive's client alone, and git status
through FUSE alone.

Knows nothing about the goals. A program that uses these components one after the other cannot be
faster than each of them alone. The service and the delay proxy run on the same cores in all
measurements.

INVARIANT: a measurement in which one request fails gives no figures.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark import dataset, usage
from tests.benchmark.measurements import (
    WORK_SECONDS,
    Bench,
    Failed,
    Figures,
    do,
    do_on,
    per_file,
    per_gib,
    prefixed,
    written_below,
)
from tests.benchmark.mounts import Contestant
from tests.benchmark.servers import Zone
from tests.benchmark.work import Job
from tests.harness.deployment import Person, RemoteZone
from zonedrive.config import Settings

PARALLEL = Settings().connections
"""Number of simultaneous requests of curl, the maximum of zonedrive with default settings."""


@dataclass(frozen=True)
class Request:
    """GET of a path of the service, or POST with the fields of its form as curl takes them."""

    path: str
    form: tuple[str, ...] = ()


def download(bench: Bench, who: Contestant) -> Figures:
    """Download the big file by curl, to /dev/null and into a file."""
    kept = bench.servers.folder / "downloaded"
    zone = alice(bench).zone("Data")
    path = content(zone, zone.entry_id("big/big.bin"))
    try:
        into_nothing = single(bench, path, "-o", "/dev/null")
        into_file = single(bench, path, "-o", kept)
    finally:
        kept.unlink(missing_ok=True)
    size = bench.big_mib * dataset.MIB
    return {
        "mb_per_s": size / into_nothing["s"] / 1e6,
        "file_mb_per_s": size / into_file["s"] / 1e6,
        "cpu_s_per_gib": per_gib(bench, into_file["cpu_s"]),
    }


def upload(bench: Bench, who: Contestant) -> Figures:
    """Upload a new file of the given size by curl, as a mount does."""
    zone = alice(bench).zone("Out")
    name = bench.fresh_name()
    source = bench.servers.dataset / "Data" / "big" / "big.bin"
    try:
        figures = single(
            bench, f"/api/zones/{zone.id}/files/{zone.root_id}", "-o", "/dev/null",
            "-F", f"fileName={name}", "-F", f"file=@{source}",
        )  # fmt: skip
        return prefixed("landed", figures)
    finally:
        Zone(bench.servers.service, "Out").remove(name)


def listings(bench: Bench, who: Contestant) -> Figures:
    """Request by curl the listings that a find needs; all folders are known beforehand."""
    zone = alice(bench).zone("Data")
    return parallel(bench, [Request(listing(zone, folder)) for folder in walked(bench, zone)])


def listings_alone(bench: Bench, who: Contestant) -> Figures:
    """Request the same listings through zonedrive's client of the service."""
    zone = alice(bench).zone("Data")
    return alone(bench, zone, {"listings": walked(bench, zone)})


def walked(bench: Bench, zone: RemoteZone) -> list[str]:
    """Return the ids of all folders that a find visits."""
    top = zone.entry_id("walk")
    tops = folders_in(bench, zone, top)
    folders = [top, *tops, *(sub for each in tops for sub in folders_in(bench, zone, each))]
    assert len(folders) == 1 + dataset.TOPS * (dataset.SUBS + 1), len(folders)
    return folders


def small_contents(bench: Bench, who: Contestant) -> Figures:
    """Download the small files by curl; their listing is known beforehand."""
    zone = alice(bench).zone("Data")
    return per_file(parallel(bench, [Request(content(zone, file)) for file in small_files(zone)]))


def small_contents_alone(bench: Bench, who: Contestant) -> Figures:
    """Download the same files through zonedrive's client of the service."""
    zone = alice(bench).zone("Data")
    wanted = {"contents": small_files(zone), "size": dataset.BLOCK}
    return per_file(alone(bench, zone, wanted))


def small_files(zone: RemoteZone) -> list[str]:
    """Return the ids of the small files."""
    found = [entry["id"] for entry in zone.listing("small").values()]
    assert len(found) == dataset.SMALL, len(found)
    return found


def small_uploads(bench: Bench, who: Contestant) -> Figures:
    """Upload the small files to a new folder by curl, as a mount does."""
    zone = alice(bench).zone("Out")
    out = bench.fresh_name()
    zone.make_folder(out)
    try:
        path = f"/api/zones/{zone.id}/files/{zone.entry_id(out)}"
        sources = sorted((bench.servers.dataset / "Data" / "small").iterdir())
        figures = parallel(
            bench, [Request(path, (f"fileName={each.name}", f"file=@{each}")) for each in sources]
        )
        assert len(zone.listing(out)) == dataset.SMALL
        return prefixed("landed", figures)
    finally:
        Zone(bench.servers.service, "Out").remove(out)


def small_uploads_alone(bench: Bench, who: Contestant) -> Figures:
    """Upload new files of the given size and number through zonedrive's client of the service."""
    zone = alice(bench).zone("Out")
    out = bench.fresh_name()
    zone.make_folder(out)
    try:
        names = [f"f{number:03}.bin" for number in range(dataset.SMALL)]
        wanted = {"uploads": names, "folder": zone.entry_id(out), "size": dataset.BLOCK}
        figures = alone(bench, zone, wanted)
        assert len(zone.listing(out)) == dataset.SMALL
        return prefixed("landed", figures)
    finally:
        Zone(bench.servers.service, "Out").remove(out)


def loads_alone(bench: Bench, who: Contestant) -> Figures:
    """Upload and download big encrypted files at once through zonedrive's client."""
    zone = alice(bench).zone("Data")
    out = bench.fresh_name()
    zone.make_folder(out)
    try:
        with tempfile.TemporaryDirectory(dir=bench.servers.folder) as scratch:
            wanted = {
                "large": [entry["id"] for entry in zone.listing("load").values()],
                "source": str(bench.servers.dataset / "source" / "load.bin"),
                "size": bench.big_mib // dataset.LOADS * dataset.MIB,
                "folder": zone.entry_id(out),
                "scratch": scratch,
            }
            figures = alone(bench, zone, wanted, far=False)
        return prefixed("landed", figures)
    finally:
        Zone(bench.servers.service, "Data").remove(out)


def git_status(bench: Bench, who: Contestant) -> Figures:
    """Run git status in a clone that was made outside the mount."""
    out = bench.fresh_name()
    source = bench.servers.dataset / "source"
    do("git_clone", Job(str(bench.servers.dataset), out, str(source), bench.big_mib))
    with who.mounted() as place, written_below(place, out):
        return prefixed("cold_status", do_on(bench, place, "git_status", bench.job(place, out)))


def alice(bench: Bench) -> Person:
    """Return the user who owns the files."""
    return bench.servers.service.person("alice")


def listing(zone: RemoteZone, folder_id: str) -> str:
    """Return the path of a folder's listing."""
    return f"/api/zones/{zone.id}/folder/{folder_id}"


def content(zone: RemoteZone, file_id: str) -> str:
    """Return the path of a file's content."""
    return f"/api/zones/{zone.id}/files/{file_id}/content"


def folders_in(bench: Bench, zone: RemoteZone, folder_id: str) -> list[str]:
    """Return the ids of the folders in a folder."""
    answer = alice(bench).http.get(listing(zone, folder_id))
    assert answer.is_success, answer.text
    return [entry["id"] for entry in answer.json() if entry["folder"]]


def single(bench: Bench, path: str, *options: str | Path) -> Figures:
    """Run curl on a path of the service, without the delay proxy. Raises Failed."""
    header = f'header = "Authorization: {authorization(bench)}"\n'
    url = bench.servers.service.base_url + path
    figures, _ = run(["--fail", *options, "--cacert", bench.servers.service.ca_file, url], header)
    return figures


def parallel(bench: Bench, requests: Sequence[Request]) -> Figures:
    """Let one curl make the requests through the delay proxy, PARALLEL at a time. Raises Failed.

    `connections`: the number of connections that curl opened for the requests.
    """
    address, ca_file = bench.servers.address(far=True), bench.servers.service.ca_file
    before = bench.servers.cpu_s()
    figures, said = run(
        ["--parallel", "--parallel-max", str(PARALLEL)],
        config(requests, address, ca_file, authorization(bench)),
    )
    after = bench.servers.cpu_s()
    return {
        **figures,
        **{name: after[name] - used for name, used in before.items()},
        "connections": connections(said, len(requests)),
    }


def alone(
    bench: Bench, zone: RemoteZone, requests: Mapping[str, object], *, far: bool = True
) -> Figures:
    """Let `tests.benchmark.requests` make the requests to the service. Raises Failed."""
    job = {
        "base_url": bench.servers.address(far=far),
        "ca_file": str(bench.servers.service.ca_file),
        "authorization": authorization(bench),
        "zone": zone.id,
        "root": zone.root_id,
        **requests,
    }
    before = bench.servers.cpu_s()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmark.requests"],
        input=json.dumps(job), capture_output=True, encoding="utf-8", timeout=WORK_SECONDS,
        check=False,
    )  # fmt: skip
    after = bench.servers.cpu_s()
    if ended.returncode:
        raise Failed(ended.stderr.strip().rpartition("\n")[2][:300])
    figures: Figures = json.loads(ended.stdout)
    return figures | {name: after[name] - used for name, used in before.items()}


def config(requests: Sequence[Request], address: str, ca_file: Path, bearer: str) -> str:
    """Return a configuration for curl to make the requests.

    For each request, curl prints the status of the answer and the number of new connections.
    """
    common = (
        f'cacert = "{ca_file}"', f'header = "Authorization: {bearer}"', "http1.1",
        'output = "/dev/null"', r'write-out = "%{http_code} %{num_connects}\n"',
    )  # fmt: skip
    sections = [
        (f'url = "{address}{request.path}"', *(f'form = "{each}"' for each in request.form))
        for request in requests
    ]
    # An option counts for the requests between two lines `next`.
    return "\nnext\n".join("\n".join((*section, *common)) for section in sections) + "\n"


def connections(said: str, requests: int) -> int:
    """Return the number of connections that curl reports.

    Raises Failed unless the given number of requests were successful.
    """
    answers = [line.split() for line in said.splitlines()]
    good = sum(status.startswith("2") for status, _ in answers)
    if good != requests:
        raise Failed(f"{good} of {requests} requests of curl were successful")
    return sum(int(new) for _, new in answers)


def run(options: Sequence[str | Path], said: str) -> tuple[Figures, str]:
    """Run curl with further options on its standard input.

    Return its seconds and CPU seconds, and what it printed.  Raises Failed.
    """
    began = usage.Moment.now()
    ended = subprocess.run(
        ["curl", "-sS", *options, "-K", "-"],
        input=said, capture_output=True, encoding="utf-8", timeout=WORK_SECONDS, check=False,
    )  # fmt: skip
    took = usage.Moment.now().since(began)
    if ended.returncode:
        raise Failed(ended.stderr.strip()[:300] or f"curl exited with status {ended.returncode}")
    return {"s": took.time_s, "cpu_s": took.commands_cpu_s}, ended.stdout


def authorization(bench: Bench) -> str:
    """Return the header that identifies the user."""
    return alice(bench).authorization
