"""The account itself: settings, logon, profile, and how what it keeps is protected.

Must not ask the service anything.
"""

from importlib import resources

from zonedrive.daemon.checkup.finding import Finding
from zonedrive.daemon.checkup.patient import Patient
from zonedrive.errors import ConfigError, StoreError, ZonedriveError
from zonedrive.logon import keys
from zonedrive.logon.session import load_bearer
from zonedrive.paths import config_file
from zonedrive.remote import load_profile
from zonedrive.tree.glance import is_sealed

WHERE = {
    "keyring": "in the desktop's keyring",
    "credentials": "given by systemd",
    "file": "in a file that only you can read, as no keyring is in use",
}


def settings(patient: Patient) -> Finding:
    """The settings file."""
    try:
        _ = patient.settings
    except ConfigError:
        return Finding(
            False, "config.toml cannot be used", "run 'zonedrive mount' to see which line is wrong"
        )
    if not config_file().exists():
        return Finding(True, "all as it comes: there is no config.toml")
    return Finding(True, "config.toml is sound")


def logon(patient: Patient) -> Finding:
    """Whether there was one, and what it left."""
    try:
        if patient.account is None:
            return Finding(False, "there is no logon", "run 'zonedrive logon URL'")
        bearer = load_bearer(patient.secrets)
    except (ConfigError, StoreError):
        return Finding(False, "what the logon kept is damaged, or the keyring is locked",
                       "unlock the keyring, or run 'zonedrive logon URL' again")  # fmt: skip
    if bearer is None:
        return Finding(False, "its token is gone", "run 'zonedrive logon URL' again")
    until = f", valid until {bearer.until}" if bearer.until else ""
    return Finding(True, f"a {bearer.kind} is kept{until}")


def profile(patient: Patient) -> Finding | None:
    """The deployment profile."""
    if patient.account is None:
        return None
    name = patient.settings.profile or patient.account.profile
    shipped = resources.files("zonedrive.remote").joinpath("profiles", f"{name}.toml").is_file()
    shown = name if shipped else "a file of your own"
    try:
        load_profile(name)
    except ZonedriveError:
        return Finding(
            False, f"{shown} cannot be used", "run 'zonedrive mount' to see which line is wrong"
        )
    return Finding(True, shown)


def encryption(patient: Patient) -> Finding | None:
    """Whether content and names lie readable on the disk."""
    if patient.account is None:
        return None
    vitals = patient.vitals
    on = bool(vitals["encrypt"]) if vitals else patient.settings.encrypt
    sealed = is_sealed(patient.paths.database)
    if sealed is not None and sealed != on:
        return Finding(
            False,
            f"encrypt = {str(on).lower()}, but what is kept here was made with the opposite",
            "set it back; to change it, 'zonedrive sync', then 'zonedrive logoff', change it, and"
            " log on",
        )
    if on:
        return Finding(True, "content and names are encrypted on this disk")
    return Finding(
        True,
        "off (encrypt = false): content and names lie readable on this disk",
        "to turn it on, log off, remove the setting, and log on again",
    )


def key(patient: Patient) -> Finding | None:
    """Where the data key and the token are."""
    if patient.account is None:
        return None
    where = WHERE[patient.secrets.kind]
    try:
        kept = patient.secrets.get(keys.NAME)
    except StoreError as wrong:
        return Finding(False, f"{where}, and cannot be read", wrong.remedy.split("/")[0])
    if kept is None:
        return Finding(True, f"not made yet; it will be {where}")
    return Finding(True, where)
