"""What happens in an epoch that foreign keys are sensitive to."""

from collections.abc import Iterator, Set

from .histories import Row
from .stars import Reference, Star

State = dict[str, dict[Row, Row]]
"""The rows of each table by their key."""


def by_key(star: Star, state: tuple[list[Row], ...]) -> State:
    return {
        name: {star.key_of(name, row): row for row in star.rows(name, rows)}
        for name, rows in zip(star.names, state, strict=True)
    }


def fans_out(star: Star, altered: Set[Row], before: State, after: State) -> bool:
    """Tell whether one changed row of a table must have altered three result rows whose own rows are as they were."""
    changed = {
        name: {key for key in before[name].keys() | after[name] if before[name].get(key) != after[name].get(key)}
        for name in star.names
    }
    referenced = {reference.to for reference in star.references}
    own = set().union(*(keys for name, keys in changed.items() if name not in referenced))
    return 0 < 3 * sum(len(changed[name]) for name in referenced) <= len(altered - own)


def happened(reference: Reference, before: State, after: State) -> Iterator[str]:
    referring, parents = before[reference.over], before[reference.to]
    for key, row in after[reference.over].items():
        now = reference.by(row)
        was = reference.by(referring[key]) if key in referring else None
        there = now in after[reference.to]
        if None in now:
            yield "null"
        elif not there:
            yield "dangling"
        if was in parents and there and was != now:
            yield "moved"
        if was == now and (was in parents or there) and parents.get(was) != after[reference.to].get(now):
            yield "changed" if was in parents and there else "appeared" if there else "disappeared"
