"""Which joins of a pipeline a command works on."""

from collections.abc import Collection

from lakehouse.errors import LakejoinError
from pipelines.spec.file.model import PipelineFile
from pipelines.spec.join.chains import chains_of
from pipelines.spec.names import nearest


class UnknownJoin(LakejoinError):
    """A command names a join that the pipeline file does not have, or none at all."""

    exit_code = 2
    code = "UNKNOWN_JOIN"


def selected(file: PipelineFile, select: Collection[str] | None) -> list[str]:
    """
    Name the joins to work on.

    Args:
        file: The pipeline file.
        select: Names of joins, all of the file if None; each stands for its parts, too. `+name` also takes the joins
            that it reads, and those that these read.

    Returns:
        Their names in the order in which they run: each after those that it reads, else in the order of the file.

    Raises:
        UnknownJoin: The selection is empty or names a join that the file does not have.
    """
    chains = chains_of(file)
    if select is None:
        return list(chains.order)
    named = [name.removeprefix("+") for name in select]
    unknown = [name for name in named if name not in file.joins]
    if unknown or not named:
        raise UnknownJoin(
            file.pipeline,
            f"no join is called {', '.join(unknown)}" if unknown else "the selection is empty",
            expected=f"one of {', '.join(file.joins)}",
            hint=" ".join(filter(None, (nearest(name, file.joins) for name in unknown))),
        )
    named += [part for name in named for part in file.parts(name)]
    wanted = {*named, *(other for name in select if name.startswith("+") for other in chains.behind(name[1:]))}
    return [name for name in chains.order if name in wanted]
