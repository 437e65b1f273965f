"""Stores for secrets: the desktop's keyring, systemd credentials, or files with mode 0600.

This module does not interpret the secrets, and sends no request to the service. Secrets in use:
`bearer` (see `bearer_auth`), `key` (see `keys`), `password` and `refused` (see `renewal_worker`).

The store of an account is the first available of these: the file that an earlier logon wrote, a
keyring that responds, a new file. The secrets are therefore always read from the store that the
logon used, even in a session that has no keyring. If the secrets are in a keyring that does not
respond now, the secrets count as unavailable, and no new secrets are created.

INVARIANT: a secret's text is in no repr, log line, exception or argument list.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from zonedrive.errors import StoreError
from zonedrive.logon.session_bus import VARIABLE, session_bus
from zonedrive.paths import AccountPaths, quoted, write_private

Kind = Literal["keyring", "credentials", "file"]
KEYRING_SERVICE: Final = "zonedrive"
KEYRING_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 5.0  # timeout of a call on the bus
PASSWORD: Final = "password"  # noqa: S105  name of a secret, which has a separate file
REFUSED: Final = "refused"  # record of a password that the service rejected
GIVEN: Final = ("bearer", PASSWORD)  # secrets that an administrator may set up
LOCKED: Final = ("KeyringLocked", "LockedException", "PromptDismissedException")
RESULT = TypeVar("RESULT")


class Secret:
    """Secret string that is readable only through an explicit call to `reveal()`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class KeyringLocked(StoreError):
    """Error for a keyring that is locked or not running; the user has to unlock or start it."""


class InsecurePermissions(StoreError):
    """Error for a secrets file that has unsafe permissions or another owner, but intact content."""

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        """Create the error; `what` describes the problem and does not include the file's name."""
        super().__init__(f"{path} {what}", remedy=remedy)
        self.what = what


class KeyringTimeout(KeyringLocked):
    """Error for a keyring that does not respond, usually because it prompts the user to unlock."""


class SecretStore(Protocol):
    """Store for the named secrets of one account. A call may block for KEYRING_SECONDS."""

    @property
    def kind(self) -> Kind:
        """Kind of the store: keyring, credentials of systemd, or file."""

    def get(self, name: str) -> Secret | None:
        """Return the secret `name`, or None if it is not stored.

        Raises StoreError (KeyringLocked if the keyring is locked).
        """

    def set(self, name: str, value: Secret) -> None:
        """Store `value` as the secret `name`, and replace an earlier value. Raises StoreError."""

    def delete(self, name: str) -> None:
        """Delete the secret `name`; do nothing if it is not stored. Raises StoreError."""


class Keyring(Protocol):
    """Interface of the `keyring` library's backends, as far as zonedrive uses it."""

    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


class FileStore(SecretStore):
    """Secret store in a JSON file with mode 0600; the password is in a separate file.

    Each change reads and replaces the whole file. The caller of `set` and `delete` must hold the
    account's lock (see `account_lock`), because a change by another process at the same time could
    otherwise be lost.

    INVARIANT: reading a secret other than the password does not load the password into memory.
    """

    kind: Kind = "file"

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str) -> Secret | None:
        value = self._read(self._home(name)).get(name)
        return None if value is None else Secret(value)

    def set(self, name: str, value: Secret) -> None:
        path = self._home(name)
        self._delete_leftovers(path)
        self._write(path, self._read(path) | {name: value.reveal()})

    def delete(self, name: str) -> None:
        path = self._home(name)
        self._delete_leftovers(path)
        kept = self._read(path)
        if kept.pop(name, None) is not None:
            self._write(path, kept)

    def destroy(self) -> None:
        """Delete the files with all secrets, even on a full disk. Raises StoreError."""
        for path in (self._home(PASSWORD), self._path):
            self._write(path, {})

    @staticmethod
    def _delete_leftovers(path: Path) -> None:
        """Delete temporary files of processes that were killed while writing the file `path`."""
        with contextlib.suppress(OSError):
            for left in path.parent.glob(f".{path.name}.*.new"):
                left.unlink(missing_ok=True)

    def _home(self, name: str) -> Path:
        return self._path.with_name("password.json") if name == PASSWORD else self._path

    def _read(self, path: Path) -> dict[str, str]:
        try:
            # No link is followed, because its target may have weaker permissions.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                about = os.fstat(descriptor)
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as wrong:
            raise StoreError(
                f"{path} cannot be read ({wrong.strerror})", remedy="run 'zonedrive doctor'"
            ) from wrong
        if stat.S_IMODE(about.st_mode) & 0o077:
            raise InsecurePermissions(
                path, "can be read by others", f"run 'chmod 600 {quoted(path)}'"
            )
        if about.st_uid != os.geteuid():
            raise InsecurePermissions(
                path, "belongs to another user", "log in with 'su -' or 'sudo -i'"
            )
        # The parser's message is left out because it could quote a secret.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(text, type=dict[str, str])
        raise StoreError(f"{path} is damaged", remedy="move it away and log on again")

    def _write(self, path: Path, values: dict[str, str]) -> None:
        try:
            if values:
                write_private(path, msgspec.json.encode(values))
            else:
                path.unlink(missing_ok=True)
        except OSError as wrong:
            raise StoreError(f"{path} cannot be written ({wrong.strerror})") from wrong


class CredentialsStore(SecretStore):
    """Secret store with the read-only credentials that systemd passes to a unit as files.

    For example, the credential `zonedrive.work.bearer` is the secret `bearer` of the account
    `work`. Secrets that systemd does not provide are in another store of the account, `beside`.
    """

    kind: Kind = "credentials"

    def __init__(self, account: str, beside: SecretStore) -> None:
        self._account, self._beside = account, beside

    def gives(self, name: str) -> bool:
        """Return True if systemd provides this secret."""
        return credential(self._account, name) is not None

    def get(self, name: str) -> Secret | None:
        path = credential(self._account, name)
        if path is None:
            return self._beside.get(name)
        try:
            return Secret(path.read_text("utf-8").strip("\r\n"))
        except (OSError, UnicodeDecodeError):
            raise StoreError(f"the credential {path} cannot be read") from None

    def set(self, name: str, value: Secret) -> None:
        if self.gives(name):
            raise StoreError(
                f"{name} is a credential of systemd and cannot be replaced by zonedrive",
                remedy="change it where the unit takes it from",
            )
        self._beside.set(name, value)

    def delete(self, name: str) -> None:
        self._beside.delete(name)  # one that systemd provides cannot be deleted


def credential(account: str, name: str) -> Path | None:
    """Return the file in which systemd passes the secret `name`, or None if there is none."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder or "", f"zonedrive.{account}.{name}")
    return path if folder and path.exists() else None


class KeyringStore(SecretStore):
    """Secret store in the desktop's keyring.

    The names in the keyring contain the random id in the file `mark`, because one keyring may serve
    several state folders: those of several computers with one home folder, or of several values of
    XDG_STATE_HOME. If the mark is empty, as earlier versions write it, the names contain no id.

    INVARIANT: while a call hangs, no other call starts, so that a locked keyring prompts once.
    """

    kind: Kind = "keyring"

    def __init__(
        self,
        keyring: Keyring | None,
        account: str,
        mark: Path,
        seconds: float = KEYRING_SECONDS,
    ) -> None:
        """Create the store, which waits up to `seconds` for each call.

        `keyring` is None if the secrets are in a keyring that is not running. The file `mark` is
        created before the first secret is stored; it shows that the secrets are in a keyring.
        """
        self._keyring, self._account, self._seconds = keyring, account, seconds
        self._mark, self._new_id = mark, os.urandom(8).hex()
        self._turn = threading.Lock()
        self._last: Future[Any] | None = None

    def get(self, name: str) -> Secret | None:
        username = self._username(name)
        found = self._within(lambda ring: ring.get_password(KEYRING_SERVICE, username))
        return None if found is None else Secret(found)

    def set(self, name: str, value: Secret) -> None:
        is_first = not self._mark.exists()
        if is_first:
            try:
                write_private(self._mark, self._new_id.encode())
            except OSError as wrong:
                raise StoreError(f"{self._mark} cannot be written ({wrong.strerror})") from wrong
        username, text = self._username(name), value.reveal()
        try:
            self._within(lambda ring: ring.set_password(KEYRING_SERVICE, username, text))
        except KeyringTimeout:
            raise  # the secret may be stored later
        except StoreError:
            if is_first:  # the keyring holds nothing
                with contextlib.suppress(OSError):
                    self._mark.unlink()
            raise

    def delete(self, name: str) -> None:
        if self.get(name) is not None:
            username = self._username(name)
            self._within(lambda ring: ring.delete_password(KEYRING_SERVICE, username))

    def _username(self, name: str) -> str:
        """Return the name that the secret `name` has in the keyring. Raises StoreError.

        The mark is read at each call, because a later logon may have created it. Without a mark, no
        secret is stored, and the name contains the id of the mark that `set` would create.
        """
        try:
            own = self._mark.read_text("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            own = self._new_id
        except OSError as wrong:
            raise StoreError(
                f"{self._mark} cannot be read ({wrong.strerror})", remedy="run 'zonedrive doctor'"
            ) from wrong
        return "/".join(part for part in (self._account, own, name) if part)

    def _within(self, function: Callable[[Keyring], RESULT]) -> RESULT:
        keyring = self._keyring
        if keyring is None:
            raise KeyringLocked(
                "the keyring that holds this account's secrets is not available",
                remedy="run this in your desktop session, with its keyring running",
            )
        with self._turn:
            if self._last is not None and not self._last.done():
                raise KeyringTimeout(
                    "the keyring does not answer", remedy="unlock it and try again"
                )
            self._last = call = _call(lambda: function(keyring))
            return _result(call, self._seconds)


def _call(function: Callable[[], RESULT]) -> Future[RESULT]:
    """Call `function` in a separate thread, and return the future of its result.

    The call may block, because the keyring may wait for the user.
    """
    call: Future[RESULT] = Future()

    def run() -> None:
        try:
            call.set_result(function())
        except Exception as wrong:  # a backend may raise anything
            call.set_exception(wrong)

    threading.Thread(target=run, name="keyring", daemon=True).start()
    return call


def _result(call: Future[RESULT], seconds: float) -> RESULT:
    """Wait up to `seconds` for a call, and return its result.

    Raises KeyringTimeout if the call has not ended in time (its thread continues), KeyringLocked if
    the keyring is locked, and StoreError for any other failure.
    """
    wait([call], seconds)
    if not call.done():
        raise KeyringTimeout("the keyring does not answer", remedy="unlock it and try again")
    if (wrong := call.exception()) is None:
        return call.result()
    kind = type(wrong).__name__
    if kind in LOCKED:
        raise KeyringLocked("the keyring is locked", remedy="unlock it and try again")
    raise StoreError(f"the keyring refuses ({kind})", remedy="unlock it and try again")


def open_store(
    paths: AccountPaths, *, find_keyring: Callable[[], Keyring | None] | None = None
) -> SecretStore:
    """Return the account's secret store, chosen as the module docstring describes. Writes nothing.

    If systemd passes a credential for the account, the result is a CredentialsStore. `find_keyring`
    returns a keyring that responds, or None; the default is `desktop_keyring`.
    """
    own: SecretStore = FileStore(paths.secrets_file)
    if not paths.secrets_file.exists():
        keyring = (find_keyring or desktop_keyring)()
        if keyring is not None or paths.keyring_mark.exists():
            own = KeyringStore(keyring, paths.account, paths.keyring_mark)
    is_given = any(credential(paths.account, name) for name in GIVEN)
    return CredentialsStore(paths.account, own) if is_given else own


def desktop_keyring(*, may_prompt: bool = True) -> Keyring | None:
    """Return the Secret Service of this session, or None if no Secret Service responds.

    If `may_prompt` is False, a call to a locked keyring raises KeyringLocked instead of prompting
    the user. Other backends of the keyring library are not used, because they protect secrets no
    better than zonedrive's own file.
    """
    bus = session_bus()
    if bus is None:
        return None
    os.environ[VARIABLE] = bus  # the library reads this variable
    with contextlib.suppress(StoreError):
        return _result(_call(lambda: _secret_service(may_prompt)), KEYRING_SECONDS)
    return None


def _secret_service(may_prompt: bool) -> Keyring:
    from keyring.backends import SecretService

    # Reading the priority calls the bus, which raises if no service answers.
    if not SecretService.Keyring.priority:
        raise RuntimeError("no Secret Service")
    return _backend(may_prompt)


@cache  # the `keyring` library keeps a reference to each class of a backend
def _backend(may_prompt: bool) -> Keyring:
    from keyring.backends import SecretService

    class OwnKeyring(SecretService.Keyring):
        """Secret Service backend for the `keyring` library.

        The backend looks for the session bus and connects to the bus at each use.
        """

        def get_preferred_collection(self) -> object:
            """Return the collection of secrets that the `keyring` library prefers.

            Raises ConnectionRefusedError if the session bus is gone or is not this user's, and
            KeyringLocked if the keyring is locked and `may_prompt` is False.
            """
            bus = session_bus()
            if bus is None:
                raise ConnectionRefusedError("the session bus has gone")
            if not may_prompt and is_keyring_locked(bus):
                raise KeyringLocked("the keyring is locked")
            return super().get_preferred_collection()  # type: ignore[no-untyped-call]

    backend: Keyring = OwnKeyring()  # type: ignore[no-untyped-call]
    return backend


def is_keyring_locked(bus: str) -> bool:
    """Return True if the keyring on the session bus `bus` is locked. Never prompts the user.

    Raises an error if there is no keyring, or if it does not answer within ANSWER_SECONDS. The
    `keyring` library is not used, because it would prompt the user to unlock or create the keyring.
    """
    from jeepney import DBusAddress, Message, Properties, new_method_call
    from jeepney.io.blocking import open_dbus_connection
    from jeepney.wrappers import unwrap_msg

    name = "org.freedesktop.secrets"
    service = DBusAddress("/org/freedesktop/secrets", name, "org.freedesktop.Secret.Service")
    with open_dbus_connection(bus) as connection:

        def ask(call: Message) -> Any:
            return unwrap_msg(connection.send_and_get_reply(call, timeout=ANSWER_SECONDS))[0]

        path = ask(new_method_call(service, "ReadAlias", "s", ("default",)))
        keyring = DBusAddress(path, name, "org.freedesktop.Secret.Collection")
        return bool(ask(Properties(keyring).get("Locked"))[1])
