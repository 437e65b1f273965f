"""Deployment profile of an account, and the replacement for a profile that is not valid."""

import dataclasses

from zonedrive import config
from zonedrive.config import Settings
from zonedrive.errors import ConfigError, ProfileError
from zonedrive.logon.account import Account
from zonedrive.paths import config_file
from zonedrive.remote.profiles.load import is_installed, is_path, load_profile
from zonedrive.remote.profiles.operations import Profile


def account_profile(account: Account, settings: Settings) -> Profile:
    """Return the account's profile.

    If the administrator's profile is not valid, return the packaged profile `published`, with the
    error in its field `wrong`. The published operations are then possible, and pending changes that
    need another operation wait. Raises ProfileError if the user has selected a profile that is not
    valid.
    """
    name = settings.profile or account.profile
    try:
        return load_profile(name)
    except ProfileError as wrong:
        is_ours = is_installed(name) or name == config.organization(account.name).profile
        if not is_ours and (is_path(name) or name != account.profile):
            if not settings.profile and isinstance(wrong.__cause__, FileNotFoundError):
                raise ProfileError(
                    wrong.message,
                    remedy="if the file is elsewhere now, run"
                    f" '{account.logon_command()} --profile FILE', or mount with -o profile=FILE",
                ) from wrong
            raise
        return published(wrong)


def published(wrong: ProfileError) -> Profile:
    """Return the packaged profile `published`, to replace a profile that has the error `wrong`."""
    return dataclasses.replace(load_profile("published"), wrong=wrong)


def last_profile(account: Account) -> Profile:
    """Return the account's profile for the revocation of a token, even if the profile is invalid.

    No error is raised, because a logoff must work without a valid profile. If the profile is not
    valid, return the packaged profile `published`, with the error in its field `wrong`. If the
    user's settings cannot be read, the administrator's settings and the last logon select the
    profile.
    """
    shared = config.organization(account.name)
    try:
        settings = config.load(config_file(), account.name, system=shared)
    except ConfigError:
        settings = shared.applied({})
    try:
        return load_profile(settings.profile or account.profile)
    except ProfileError as wrong:
        return published(wrong)
