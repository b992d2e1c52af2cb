"""
Files of our own at the addresses of tables and stages: on this machine, or in an object store.

Rows are read and written by Spark, logs by delta-rs; whatever else happens to a stage or to the folder of a table goes
through this module, by pyarrow's file systems. Only it knows credentials. As Spark's own S3 client does, it takes them
from the settings of the session (`spark.hadoop.fs.s3a.access.key`), else from the environment (`AWS_ACCESS_KEY_ID`),
else from the machine. No message shows them.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakehouse.errors.conditions import first_line
from lakehouse.errors.errors import StorageFailed
from lakehouse.values.locations import SERVED, Uri, local_path, uri_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

Setting = Callable[[str], str]
"""The value of a setting of Hadoop by its name, such as `fs.s3a.endpoint`; empty if it is not set."""

S3 = ("s3a", "s3")
"""The schemes of S3."""

_S3_OPTIONS = {
    "aws_access_key_id": ("access.key", "AWS_ACCESS_KEY_ID"),
    "aws_secret_access_key": ("secret.key", "AWS_SECRET_ACCESS_KEY"),
    "aws_session_token": ("session.token", "AWS_SESSION_TOKEN"),
    "aws_endpoint": ("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "aws_region": ("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""The options of delta-rs for S3, each with its setting of Hadoop below `fs.s3a.`, and its variables."""


_AMAZON = re.compile(r"(?:https://)?s3(?:[.-]((?!accelerate|external)[a-z0-9-]+))?\.amazonaws\.com/?")
"""The endpoints of Amazon S3, with the region that is a part of them."""

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
"""Options that belong together: they come from the settings of the session, or from the environment."""

_BUFFER = 1 << 16
"""Bytes that one request for a text file reads."""

_ATTEMPTS = 3
"""How often a folder is removed before what is left of it is an error."""


@dataclass(frozen=True)
class Listed:
    """A file or folder: its address, its size in bytes, and when it was modified, in seconds since 1970, if known."""

    path: str
    is_folder: bool
    size: int
    modified: float | None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.path.rpartition("/")[2]


class Files:
    """Files at paths of this machine and at URIs. `setting` is asked only for a URI."""

    def __init__(self, setting: Setting = lambda _: "") -> None:
        self._setting = setting
        self._opened: dict[tuple[str, str], tuple[FileSystem, str]] = {}
        self._regions: dict[str, str] = {}

    def exists(self, location: str) -> bool:
        """Return whether a file or a folder exists; a folder of an object store exists if a file is below it."""
        with _reaching(location):
            system, path = self._at(location)
            return bool(system.get_file_info(path).type.name != "NotFound")

    def listed(self, folder: str, *, recursive: bool = False) -> list[Listed]:
        """List what a folder holds, sorted by address; nothing if it does not exist."""
        from pyarrow.fs import FileSelector

        with _reaching(folder):
            system, path = self._at(folder)
            selected = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
        found = [
            Listed(folder + info.path.removeprefix(path), info.type.name == "Directory", info.size or 0, _seconds(info))
            for info in selected
        ]
        return sorted(found, key=lambda one: one.path)

    def modified(self, folder: str, names: Sequence[str]) -> dict[str, int]:
        """Return when files of a folder were modified, in milliseconds since 1970, by name, of those that exist."""
        from pyarrow.fs import FileSelector

        with _reaching(folder):
            system, path = self._at(folder)
            if local_path(folder) is not None:
                infos = system.get_file_info([f"{path}/{name}" for name in names])
            else:  # a request for each thousand files, and the times that Spark sees there
                infos = system.get_file_info(FileSelector(path, allow_not_found=True))
        times = {info.base_name: info.mtime_ns // 1_000_000 for info in infos if info.type.name == "File"}
        return {name: times[name] for name in names if name in times}

    def open(self, location: str) -> Any:
        """Open a file for reading at any position, for pyarrow; raise FileNotFoundError if it does not exist."""
        with _reaching(location):
            system, path = self._at(location)
            return system.open_input_file(path)

    def text(self, location: str) -> TextIOWrapper:
        """Open a text file for reading from its beginning; raise FileNotFoundError if it does not exist."""
        with _reaching(location):
            system, path = self._at(location)
            return TextIOWrapper(system.open_input_stream(path, buffer_size=_BUFFER), encoding="utf-8")

    def create(self, folder: str, name: str, content: Any) -> None:
        """
        Write a new file into a new folder, and return when it is durable.

        Raises:
            FileExistsError: The folder or the file exists.
        """
        local = local_path(folder)
        if local is not None:
            Path(local).mkdir(parents=True)
            with Path(local, name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            return
        if self.exists(folder):
            raise FileExistsError(folder)
        with _reaching(folder):
            system, path = self._at(folder)
            with system.open_output_stream(f"{path}/{name}") as file:
                file.write(content)

    def delete(self, folder: str) -> None:
        """
        Remove a folder with all that it holds, if it exists.

        Raises:
            StorageFailed: Something of it could not be removed.
        """
        with _reaching(folder):
            system, path = self._at(folder)
        reason: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                system.delete_dir(path)
            except FileNotFoundError:  # it does not exist, or another process is removing it, too
                pass
            except (OSError, ValueError) as error:
                reason = error
            if not self.exists(folder):
                return
        raise StorageFailed(
            folder,
            "the folder could not be removed: a part of it is still there",
            expected="nothing at this address",
            found=_one_line(reason) if reason else ", ".join(one.path for one in self.listed(folder)[:3]),
            hint="let this process delete there, or remove the folder by other means; then run again",
        ) from reason

    def has_logs(self, location: str) -> bool:
        """Return whether the logs of tables are read there without Spark: on this machine, and on S3."""
        uri = uri_of(location)
        return local_path(location) is not None or (uri is not None and uri.scheme in S3)

    def delta_table(self, location: str) -> "DeltaTable":
        """Open a table by delta-rs, at its newest version, with the same credentials."""
        from deltalake import DeltaTable

        local, uri = local_path(location), uri_of(location)
        if local is not None:
            return DeltaTable(Path(local))
        assert uri is not None, "`has_logs` says where delta-rs opens tables"
        options = self.s3_options(uri)
        if options.get("aws_endpoint", "").startswith("http:"):
            options["aws_allow_http"] = "true"
        return DeltaTable(f"s3://{uri.authority}/{quote(uri.path)}", storage_options=options)

    def _at(self, location: str) -> "tuple[FileSystem, str]":
        """Return the file system of a location, and the path there."""
        from pyarrow.fs import LocalFileSystem

        local, uri = local_path(location), uri_of(location)
        if local is not None:
            return LocalFileSystem(), local
        if uri is None or uri.scheme not in SERVED:
            raise StorageFailed(
                location,
                "lakejoin cannot write files of its own there",
                expected=f"a folder that this machine sees, or a URI that begins with {', '.join(SERVED)}",
                hint="name another place in `storage` of the pipeline file",
            )
        at = uri.scheme, uri.authority
        if at not in self._opened:
            self._opened[at] = self._file_system(uri)
        system, root = self._opened[at]
        return system, f"{root}/{uri.path}".rstrip("/")

    def _file_system(self, uri: Uri) -> "tuple[FileSystem, str]":
        """Return the file system of a URI, and the path of its root there."""
        from pyarrow import fs

        if uri.scheme not in S3:  # its own credentials, from the environment or the machine
            system, root = fs.FileSystem.from_uri(f"{uri.scheme}://{uri.authority}/")
            return system, root.rstrip("/")
        options = self.s3_options(uri)
        scheme, _, host = options.get("aws_endpoint", "").rpartition("://")
        system = fs.S3FileSystem(
            access_key=options.get("aws_access_key_id"),
            secret_key=options.get("aws_secret_access_key"),
            session_token=options.get("aws_session_token"),
            region=options["aws_region"],
            endpoint_override=host or None,
            scheme=scheme or "https",
            allow_delayed_open=True,  # a small file is one request
        )
        with suppress(OSError):  # whoever may read a part of a bucket may not be allowed to look at the bucket
            if system.get_file_info(uri.authority).type.name == "NotFound":
                raise StorageFailed(
                    f"{uri.scheme}://{uri.authority}",
                    "the bucket does not exist",
                    expected="the bucket in which Spark reads and writes the tables",
                    found=f"none at {options.get('aws_endpoint') or 'Amazon S3, ' + options['aws_region']}",
                    hint="check the endpoint: lakejoin reads it from the settings of the session or the environment, "
                    "not from core-site.xml",
                )
        return system, uri.authority

    def s3_options(self, uri: Uri) -> dict[str, str]:
        """Return credentials, endpoint and region of a bucket, as delta-rs names them."""
        settings = {
            option: self._setting(f"fs.s3a.bucket.{uri.authority}.{setting}") or self._setting(f"fs.s3a.{setting}")
            for option, (setting, *_) in _S3_OPTIONS.items()
        }
        apart = _CREDENTIALS if settings[_CREDENTIALS[0]] else ()
        options = {
            option: settings[option]
            or next(filter(None, map(os.environ.get, () if option in apart else variables)), "")
            for option, (_, *variables) in _S3_OPTIONS.items()
        }
        if own := _AMAZON.fullmatch(options["aws_endpoint"]):  # its clients know it by the region
            options |= {"aws_endpoint": "", "aws_region": options["aws_region"] or own[1] or ""}
        options["aws_endpoint"] = options["aws_endpoint"].rstrip("/")
        if options["aws_endpoint"] and "://" not in options["aws_endpoint"]:
            is_plain = self._setting("fs.s3a.connection.ssl.enabled").lower() == "false"
            options["aws_endpoint"] = f"{'http' if is_plain else 'https'}://{options['aws_endpoint']}"
        if not options["aws_region"]:
            options["aws_region"] = "us-east-1" if options["aws_endpoint"] else self._region(uri.authority)
        return {option: value for option, value in options.items() if value}

    def _region(self, bucket: str) -> str:
        """Return the region of a bucket of Amazon, which is asked for it once."""
        from pyarrow.fs import resolve_s3_region

        if bucket not in self._regions:
            self._regions[bucket] = str(resolve_s3_region(bucket))
        return self._regions[bucket]


def _seconds(info: Any) -> float | None:
    return None if info.mtime_ns is None else info.mtime_ns / 1_000_000_000


@contextmanager
def _reaching(location: str) -> Iterator[None]:
    """Raise StorageFailed if an object store cannot be reached; what the local disk raises stays what it is."""
    try:
        yield
    except (OSError, ValueError, ImportError, NotImplementedError) as error:  # pyarrow's own errors are among them
        if isinstance(error, FileNotFoundError | FileExistsError) or local_path(location) is not None:
            raise
        raise StorageFailed(
            location,
            "the object store cannot be reached, or refuses access",
            found=_one_line(error),
            hint="check its endpoint and credentials, in the settings of Spark or the environment, as `conf/README.md` "
            "says under Object stores; then run again",
        ) from error


def _one_line(error: Exception) -> str:
    return first_line(error)[:300]
