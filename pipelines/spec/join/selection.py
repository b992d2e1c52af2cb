"""Select the joins of a pipeline that a command works on."""

from collections.abc import Collection

from lakehouse.errors.errors import LakejoinError
from pipelines.spec.file.model import PipelineFile
from pipelines.spec.join.chains import chains_of
from pipelines.spec.names import nearest


class UnknownJoin(LakejoinError):
    """A command names a join that the pipeline file does not have, or no join."""

    exit_code = 2
    code = "UNKNOWN_JOIN"


def selected(file: PipelineFile, select: Collection[str] | None) -> list[str]:
    """
    Return the names of the joins to work on.

    Args:
        file: The pipeline file.
        select: Names of joins; None for all joins of the file. Each name includes the parts of the join. `+name` also
            includes the joins that it reads, directly or through other joins.

    Returns:
        The names in the order in which the joins run: each after the joins that it reads, else in the order of the
        file.

    Raises:
        UnknownJoin: If the selection is empty or names a join that the file does not have.
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
