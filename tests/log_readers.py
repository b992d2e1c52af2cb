"""Which of the two readers of logs and ledgers a test uses: delta-rs, or Spark alone."""

import os
from pathlib import Path

import pytest

TOO_OLD = "1.6.3"
"""A version of deltalake that lakejoin does not use."""


def without_delta_rs(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let Spark read logs and ledgers, here and in the processes that a test starts."""
    packages = folder / "old packages"
    information = packages / f"deltalake-{TOO_OLD}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: deltalake\nVersion: {TOO_OLD}\n")
    patch.syspath_prepend(packages)
    patch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
