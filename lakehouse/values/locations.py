"""Where tables and stages lie: in a folder of this machine, or at the URI of an object store."""

import re
from typing import NamedTuple

SERVED = ("s3a", "s3", "abfss", "abfs", "gs", "hdfs")
"""The schemes at which lakejoin reaches its own files, by pyarrow; `s3a` is Hadoop's name for `s3`."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class Uri(NamedTuple):
    """The address of an object store and a path in it, without slashes around it; no part escapes any character."""

    scheme: str
    authority: str
    path: str


def local_path(location: str) -> str | None:
    """Return the local path of a Spark location, which escapes no characters; None if the location is not local."""
    match = re.fullmatch(r"(?:file:(?://)?)?(/.*)", location, re.DOTALL)
    return match[1] if match else None


def is_absolute(location: str) -> bool:
    """Return whether a location is a URI or an absolute path."""
    return location.startswith("/") or _SCHEME.match(location) is not None


def uri_of(location: str) -> Uri | None:
    """Return the parts of a URI; None for a path, and for a URI without an authority, such as `dbfs:/lake`."""
    match = re.fullmatch(_SCHEME.pattern + r"/([^/]+)(/.*)?", location, re.DOTALL)
    return Uri(match[1], match[2], (match[3] or "").strip("/")) if match else None


def is_served(location: str) -> bool:
    """Return whether lakejoin can write files of its own there: a path, or a URI with a scheme of `SERVED`."""
    if not is_absolute(location) or local_path(location) is not None:
        return True
    uri = uri_of(location)
    return uri is not None and uri.scheme in SERVED
