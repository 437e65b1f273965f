"""Servers of the data set: the sandbox, and the alternatives' servers for the same files.

Knows nothing about mounts. Every server listens on the loopback interface ("near"), and behind a
delay proxy ("far"). All processes are children of this process and end with `Servers.close`.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import httpx
import trustme

from tests.benchmark import usage
from tests.harness import world
from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually

FILL_SECONDS = 600.0
START_SECONDS = 20.0
ARRIVE_SECONDS = 120.0
LOOK_SECONDS = 0.1
"""Interval of checks, which costs the service little."""

SSHD = Path("/usr/sbin/sshd")
RCLONE = Path(sys.executable).with_name("rclone")
"""Version in packaging/benchmark-requirements.txt; Debian's is years older."""


class Late(Exception):
    """Error if an expected change does not happen in time."""


class Shelf(Protocol):
    """Place where the data written on a mount arrive."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return names and sizes of the files in a folder, nothing if it does not exist yet."""
        ...

    def remove(self, folder: str) -> None:
        """Delete a folder or file, if it exists."""
        ...


def arrived(shelf: Shelf, wanted: Mapping[str, int], deadline: float) -> float:
    """Return the monotonic time at which all of `wanted` (sizes by path) existed.  Raises Late."""
    folders: dict[str, dict[str, int]] = {}
    for path, size in wanted.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = size
    for folder, files in folders.items():
        while True:
            looked = time.monotonic()
            found = shelf.sizes(folder)
            missing = sum(found.get(name) != size for name, size in files.items())
            if not missing:
                break
            if looked > deadline:
                raise Late(f"{missing} of {len(files)} files are not in {folder}")
            time.sleep(LOOK_SECONDS)
    return looked


class Disk:
    """Local folder as the place of written data."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sizes(self, folder: str) -> Mapping[str, int]:
        """See `Shelf`."""
        with suppress(FileNotFoundError):
            return {
                path.name: path.stat().st_size
                for path in (self._root / folder).iterdir()
                if path.is_file()
            }
        return {}

    def remove(self, folder: str) -> None:
        """See `Shelf`."""
        shutil.rmtree(self._root / folder, ignore_errors=True)


class Zone:
    """Zone of the service as the place of written data, with one request for each check."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._person = deployment.person("alice")
        self._zone = self._person.zone(name)
        self._ids: dict[str, str] = {}

    def sizes(self, folder: str) -> Mapping[str, int]:
        """See `Shelf`."""
        if folder not in self._ids:
            entry = self._zone.find(folder)
            if entry is None:
                return {}
            self._ids[folder] = entry["id"]
        where = f"/api/zones/{self._zone.id}/folder/{self._ids[folder]}"
        answer = self._person.http.get(where)
        assert answer.is_success, answer.text
        return {entry["name"]: int(entry["size"]) for entry in answer.json() if not entry["folder"]}

    def remove(self, folder: str) -> None:
        """See `Shelf`."""
        entry = self._zone.find(folder)
        if entry is None:
            return
        where = f"/api/sandbox/zones/{self._zone.id}/entries/{entry['id']}"
        for path in (where, f"{where}/purge"):
            answer = self._person.http.delete(path, timeout=ARRIVE_SECONDS)
            assert answer.is_success, answer.text


class Service(Deployment):
    """Sandbox with the data set in the zones `Data` and `Out`."""

    def __init__(self, folder: Path, dataset: Path) -> None:
        folder.mkdir(exist_ok=True)
        zones = (("Data", 'content = "Data"'), ("Out", ""))
        text = (
            f'[organization]\nname = "Acme"\ndomain = "{world.DOMAIN}"\n'
            f'[[users]]\nid = "alice@{world.DOMAIN}"\nname = "Alice"\nadministrator = true\n'
            f'password = "{world.PASSWORDS["alice"]}"\n'
        )
        for name, content in zones:
            text += f'[[zones]]\nname = "{name}"\nmanager = "alice@{world.DOMAIN}"\n{content}\n'
        (dataset / "world.toml").write_text(text)
        super().__init__(folder, world_file=dataset / "world.toml", seconds=FILL_SECONDS)


class Servers:
    """All servers of the data set, near and far."""

    def __init__(self, folder: Path, service: Path, dataset: Path, rtt_ms: float) -> None:
        self.folder = folder
        self.dataset = dataset
        self._rtt_ms = rtt_ms
        self._stack = ExitStack()
        self._far: dict[int, int] = {}
        self._servers: list[int] = []
        self._proxies: list[int] = []
        self.service = Service(service, dataset)
        self._stack.callback(self.service.close)

    def close(self) -> None:
        """Stop all servers."""
        self._stack.close()

    def port(self, near: int, *, far: bool) -> int:
        """Return the port of a server, or the port of its delay proxy."""
        if not far:
            return near
        if near not in self._far:
            proxy = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmark.delay", str(near), str(self._rtt_ms)],
                stdout=subprocess.PIPE, encoding="ascii", start_new_session=True,
            )  # fmt: skip
            self._stack.callback(end, proxy)
            self._proxies.append(proxy.pid)
            assert proxy.stdout is not None
            self._far[near] = int(proxy.stdout.readline())
        return self._far[near]

    def address(self, *, far: bool) -> str:
        """Return the base URL of the service, near or far."""
        near = httpx.URL(self.service.base_url)
        assert near.port is not None
        return str(near.copy_with(port=self.port(near.port, far=far)))

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU seconds so far of all servers, and of the delay proxies."""
        return {
            "service_cpu_s": usage.cpu_s([self.service.process.pid, *self._servers]),
            "proxy_cpu_s": usage.cpu_s(self._proxies),
        }

    def run(self, name: str, command: Callable[[int], list[str | Path]]) -> int:
        """Start a server; return its port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
        server = subprocess.Popen(
            command(port),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(end, server)
        self._servers.append(server.pid)

        def answers() -> bool:
            assert server.poll() is None, (self.folder / f"{name}.log").read_text()[-500:]
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5):
                return True
            return False

        eventually(answers, START_SECONDS, what=f"{name} answers")
        return port


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Terminate the process, and kill it if necessary."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


class WebDav:
    """rclone's WebDAV server over TLS on the data set."""

    def __init__(self, servers: Servers) -> None:
        folder = servers.folder / "webdav"
        folder.mkdir()
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        self.ca_file, key = folder / "ca.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        certificate.private_key_pem.write_to_path(key)
        chain = folder / "chain.pem"
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(chain, append=True)
        self.certificate = chain
        self.port = servers.run(
            "webdav",
            lambda port: [
                RCLONE, "serve", "webdav", servers.dataset, "--addr", f"127.0.0.1:{port}",
                "--cert", chain, "--key", key, "--config", folder / "none.conf",
            ],
        )  # fmt: skip


class Sshd:
    """sshd with its own keys and settings, for the user who runs the benchmark."""

    def __init__(self, servers: Servers) -> None:
        folder = servers.folder / "sshd"
        folder.mkdir(mode=0o700)
        self.key = folder / "user"
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
            )
        allowed = folder / "authorized"
        allowed.write_bytes((folder / "user.pub").read_bytes())
        with suppress(OSError):
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of root wants it
        settings = folder / "sshd_config"

        def command(port: int) -> list[str | Path]:
            settings.write_text(
                f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
                f"AuthorizedKeysFile {allowed}\nStrictModes no\nPidFile none\nUsePAM no\n"
                "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
                "Subsystem sftp internal-sftp\n"
            )
            return [SSHD, "-D", "-e", "-f", settings]

        self.port = servers.run("sshd", command)
