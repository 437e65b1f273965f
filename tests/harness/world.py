"""Small world of the mounted tests: a world file and the folder next to it."""

import random
from collections.abc import Mapping
from pathlib import Path

DOMAIN = "acme.example"
PASSWORDS: Mapping[str, str] = {
    "alice": "correct horse",
    "bob": "battery staple",
    "carol": "tromboné ✓",
}
ZONES = 24

SEED: Mapping[str, bytes] = {
    "notes.txt": b"first line\nsecond line\n",
    "empty": b"",
    "docs/report.md": b"# Report\n\nAll is well.\n",
    "docs/2026/q1.csv": b"month,amount\nJanuary,1\n",
    "docs/Grüße aus Köln.txt": "Schöne Grüße\n".encode(),
    "big.bin": random.Random(7).randbytes(3 * 1024 * 1024 + 17),
}
"""Initial content of every zone."""


def example(folder: Path, packaged: Path) -> Path:
    """Write the world that comes with the sandbox to `folder`, with the passwords from above."""
    text = packaged.read_text("utf-8")
    for name, password in PASSWORDS.items():
        user = f'id = "{name}@{DOMAIN}"\nname'
        assert user in text
        text = text.replace(user, f'password = "{password}"\n{user}')
    path = folder / "example.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace('content = "', f'content = "{packaged.parent}/'), "utf-8")
    return path


def write(folder: Path, *, zones: int = ZONES, organization: str = "") -> Path:
    """Write the world file below `folder`; `organization` is TOML for its table."""
    for name, data in SEED.items():
        path = folder / "seed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    text = [f'[organization]\nname = "Acme"\ndomain = "{DOMAIN}"\n{organization}\n']
    for name, password in PASSWORDS.items():
        administrator = "true" if name == "alice" else "false"
        text.append(
            f'[[users]]\nid = "{name}@{DOMAIN}"\nname = "{name.title()}"\n'
            f'password = "{password}"\nadministrator = {administrator}\n'
        )
    names = [f"Zone {number:02}" for number in range(1, zones + 1)]
    for name in [*names, "Closed"]:
        accessible = "false" if name == "Closed" else "true"
        text.append(
            f'[[zones]]\nname = "{name}"\nmanager = "alice@{DOMAIN}"\n'
            f"accessible = {accessible}\nallow_external_sharing = true\n"
            f'members = [{{ id = "bob@{DOMAIN}", access = "Modify" }},'
            f' {{ id = "carol@{DOMAIN}", access = "Add" }}]\ncontent = "seed"\n'
        )
    path = folder / "world.toml"
    path.write_text("\n".join(text), "utf-8")
    return path
