"""The folder of a demo."""

import shutil
from pathlib import Path

from lakehouse.errors.errors import LakejoinError
from pipelines.commands.init import example

MARKER = ".lakejoin-demo"
"""The file that marks a folder as created by a demo, so that the next demo may delete it."""


def prepare_folder(folder: Path, pipeline_file: str) -> Path:
    """
    Create the folder of a demo with a pipeline file of `conf`, whose new path it returns; delete what a demo left
    there.

    Raises:
        LakejoinError: The folder exists and no demo created it. It is left unchanged.
    """
    if folder.is_symlink() or folder.exists():
        if folder.is_symlink() or not (folder / MARKER).is_file():
            raise LakejoinError(
                "demo",
                f"{folder} exists already, and no demo created it",
                hint="move it away, or choose another folder with `--folder`",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("Created by `lakejoin demo`, which deletes this folder when it runs again.\n")
    file = folder / pipeline_file
    file.write_text(example(pipeline_file), encoding="utf-8")
    return file
