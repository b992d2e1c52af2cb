"""The command `test`: the files of cases, and a Spark of this machine for their lakes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pipelines.cli.options import FileOptions, WrongUse

if TYPE_CHECKING:
    from pipelines.report import CasesReport


def run_files(chosen: FileOptions, files: Sequence[Path], select: list[str] | None) -> "CasesReport":
    """Run the cases of files, by default of those beside the pipeline file, for the selected joins."""
    from pipelines.language import find, selected
    from pipelines.language.cases import case_files, read_cases

    path = chosen.path or find(Path.cwd())
    paths = files or case_files(path)
    if not paths:
        hint = f"write them into {path.stem}.test.yml beside it; `lakejoin init` writes an example"
        raise WrongUse("test", f"{path} has no cases", hint=hint)
    from pipelines.commands.cases import QUICK, columns_of_source, run_cases

    workspace = replace(chosen, conf={**QUICK, **chosen.conf}).open_without_spark(is_small=True)
    chosen.pipeline = workspace.file.pipeline
    cases = read_cases(paths, workspace.file, partial(columns_of_source, workspace))
    names = selected(workspace.file, select)
    wanted = [case for case in cases if case.case.join in names]
    if not wanted:
        raise WrongUse("test", f"no case is about {', '.join(names)}", expected="a case of a selected join")
    if not str(workspace.spark.conf.get("spark.master", "local")).startswith("local"):
        hint = "run it where lakejoin starts Spark itself, without spark.master and spark.remote"
        raise WrongUse("test", "cases run on a Spark of this machine, which sees their folder", hint=hint)
    from pipelines.cli.progress import spinner

    with TemporaryDirectory(prefix="lakejoin-test-") as scratch, spinner("testing", workspace.spark):
        return run_cases(workspace, wanted, Path(scratch))
