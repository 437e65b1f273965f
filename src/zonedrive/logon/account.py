"""Account file: the data of a logon that later commands need, such as service, user and CA file.

The account file contains no secrets. See `zonedrive.logon.secrets` for the store of the secrets.
"""

import errno
import shlex
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from zonedrive import config
from zonedrive.errors import ConfigError, NotLoggedOn
from zonedrive.paths import (
    CLOSED,
    DEFAULT_ACCOUNT,
    FAULTY,
    AccountPaths,
    not_logged_on,
    note_state_dir,
    require_own_folders,
    write_private,
)
from zonedrive.service_address import base_url

_UNREADABLE = (OSError, msgspec.MsgspecError, UnicodeDecodeError)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One account on this machine, as stored in its account file."""

    name: str
    base_url: str  # https://host[:port]
    username: str  # as typed at logon
    user_id: str = ""  # the service's name for the user, or `username` if the service gives none
    organization: str = ""
    ca_file: str | None = None  # absolute path of a PEM file, None: the system's authorities
    profile: str = "published"  # a packaged profile's name or an absolute path
    sign_on: tuple[str, ...] = ()  # option that selects the browser sign-on, if one was used
    keeps_password: bool = False  # the password is stored, for renewals of the logon

    @classmethod
    def load(cls, paths: AccountPaths) -> Self:
        """Return the account from its account file, or else from the file's copy.

        The copy is used if the account file is missing or cannot be read. If the copy cannot be
        read either, raises NotLoggedOn for a missing account file, and ConfigError for an
        unreadable one. Also raises ConfigError if the base URL in the account file is invalid.
        Raises ForeignFolder, a ConfigError, if a folder of the account belongs to another user.
        The other user's account file could send this user's passwords and files to a different
        service.
        """
        require_own_folders(paths)
        try:
            account = cls._read(paths.account_file)
        except _UNREADABLE as wrong:
            if (copy := cls.load_copy(paths)) is not None:
                return copy
            if isinstance(wrong, FileNotFoundError | NotADirectoryError):
                raise not_logged_on(paths) from wrong
            remedy = f"run zonedrive logon URL{paths.option} again"
            if isinstance(wrong, OSError):
                remedy = {errno.EIO: FAULTY, errno.EACCES: CLOSED}.get(wrong.errno or 0, remedy)
            reason = wrong.strerror if isinstance(wrong, OSError) else wrong
            raise ConfigError(
                f"{paths.account_file} cannot be read ({reason})", remedy=remedy
            ) from wrong
        return account._here(paths)

    def _here(self, paths: AccountPaths) -> Self:
        """Return the account with a validated base URL and the current path of its CA certificates.

        The stored path is outdated if the state folder was moved. The organization's policy for
        `ca_file` takes precedence over the stored path, even if the policy is newer than the logon.
        Raises ConfigError for an invalid base URL.
        """
        ca_file, shared = self.ca_file, config.organization(paths.account)
        if "ca_file" in shared.policy:
            ca_file = shared.ca_file
        elif ca_file is not None and Path(ca_file).name == paths.ca_copy.name:
            ca_file = str(paths.ca_copy)
        return msgspec.structs.replace(self, base_url=base_url(self.base_url), ca_file=ca_file)

    @classmethod
    def load_copy(cls, paths: AccountPaths) -> Self | None:
        """Return the account from the copy that `save` wrote; None if the copy cannot be read."""
        try:
            return cls._read(paths.account_copy)._here(paths)
        except (*_UNREADABLE, ConfigError):
            return None

    @classmethod
    def is_damaged(cls, paths: AccountPaths) -> bool:
        """Return True if the account file is missing or cannot be read."""
        try:
            cls._read(paths.account_file)
        except _UNREADABLE:
            return True
        return False

    @classmethod
    def _read(cls, path: Path) -> Self:
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def save(self, paths: AccountPaths) -> None:
        """Write the account file atomically, and then a copy of the file. Raises OSError.

        The account file records which user owns the pending uploads. If the file is damaged, the
        copy still has this user's name, so that the uploads are not assigned to another user.
        """
        note_state_dir()
        text = msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        paths.account_copy.unlink(missing_ok=True)  # it may name another user
        write_private(paths.account_file, text)
        write_private(paths.account_copy, text)

    def delete(self, paths: AccountPaths) -> None:
        """Delete the account file and its copy, if they exist."""
        paths.account_file.unlink(missing_ok=True)
        paths.account_copy.unlink(missing_ok=True)

    @property
    def service_name(self) -> str:
        """Display name of the service: its organization, or else its host."""
        return self.organization or urlsplit(self.base_url).hostname or self.base_url

    @property
    def title(self) -> str:
        """Display name of the mount, different for each account of a service."""
        name = self.service_name
        return name if self.name == DEFAULT_ACCOUNT else f"{name} ({self.name})"

    def logon_command(self, *, session_only: bool = False) -> str:
        """Return the shell command that repeats this logon, with --session-only if requested.

        The command has the option --save-password if the password of this logon is stored and the
        organization allows saved passwords.
        """
        words = ["zonedrive", "logon", self.base_url]
        words += self.sign_on or ("--username", self.username)
        if self.name != DEFAULT_ACCOUNT:
            words += ["--account", self.name]
        if session_only:
            words.append("--session-only")
        if self.keeps_password and config.organization(self.name).allows_saved_password:
            words.append("--save-password")
        return shlex.join(words)

    @classmethod
    def logon_again(cls, paths: AccountPaths, session_only: bool) -> str:
        """Return the result of `logon_command` for the stored account; "" if none can be loaded."""
        try:
            return cls.load(paths).logon_command(session_only=session_only)
        except (NotLoggedOn, ConfigError):
            return ""

    def known_as(self, username: str) -> str:
        """Return the service's name for this account's user; "" if `username` names another user.

        An empty `username` stands for this account's user.
        """
        ours = (self.username.casefold(), self.user_id.casefold())
        return (self.user_id or self.username) if username.casefold() in ("", *ours) else ""

    def same_owner(self, other: "Account") -> bool:
        """Return True if `other`, a later logon, belongs to the same user of the same service.

        Such accounts can use the same local data. The user is the same if the `user_id` is equal,
        ignoring case. An equal `username` is enough if one of the accounts has no `user_id`, or if
        this account's `user_id` equals its `username`, because the service may have given no name.
        """
        if self.base_url != other.base_url:
            return False
        username, user_id = self.username.casefold(), self.user_id.casefold()
        if user_id and user_id == other.user_id.casefold():
            return True
        may_differ = user_id in ("", username) or not other.user_id
        return may_differ and username == other.username.casefold()
