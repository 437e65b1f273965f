"""Scripts in packaging/ do not execute external text as a command."""

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = [
    path
    for path in sorted(
        [
            *PACKAGING.rglob("*"),
            *(ROOT / ".ci").rglob("*"),
            ROOT / "tests" / "systemd" / "systemd_machine.sh",
        ]
    )
    if path.is_file()
    and re.match(rb"#!/bin/(ba)?sh\n|.*\n# shellcheck shell=|# A clean root", path.read_bytes())
]
# Words split or expanded, formats and traps made of variables, and lists of files as text.
UNQUOTED = "--include=SC2012,SC2046,SC2048,SC2059,SC2064,SC2068,SC2086,SC2206,SC2207,SC2294,SC1087"
BUILDS = ("debian/rules.12", "debian/rules.13", "suite")  # in clean roots, from sources of ours

# Names that a shell, sed, awk, make or dpkg would act on, where one of them saw them as code.
HOSTILE = "A/;1e touch here # $(touch here) `touch here` |touch here& ${Newline} %s '\" \\n \\1 #"
MALICE = "x/e touch here;#@here.example"

# Programs that packaging/deb calls to make a clean root, and to run something there.
STAND_INS = {
    "mmdebstrap": """
printf '%s\\n' "$@" >"$DESK/mmdebstrap.words"
for word; do
    case $word in */root) mkdir -p "$word/etc/ssl/certs" && echo "$word" >"$DESK/root" ;; esac
done
""",
    "unshare": """
printf '%s\\n' "$@" >"$DESK/inside"
root=$(cat "$DESK/root")
[ ! -e "$root/build/zonedrive/debian" ] || cp -r "$root/build/zonedrive/debian" "$DESK"
""",
    "pip": """
[ "$*" != "config get global.index-url" ] || echo 'https://x sh -c touch${IFS}here *'
""",
}


def git(folder: Path, *arguments: str, **variables: str) -> None:
    """Run git without the user's settings."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", folder, *arguments], env=clean | variables, check=True)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a clone whose last commit, tag and branch have hostile names."""
    folder = tmp_path / "a $(touch here) clone"
    shutil.copytree(PACKAGING, folder / "packaging")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    identity = {"GIT_AUTHOR_NAME": HOSTILE, "GIT_AUTHOR_EMAIL": MALICE}
    identity |= {"GIT_COMMITTER_NAME": HOSTILE, "GIT_COMMITTER_EMAIL": MALICE}
    git(folder, "init", "-q", "-b", "$(touch${IFS}here)/e;touch${IFS}here")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", f"{HOSTILE}\nAs of $(touch here).", **identity)
    git(folder, "tag", "`touch${IFS}here`;/e")
    return folder


@pytest.mark.parametrize("own", [False, True], ids=["author", "environment"])
def test_names_in_the_history_are_no_commands_for_a_build(
    hostile: Path, tmp_path: Path, own: bool
) -> None:
    """`packaging/deb` as root puts a hostile author's name into the package unchanged."""
    desk = tmp_path / "desk"
    desk.mkdir()
    for name, text in STAND_INS.items():
        (desk / name).write_text(f"#!/bin/sh\n{text}")
        (desk / name).chmod(0o755)
    folder = tmp_path / "tmp '$(touch here)"
    folder.mkdir()
    mirror = "http://x --setup-hook=touch${IFS}here *"
    environment = {
        "PATH": f"{desk}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "DESK": str(desk),
        "TMPDIR": str(folder),
        "MIRROR": mirror,
    }
    if own:
        names = {"DEBFULLNAME": f"Me <x>\n{HOSTILE}", "DEBEMAIL": f"{MALICE}\n"}
        environment |= names
    said = subprocess.run(
        [hostile / "packaging" / "deb", "13"], env=environment, cwd=tmp_path,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert not list(tmp_path.rglob("here")), "a command of somebody else's ran"
    # There is no package, as nothing was built.
    assert said.returncode != 0 and "building zonedrive" in said.stdout, said
    maintainer = f"{'Me x ' if own else ''}{HOSTILE} <{MALICE}>"
    control = (desk / "debian" / "control").read_text().splitlines()
    assert f"Maintainer: {maintainer.replace('$', '${}')}" in control
    changelog = (desk / "debian" / "changelog").read_text().splitlines()
    assert re.fullmatch(
        r"zonedrive \([0-9.]+-1\+[0-9]{14}~deb13\) unstable; urgency=medium", changelog[0]
    )
    assert re.fullmatch(r"  \* As of [0-9a-f]+\.", changelog[2])
    assert changelog[4].startswith(f" -- {maintainer}  ")
    assert len(changelog) == 5
    assert (desk / "mmdebstrap.words").read_text().splitlines()[-1] == mirror
    inside = (desk / "inside").read_text().splitlines()
    assert "PIP_INDEX_URL=https://x sh -c touch${IFS}here *" in inside


def test_dpkg_reads_the_names_as_they_are(hostile: Path, tmp_path: Path) -> None:
    """The package's fields are right after dpkg has replaced its variables."""
    sources = tmp_path / "sources"
    shutil.copytree(hostile, sources)
    (sources / "debian").mkdir()
    program = PACKAGING / "debian" / "metadata.py"
    said = subprocess.run(
        ["python3", "-I", program, hostile, sources, "13"],
        capture_output=True,
        text=True,
        check=True,
    )
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    subprocess.run(
        ["dpkg-gencontrol", "-pzonedrive", f"-P{package}"], cwd=sources, check=True,
        capture_output=True,
    )  # fmt: skip
    fields = (package / "DEBIAN" / "control").read_text().splitlines()
    assert f"Maintainer: {HOSTILE} <{MALICE}>" in fields
    assert f"Version: {said.stdout.strip()}" in fields


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Return a checkout with a complete .venv, and an environment with all system packages."""
    folder, programs = tmp_path / "checkout", tmp_path / "bin"
    shutil.copytree(PACKAGING, folder / "packaging")
    shutil.copy(ROOT / "pyproject.toml", folder)
    programs.mkdir()
    for name, text in {"fusermount3": "", "gcc": "echo /crt1.o", "pkg-config": ""}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    python = programs / "python3"
    python.symlink_to(sys.executable)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(python)
    show = "import sys, sysconfig; print(sys.executable, sysconfig.get_config_var('SOABI'))"
    base = subprocess.run([python, "-I", "-c", show], capture_output=True, text=True, check=True)
    locks = [folder / f"packaging/{name}requirements.txt" for name in ("", "build-", "axe-")]
    sums = [b"".join(each.read_bytes() for each in locks)]
    sums.append((folder / "pyproject.toml").read_bytes())
    lines = [str(folder), base.stdout.strip(), *(sha256(each).hexdigest() for each in sums)]
    (folder / ".venv/zonedrive.setup").write_text("".join(f"{line}\n" for line in lines))
    path = f"{programs}:{os.environ['PATH']}"
    return folder, {"PATH": path, "PYTHON": str(python), "HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (None, ""),
        (".venv/zonedrive.setup", "there is no .venv of this checkout and this interpreter"),
        ("packaging/axe-requirements.txt", "the dependencies or pyproject.toml have changed"),
        ("pyproject.toml", "the dependencies or pyproject.toml have changed"),
        ("gcc", "system packages are missing: libc6-dev"),
    ],
)
def test_a_check_of_the_setup_changes_nothing(
    prepared: tuple[Path, dict[str, str]], changed: str | None, reason: str
) -> None:
    """`packaging/setup --check` says in one line what a setup would do, and does none of it."""
    folder, environment = prepared
    if changed == "gcc":
        (folder.parent / "bin/gcc").write_text("#!/bin/sh\necho crt1.o\n")
    elif changed:
        (folder / changed).write_text("changed\n")
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    said = subprocess.run(
        [folder / "packaging/setup", "--check"], env=environment, capture_output=True, text=True
    )
    assert said.stdout == ""
    if changed is None:
        assert (said.returncode, said.stderr) == (0, "")
    else:
        assert said.returncode == 1
        assert said.stderr.startswith(f"setup: {reason}")
        assert said.stderr.endswith(": run packaging/setup\n") and said.stderr.count("\n") == 1
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before


def test_scripts_pass_shellcheck() -> None:
    """shellcheck finds no errors, for example variables that are expanded without quotes."""
    for script in SCRIPTS:
        shell = "bash" if script.read_text().startswith("#!/bin/bash") else "sh"
        subprocess.run([shell, "-n", script], check=True)
    command: list[str | Path] = [
        "shellcheck",
        "--external-sources",
        f"--source-path={ROOT}",
        UNQUOTED,
        *SCRIPTS,
    ]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, "")


def test_no_python_in_a_script_imports_from_the_working_folder() -> None:
    """A download folder may contain a json.py; -I keeps Python from importing it."""
    texts = {str(path.relative_to(PACKAGING)): path for path in PACKAGING.rglob("*")}
    checked = 0
    for name, path in texts.items():
        is_text = path.is_file() and path.suffix not in (".png", ".md", ".pyc")
        if not is_text or name in BUILDS:
            continue
        for call in re.findall(r'python3?"?(?: -\w+)* -[cm]\b.*', path.read_text("utf-8")):
            assert " -I -" in call, (name, call)
            checked += 1
    assert checked > 10
