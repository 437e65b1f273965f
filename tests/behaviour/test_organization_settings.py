"""Settings of the administrator in /etc/zonedrive, which a mount namespace replaces here."""

import shutil
import subprocess
from functools import cached_property
from pathlib import Path

import pytest

from tests.harness import starter, world
from tests.harness.chromium import Chromium
from tests.harness.deployment import Deployment
from tests.harness.machine import Machine
from tests.harness.window import Window

PASSWORD = f"{world.PASSWORDS['alice']}\n"
USER = ("--username", f"alice@{world.DOMAIN}", "--password-stdin")


OVERLAY = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc'


class Office:
    """Machine whose commands see a folder in place of /etc/zonedrive."""

    def __init__(self, machine: Machine, service: Deployment) -> None:
        """Write the settings of an organization with this service."""
        self.machine = machine
        self._service = service
        self._program = machine.folder / "zonedrive"
        starter.write_stand_in(self._program)
        self.etc = machine.folder / "etc"
        (self.etc / "zonedrive/profiles").mkdir(parents=True)
        self.file = self.etc / "zonedrive/config.toml"
        shutil.copy(service.ca_file, self.etc / "zonedrive/ca.pem")
        sandbox = Path(__file__).parents[2] / "src/zonedrive/remote/profiles/sandbox.toml"
        shutil.copy(sandbox, self.etc / "zonedrive/profiles/acme.toml")
        self.default = (
            f'[account.default]\nbase_url = "{service.base_url}"\nca_file = "ca.pem"\n'
            'profile = "acme"\n'
        )
        self.policy = (
            f'[policy]\nbase_url = "{service.base_url}"\nencrypt = true\n'
            'save_password = false\nprofile = "acme"\nlocal_only = ["*.pst"]\n'
        )
        self.file.write_text(self.default + self.policy)

    @cached_property
    def zone(self) -> str:
        """Return the name of a zone that no other test uses."""
        return self._service.fresh_zone()

    def run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell script with the password as its input; `$zd` is the command, `$zone` a zone
        of this test."""
        # An overlay, because /etc/zonedrive does not exist on this machine.
        inside = f"{OVERLAY} && zd=$1 && shift && set -u && "
        if "$zone" in script:
            inside += f"zone='{self.zone}' && "
        words = [str(self.etc), str(self._program), *arguments]
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", inside + script, *words],
            env=self.machine.environment, input=PASSWORD, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip


@pytest.fixture
def office(machine: Machine, deployment: Deployment) -> Office:
    """Return a machine with the settings of an organization."""
    return Office(machine, deployment)


def test_a_logon_needs_no_address(office: Office) -> None:
    """Service, authority and profile are the organization's."""
    ended = office.run('"$zd" logon "$@"', *USER)
    assert ended.returncode == 0, ended.stderr
    assert "logged on to https://" in ended.stdout
    account = next(office.machine.folder.rglob("account.json")).read_text()
    assert '"profile": "acme"' in account


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("https://elsewhere.example", *USER), "policy allows only https://"),
        ((*USER, "--save-password"), "forbids saving the password"),
        ((*USER, "--profile", "sandbox"), "sets profile to acme"),
    ],
)
def test_a_logon_cannot_evade_the_policy(
    office: Office, options: tuple[str, ...], said: str
) -> None:
    """The command fails in one line and saves nothing."""
    ended = office.run('"$zd" logon "$@"', *options)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_logon_names_the_values_that_are_ignored(office: Office) -> None:
    """An invalid default prevents no logon, but explains why there is no default."""
    office.file.write_text('[account.default]\nbase_url = "http://zones.example"\n')
    ended = office.run('"$zd" logon "$@"', *USER)
    assert ended.returncode == 2
    ignored, missing = ended.stderr.splitlines()
    assert "config.toml:2: base_url must start with https://" in ignored
    assert "missing argument 'BASE_URL'" in missing
    office.file.write_text("settle = -1\n" + office.default + office.policy)
    ended = office.run('"$zd" logon "$@"', *USER)
    assert ended.returncode == 0
    assert "config.toml:1: settle" in ended.stderr


def test_an_unreadable_file_forbids_a_logon_and_makes_mounts_read_only(office: Office) -> None:
    """The mount and the doctor name the file; the correction needs only a new mount."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    script = r""""$zd" logon --username "$2" --password-stdin || exit 9
        echo '[policy' >>"$0/zonedrive/config.toml"
        "$zd" logon --username "$2" --password-stdin && exit 8
        "$zd" mount "$1" -o encrypt=false || exit 7
        "$zd" doctor
        ls "$1"
        touch "$1/$zone/new.txt" && exit 6
        "$zd" unmount "$1" || exit 5
        good=$(grep -v '^\[policy$' "$0/zonedrive/config.toml")
        echo "$good" >"$0/zonedrive/config.toml"
        "$zd" mount "$1" -o encrypt=false || exit 4
        touch "$1/$zone/new.txt" "$1/$zone/mail.pst" || exit 3
        "$zd" sync || exit 2
        getfattr --only-values -n user.zonedrive.state "$1/$zone/mail.pst"
        "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "zonedrive/config.toml" in ended.stderr
    assert "mounts are read-only until then" in ended.stdout
    assert "Read-only file system" in ended.stderr
    assert "local" in ended.stdout


def test_a_mount_names_the_values_that_a_policy_replaces(office: Office) -> None:
    """The terminal shows the values, not only the log of the daemon."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    script = """"$zd" logon --username "$2" --password-stdin || exit 9
        "$zd" mount "$1" -o encrypt=false || exit 8
        "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1])
    assert ended.returncode == 0, ended.stderr
    assert "encrypt is set by the organization's policy; your value is not used" in ended.stderr


def test_the_window_asks_only_for_name_and_password(office: Office) -> None:
    """Address, authority and profile are the organization's, and its policies cannot be changed."""
    inside = ("unshare", "--mount", "sh", "-c", f'{OVERLAY} && exec "$@"', office.etc)
    chromium = Chromium()
    window = Window(office.machine, chromium, inside)
    try:
        chromium.go(window.start)
        assert "the service of your organization" in chromium.until("User name")
        fields = chromium.run(
            "return [...document.querySelectorAll('form [name]')].map(f => f.name)"
        )
        assert not {"url", "profile", "save"} & set(fields)
        chromium.fill("username", USER[1])
        chromium.click("form button")
        chromium.until("Password")
        chromium.fill("password", PASSWORD.strip())
        chromium.click("form button")
        chromium.until("Mounted.")
        account = next(office.machine.folder.rglob("account.json")).read_text()
        assert '"profile": "acme"' in account
        window.go("/a/default/settings")
        assert "Your organization has set it." in chromium.text
        assert not chromium.run("return document.querySelectorAll('[name=encrypt]').length")
        window.go("/a/default/logoff")
        chromium.click("form button")
        chromium.until("logged off")
    finally:
        window.close()
        chromium.close()


def test_a_home_that_cannot_be_written(office: Office) -> None:
    """State and cache are where the policy says, and nothing needs the home folder."""
    disk = office.machine.folder / "disk"
    disk.mkdir()
    policy = office.policy + f'state_dir = "{disk}/state"\ncache_dir = "{disk}/cache"\n'
    office.file.write_text(office.default + policy)
    script = """mount --bind "$HOME" "$HOME" && mount -o remount,bind,ro "$HOME" || exit 9
        mount -t tmpfs disk "$1" && mount -t tmpfs -o mode=700 run "$XDG_RUNTIME_DIR" || exit 8
        mkdir "$1/Zones"
        "$zd" logon --username "$2" --password-stdin && exit 7
        install -d -m 1777 "$1/state" "$1/cache"
        "$zd" logon --username "$2" --password-stdin || exit 6
        "$zd" mount "$1/Zones" || exit 5
        echo text >"$1/Zones/$zone/new.txt" && "$zd" sync || exit 4
        "$zd" doctor
        ls "$1/state/$(id -u)/default/account.json" "$1/cache/$(id -u)/default/content" || exit 3
        "$zd" unmount "$1/Zones" && "$zd" logoff || exit 2
        find "$1/state" "$1/cache" -type f
    """
    ended = office.run(script, str(disk), USER[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "state, the policy state_dir of the organization, does not exist" in ended.stderr
    assert ended.stdout.rpartition("logged off")[2].count("\n") == 1


def test_an_account_from_before_the_policy(office: Office) -> None:
    """Every command, a logon too, says how to move the account; the move keeps pending uploads."""
    zones, disk = office.machine.folder / "Zones", office.machine.folder / "disk"
    zones.mkdir(exist_ok=True)
    disk.mkdir(mode=0o1777)
    disk.chmod(0o1777)
    script = """"$zd" logon --username "$2" --password-stdin && "$zd" mount "$1" || exit 9
        "$zd" pause && echo text >"$1/$zone/waits.txt" && "$zd" unmount "$1" || exit 8
        echo "state_dir = \\"$3\\"" >>"$0/zonedrive/config.toml"
        said=$("$zd" logon --username "$2" --password-stdin 2>&1 </dev/null) && exit 4
        [ "$said" = "$("$zd" mount "$1" 2>&1)" ] || exit 3
        "$zd" doctor | grep -qF "the computer keeps accounts in" || exit 2
        said=$("$zd" mount "$1" 2>&1) && exit 7
        printf '%s\n' "$said"
        move=${said#*run \\'} && eval "${move%%\\'*}" || exit 6
        "$zd" mount "$1" && cat "$1/$zone/waits.txt" && "$zd" resume && "$zd" sync || exit 5
        "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1], str(disk))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the computer keeps accounts in" in ended.stdout
    assert "text\n" in ended.stdout


def test_no_upload_evades_the_policy(office: Office) -> None:
    """Names count in any case of letters, and for what was saved before the policy, too."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    former = office.policy.replace('local_only = ["*.pst"]\n', "")
    office.file.write_text(office.default + former)
    script = r""""$zd" logon --username "$2" --password-stdin && "$zd" mount "$1" || exit 9
        cd "$1/$zone" && echo first >old.pst && "$zd" sync && "$zd" pause || exit 8
        echo second >old.pst && echo waits >waits.PST && cd / && "$zd" unmount "$1" || exit 7
        echo 'local_only = ["*.pst"]' >>"$0/zonedrive/config.toml"
        "$zd" mount "$1" && "$zd" resume && cd "$1/$zone" && echo new >New.Pst || exit 6
        printf 'local_only = []\n' >"$XDG_CONFIG_HOME/zonedrive/config.toml"
        "$zd" sync && exit 5
        getfattr --only-values -n user.zonedrive.state New.Pst && echo && "$zd" status
        "$zd" versions old.pst
        mv waits.PST waits.txt && rm old.pst && "$zd" sync || exit 4
        cd / && "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr.count("the organization's policy forbids this upload") == 2
    assert "local\n" in ended.stdout
    assert " 1   " in ended.stdout.rpartition("version")[2]
    assert " 2   " not in ended.stdout.rpartition("version")[2]


def test_a_wrong_profile_of_the_organization_prevents_no_mount(office: Office) -> None:
    """The mount offers the published operations, a pending removal waits, and doctor says why."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    profile = '"$0/zonedrive/profiles/acme.toml"'
    script = rf""""$zd" logon --username "$2" --password-stdin && "$zd" mount "$1" || exit 9
        echo text >"$1/$zone/removed.txt" && "$zd" sync && "$zd" pause || exit 8
        rm "$1/$zone/removed.txt" && "$zd" unmount "$1" || exit 8
        cp {profile} "$1.toml" && echo '[nonsense]' >>{profile} || exit 7
        "$zd" mount "$1" && "$zd" resume || exit 7
        echo text >"$1/$zone/new.txt" && rm "$1/$zone/big.bin" && exit 6
        "$zd" sync && exit 5
        "$zd" status
        "$zd" doctor
        "$zd" unmount "$1"
        cp "$1.toml" {profile} && "$zd" mount "$1" && "$zd" sync || exit 4
        echo listed && ls "$1/$zone"
        "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "BAD  profile: a profile of the organization cannot be used" in ended.stdout
    listed = ended.stdout.rpartition("listed\n")[2]
    assert "big.bin" in listed and "new.txt" in listed and "removed.txt" not in listed


def test_a_mount_trusts_the_authority_of_the_policy(office: Office) -> None:
    """Another authority of an earlier logon is not used; a file without one closes the policy."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    script = r""""$zd" logon --username "$2" --password-stdin || exit 9
        cd "$XDG_STATE_HOME/zonedrive/default" || exit 9
        openssl req -x509 -nodes -keyout /dev/null -subj /CN=x -out ca.pem 2>/dev/null || exit 8
        echo 'ca_file = "ca.pem"' >>"$0/zonedrive/config.toml"
        "$zd" mount "$1" && ls "$1/$zone" && "$zd" unmount "$1" || exit 7
        : >"$0/zonedrive/ca.pem"
        "$zd" logon --username "$2" --password-stdin && exit 6
        "$zd" mount "$1" && "$zd" doctor
        "$zd" unmount "$1"
    """
    ended = office.run(script, str(zones), USER[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "big.bin" in ended.stdout
    assert "ca.pem has no certificates that can be read" in ended.stderr
    assert "BAD  organization" in ended.stdout


def test_new_credentials_are_requested_from_the_organization(office: Office) -> None:
    """No address is necessary, and another one is refused."""
    script = """"$zd" new-credentials --username "$1" || exit 9
        "$zd" new-credentials https://elsewhere.example --username "$1"
    """
    ended = office.run(script, USER[1])
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "requested new credentials" in ended.stdout
    assert "policy allows only https://" in ended.stderr


WAITING = r"""password=$(cat)
    log_on() { echo "$password" | "$zd" logon --username "$2" --password-stdin; }
    commands() {  # of a message, with the given folder
        printf '%s' "$1" | grep -o "'zonedrive [^']*'" |
            sed "s|^'zonedrive|'$zd'|;s|'$||;s|DIR|'$2'|"
    }
    log_on "$@" && "$zd" mount "$1" -o "settle=3600,$3" || exit 99
    new="$1/$zone/new-$$" && mkdir "$new" && echo text >"$new/waits.txt" || exit 98
    settings=$0/zonedrive/config.toml && cp "$settings" "$0/former.toml"
"""
"""Script that leaves pending changes behind, before a policy appears in config.toml."""

REFUSED = r"""
    for command in "mount $1" sync logoff; do
        said=$("$zd" $command 2>&1) && exit 89
        printf 'refused: %s\n' "$said"
    done
    "$zd" status && "$zd" doctor
"""
"""Script that prints what commands say while the policy forbids the account."""

LIFTED = r"""
    cp "$settings" "$0/policy.toml" && cat "$0/former.toml" >"$settings"
    commands "$said" "$1" >"$0/commands" && sh -ex "$0/commands" || exit 79
"""
"""Script that lifts the policy, and then runs the commands that the last message names."""


def office_without(office: Office, *policies: str) -> tuple[str, str]:
    """Return the folder for the mount and the user, after removing policies from the settings."""
    zones = office.machine.folder / "Zones"
    zones.mkdir(exist_ok=True)
    lines = (office.default + office.policy).splitlines(keepends=True)
    before, table = lines[: lines.index("[policy]\n")], lines[lines.index("[policy]\n") :]
    kept = [line for line in table if not line.startswith(policies)]
    office.file.write_text("".join(before + kept))
    return str(zones), USER[1]


def refusals(output: str) -> list[str]:
    """Return what the refused commands said."""
    return [line for line in output.splitlines() if line.startswith("refused: ")]


def test_a_policy_of_encryption_keeps_what_waits(office: Office) -> None:
    """Every command names the policy and the way to upload what was stored before; it works."""
    folder, user = office_without(office, "encrypt")
    policy = """
        echo 'encrypt = true' >>"$settings"
        said=$("$zd" doctor) && exit 97
        case $said in *"run 'zonedrive sync', then 'zonedrive logoff'"*) ;; *) exit 96 ;; esac
        "$zd" unmount --now "$1" || exit 95
    """
    again = """
        cat "$0/policy.toml" >"$settings" && log_on "$@" && "$zd" mount "$1" || exit 9
        cat "$new/waits.txt" && "$zd" doctor && "$zd" unmount "$1"
    """
    ended = office.run(WAITING + policy + REFUSED + LIFTED + again, folder, user, "encrypt=false")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = refusals(ended.stdout)
    assert len(said) == 3
    for each in said:
        assert "policy sets encrypt = true" in each
        assert "only this machine has 1 file (5 bytes) and 1 change" in each
        assert "remove encrypt from the policies in /etc/zonedrive/config.toml" in each
    assert "BAD  organization" in ended.stdout
    before = ended.stdout.partition("logged off")[0]
    assert not [word for word in ("keyring was", "--discard", "data key") if word in before]
    assert "text\n" in ended.stdout.rpartition("logged on")[2]


def test_a_policy_of_encryption_keeps_what_is_never_uploaded(office: Office) -> None:
    """Every command names the policy and the way to copy the files and to log off; it works."""
    folder, user = office_without(office, "encrypt")
    policy = """
        mv "$new/waits.txt" "$new/waits.pst" && "$zd" sync && "$zd" unmount "$1" || exit 97
        echo 'encrypt = true' >>"$settings"
    """
    ended = office.run(WAITING + policy + REFUSED + LIFTED, folder, user, "encrypt=false")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = refusals(ended.stdout)
    assert len(said) == 3
    for each in said:
        assert "only this machine has 1 file of local_only" in each
        assert "is done and what you need is copied elsewhere; then run" in each
    assert "dropped 1 file of local_only" in ended.stdout


def test_a_policy_of_encryption_needs_a_new_logon(office: Office) -> None:
    """If everything is on the service, the mount names the two commands that change the data."""
    folder, user = office_without(office, "encrypt")
    script = r"""
        "$zd" sync && "$zd" unmount "$1" && echo 'encrypt = true' >>"$settings"
        said=$("$zd" mount "$1" 2>&1) && exit 9
        printf '%s\n' "$said"
        commands "$said" "$1" | sed "s|logon .*|& --password-stdin|" >"$0/commands"
        echo "$password" | sh -ex "$0/commands" && "$zd" mount "$1" || exit 8
        cat "$new/waits.txt" && "$zd" doctor && "$zd" unmount "$1"
    """
    ended = office.run(WAITING + script, folder, user, "encrypt=false")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "text\n" in ended.stdout
    assert "content and names are encrypted on this disk" in ended.stdout


def test_a_policy_of_another_service_keeps_what_waits(office: Office) -> None:
    """Every command, a logon too, names the policy and the way to upload what waits; it works."""
    folder, user = office_without(office, "base_url")
    policy = """
        "$zd" unmount --now "$1" || exit 97
        echo 'base_url = "https://new.example"' >>"$settings"
        said=$("$zd" logon --username x 2>&1 </dev/null) && exit 96
        printf 'refused: %s\n' "$said"
    """
    ended = office.run(WAITING + policy + REFUSED + LIFTED, folder, user, "encrypt=true")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = refusals(ended.stdout)
    assert len(said) == 4
    assert "or keep both apart with --account NAME" in said[0]
    for each in said:
        assert "policy allows only https://new.example" in each
        assert "only this machine has 1 file (5 bytes) and 1 change" in each
        assert "remove base_url from the policies in /etc/zonedrive/config.toml" in each
    assert "BAD  organization" in ended.stdout
    assert "--discard" not in ended.stdout


def test_encryption_that_cannot_be_read(office: Office) -> None:
    """Unencrypted data cannot be mounted until the file is corrected, as the error says."""
    folder, user = office_without(office, "encrypt")
    script = r"""
        "$zd" unmount --now "$1" && echo 'encrypt = 7' >>"$settings"
        "$zd" mount "$1" && exit 9
        cat "$0/former.toml" >"$settings"
        "$zd" mount "$1" -o encrypt=false && "$zd" sync && "$zd" unmount "$1"
    """
    ended = office.run(WAITING + script, folder, user, "encrypt=false")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "correct /etc/zonedrive/config.toml; pending changes are kept" in ended.stderr
