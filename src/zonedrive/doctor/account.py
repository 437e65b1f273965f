"""Checks of the account: settings, logon, profile, and protection of local data.

Sends no request to the service.
"""

import re
import time

from zonedrive.daemon.local_data import is_sealed
from zonedrive.doctor.facts import DoctorFacts
from zonedrive.doctor.result import CheckResult
from zonedrive.errors import ConfigError, NoHomeDirectory, StoreError, ZonedriveError
from zonedrive.logon.account import Account
from zonedrive.logon.secrets import InsecurePermissions, KeyringLocked
from zonedrive.logon.session_bus import FOREIGN, is_foreign
from zonedrive.paths import config_file
from zonedrive.remote.profiles.load import load_profile, packaged

AGAIN = "run 'zonedrive logon URL' again"
WHERE = {
    "keyring": "in the desktop's keyring",
    "credentials": "given by systemd",
    "file": "in a file that only you can read, as no keyring is in use",
}

LOST = (
    "was the keyring emptied, or another one opened? put the former one back; if it is lost for"
    " good, run 'zonedrive logoff --discard', and log on"
)
RUNNING = (
    "the mount still has it: run 'zonedrive sync', so that nothing waits; then"
    " 'zonedrive logoff', and log on"
)


def settings(patient: DoctorFacts) -> CheckResult | None:
    """Check the settings file."""
    try:
        _ = patient.settings
    except NoHomeDirectory:
        return None  # `home folder` reports this
    except ConfigError as wrong:
        line = re.search(r"config\.toml(?::| line |, line )([0-9]+)", wrong.message)
        where = f" (line {line[1]})" if line else ""
        return CheckResult(False, f"config.toml cannot be used{where}",
                       "mend that line, or move the file away", here=wrong.line())  # fmt: skip
    if not config_file().exists():
        return CheckResult(True, "all as it comes: there is no config.toml")
    return CheckResult(True, "config.toml is sound")


def logon(patient: DoctorFacts) -> CheckResult | None:
    """Check the stored logon."""
    try:
        if patient.account is None:
            return CheckResult(False, "there is no logon", "run 'zonedrive logon URL'",
                           here=f"run 'zonedrive logon URL{patient.paths.option}'")  # fmt: skip
    except NoHomeDirectory:
        return None
    except ConfigError as wrong:
        return CheckResult(False, "what the logon kept is damaged", AGAIN, here=wrong.line())
    bearer = patient.bearer
    if isinstance(bearer, StoreError):
        if patient.shut is not None and patient.secrets.kind == "keyring":
            return CheckResult(False, "its token is in the keyring, which is locked or not there",
                           "unlock the keyring: log in to the desktop, or open its settings",
                           )  # fmt: skip
        if isinstance(bearer, InsecurePermissions):
            return CheckResult(False, f"the file with its secrets {bearer.what}",
                           "run 'chmod 600' on secrets.json, if it is yours; else remove it, and"
                           " log on again", here=bearer.line())  # fmt: skip
        return CheckResult(False, "what the logon kept is damaged", AGAIN,
                       here=f"{bearer.line()}: run '{patient.logon_command}'")  # fmt: skip
    if bearer is None:
        return _again(patient, "its token is gone")
    if bearer.until and bearer.expires_ns < time.time_ns():
        return _again(patient, f"the {bearer.kind} has expired, on {bearer.until}")
    if Account.is_damaged(patient.paths):
        return _again(patient, "account.json cannot be read, so a copy of it is in use")
    until = f", valid until {bearer.until}" if bearer.until else ""
    return CheckResult(True, f"a {bearer.kind} is kept{until}")


def _again(patient: DoctorFacts, detail: str) -> CheckResult:
    return CheckResult(False, detail, AGAIN, here=f"run '{patient.logon_command}'")


def profile(patient: DoctorFacts) -> CheckResult | None:
    """Check the deployment profile."""
    if patient.account is None:
        return None
    name = patient.settings.profile or patient.account.profile
    shown = name if name in packaged() else "a file of your own"
    try:
        load_profile(name)
    except ZonedriveError as wrong:
        line = re.search(r", line ([0-9]+)", wrong.message)
        where = f" (line {line[1]})" if line else ""
        return CheckResult(False, f"{shown} cannot be used{where}",
                       "mend the file, or log on again with another --profile",
                       here=wrong.line())  # fmt: skip
    return CheckResult(True, shown)


def encryption(patient: DoctorFacts) -> CheckResult | None:
    """Check if content and names are encrypted on the disk."""
    if patient.account is None:
        return None
    vitals = patient.vitals
    on = bool(vitals["encrypt"]) if vitals else patient.settings.encrypt
    sealed = is_sealed(patient.paths)
    if sealed is not None and sealed != on:
        return CheckResult(
            False,
            f"encrypt = {str(on).lower()}, but what is kept here was made with the opposite",
            "set it back; to change it, 'zonedrive sync', then 'zonedrive logoff', change it, and"
            " log on",
        )
    if on:
        return CheckResult(True, "content and names are encrypted on this disk")
    return CheckResult(
        True,
        "off (encrypt = false): content and names lie readable on this disk",
        "to turn it on, log off, remove the setting, and log on again",
    )


def key(patient: DoctorFacts) -> CheckResult | None:
    """Check the data key, and report where key and token are stored."""
    if patient.account is None:
        return None
    where, found = WHERE[patient.secrets.kind], patient.key
    if patient.secrets.kind == "file" and is_foreign():
        where += f": {FOREIGN}, as 'su' leaves it"
    if isinstance(found, InsecurePermissions):
        return None  # `logon` reports this
    if isinstance(found, StoreError):
        remedy = "unlock the keyring" if isinstance(found, KeyringLocked) else LOST
        return CheckResult(False, f"{where}, and cannot be read", remedy, here=found.line())
    if found == "gone":
        return _keyless(patient, "it is gone, and what is kept here cannot be read without it")
    if found == "another":
        return _keyless(patient, "it is another one than what is kept here was made with")
    if found == "to come":
        return CheckResult(True, f"not made yet; it will be {where}")
    return CheckResult(True, where)


def _keyless(patient: DoctorFacts, detail: str) -> CheckResult:
    remedy, option = RUNNING if patient.running else LOST, patient.paths.option
    here = re.sub(r"'(zonedrive \w+)", rf"'\1{option}", remedy)
    return CheckResult(False, detail, remedy, here=here)
