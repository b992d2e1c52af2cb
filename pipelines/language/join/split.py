"""
Split a statement of several streams, from the left, into joins of the supported kinds.

    FROM orders o JOIN deliveries d ON ... LEFT JOIN shops s ON ... JOIN returns r ON ...

    shop__1     FROM orders o JOIN deliveries d ON ...      two streams
    shop__2     FROM shop__1 LEFT JOIN shops s ON ...       their result looks up the tables that follow
    shop        FROM shop__2 JOIN returns r ON ...          and is joined with the next stream

A part selects the columns of its inputs that later parts use, for example `o.ordered_at AS o__ordered_at`. Later parts
refer to this column as `shop__1.o__ordered_at`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

from sqlglot import exp

from pipelines.language.sql.dialect import as_written, laid_out
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.outputs import is_star
from pipelines.language.statement.statement import Inputs, Side

Column = tuple[int, str]
"""The index of an input, and one of its columns in lower case."""

Node = TypeVar("Node", bound=exp.Expr)


class Piece(NamedTuple):
    """The join that a part of a statement becomes, and its statement; names keep their positions in the whole."""

    name: str
    select: exp.Select

    @property
    def sql(self) -> str:
        """The text of its statement."""
        return laid_out(self.select)


class _Use(NamedTuple):
    """A column in a clause, the part that the clause belongs to, and the index of the last input that it may use."""

    clause: str
    column: exp.Column
    part: int
    last: int


def is_chain(inputs: Inputs) -> bool:
    """Return whether to split a statement: it has three or more inputs, the first and another one are streams."""
    first, *others = inputs.sides
    return first.kind == "stream" and len(others) > 1 and any(side.kind == "stream" for side in others)


class Chain:
    """A statement to split into parts."""

    def __init__(self, name: str, select: exp.Select, sides: Sequence[Side]) -> None:
        self._select, self._sides = select, tuple(sides)
        self._joins: list[exp.Join] = select.args["joins"]
        self._indexes = {side.alias.lower(): index for index, side in enumerate(sides)}
        self._lasts = _lasts(sides)
        self.names = (*(f"{name}__{number}" for number in range(1, len(self._lasts))), name)
        """The names of the parts; the last part has the name of the join."""

    def objections(self) -> Iterator[Objection]:
        """
        Yield the objections to splitting the statement.

        They concern stars, because parts store only named columns; aliases that are names of parts; columns without the
        alias of an input; columns of inputs that are joined later; and tables that no column looks up.
        """
        for item in filter(is_star, self._select.expressions):
            alias = item.table.lower() if isinstance(item, exp.Column) else ""
            sides = [side for side in self._sides if side.alias.lower() == alias] or self._sides
            listed = ", ".join(f"{side.alias}.{(*side.key, '...')[0]}" for side in sides)
            problem = f"SELECT: `{as_written(item)}` in a statement of several streams, which stores only named columns"
            yield Objection(problem, f"list the columns that you need: {listed}, and so on", item)
        for side in self._sides:
            if side.alias.lower() in {name.lower() for name in self.names[:-1]}:
                problem = f"FROM: `{side.alias}` is the name of a part of this statement"
                yield Objection(problem, "give the input another alias", "FROM")
        for use in self._uses:
            found, written = self._found(use.column), as_written(use.column)
            if found is None:
                problem = f"{use.clause}: `{written}` does not name its input"
                choices = [f"`{side.alias}.{written}`" for side in self._sides]
                yield Objection(problem, f"write {', '.join(choices[:-1])} or {choices[-1]}", use.column)
            elif found[0] > use.last:
                alias = self._sides[found[0]].alias
                problem = f"{use.clause}: `{written}` is a column of `{alias}`, which is joined later"
                yield Objection(problem, f"move the condition to the ON of `{alias}`", use.column)
        for part, after in enumerate(last + 1 for last in self._lasts[:-1]):
            if self._sides[after].kind != "stream" and not self._kept(part):
                problem = f"ON: `{self._sides[after].alias}` is not looked up by any column of the inputs before it"
                hint = "its whole key must equal columns of those inputs"
                yield Objection(problem, hint, self._joins[after - 1].args["on"])

    def pieces(self) -> list[Piece]:
        """Split the statement, which must not have any objections."""
        return [Piece(name, self._statement(part)) for part, name in enumerate(self.names)]

    def in_own_words(self, objection: Objection) -> Objection:
        """Rewrite an objection to a part in terms of the whole statement."""
        return objection._replace(
            problem=self._in_own_words(objection.problem), hint=self._in_own_words(objection.hint)
        )

    @cached_property
    def _uses(self) -> list[_Use]:
        end = len(self._lasts) - 1, self._lasts[-1]
        clauses = [("SELECT", item, *end) for item in self._select.expressions if not is_star(item)]
        for index, join in enumerate(self._joins, 1):
            part = next(part for part, last in enumerate(self._lasts) if index <= last)
            clauses.append(("ON", join.args["on"], part, index))
        clauses += [("WHERE", where, *end) for where in [self._select.args.get("where")] if where]
        return [
            _Use(clause, column, part, last)
            for clause, node, part, last in clauses
            for column in node.find_all(exp.Column, bfs=False)
        ]

    @cached_property
    def _first_uses(self) -> dict[Column, exp.Column]:
        found = [(self._found(use.column), use.column) for use in reversed(self._uses)]
        return {column: written for column, written in found if column is not None}

    @cached_property
    def _kept_as(self) -> dict[Column, str]:
        names: dict[Column, str] = {}
        for (index, column), written in reversed(self._first_uses.items()):
            name = f"{self._sides[index].alias}__{written.parts[1].name}"
            while name.lower() in {taken.lower() for taken in names.values()}:
                name += "_"
            names[index, column] = name
        return names

    def _found(self, column: exp.Column) -> Column | None:
        """Return the input and name of a column by its alias; None if it has no alias of an input."""
        first, *others = (part.name.lower() for part in column.parts)
        is_named = all(isinstance(part, exp.Identifier) for part in column.parts)
        return (self._indexes[first], others[0]) if is_named and others and first in self._indexes else None

    def _kept(self, part: int) -> list[Column]:
        """Return the columns that a part selects: columns of the inputs so far that a later part uses."""
        found = (self._found(use.column) for use in self._uses if use.part > part)
        return [column for column in dict.fromkeys(found) if column is not None and column[0] <= self._lasts[part]]

    def _statement(self, part: int) -> exp.Select:
        first = self._lasts[part - 1] if part else 0
        is_last = part == len(self._lasts) - 1
        where = self._select.args.get("where") if is_last else None
        before = exp.From(this=exp.table_(self.names[part - 1])) if part else self._select.args["from_"].copy()
        return exp.Select(
            expressions=[self._output(item, part) for item in self._select.expressions]
            if is_last
            else [self._item(column, part) for column in self._kept(part)],
            from_=before,
            joins=[self._rewritten(join, part) for join in self._joins[first : self._lasts[part]]],
            where=where and self._rewritten(where, part),
        )

    def _item(self, column: Column, part: int) -> exp.Expr:
        """Build the item for a column that a part selects; a column of the previous part keeps its name."""
        alias, name = self._first_uses[column].parts[:2]
        plain = self._rewritten(exp.Column(this=name.copy(), table=alias.copy()), part)
        return plain if self._is_before(column, part) else exp.alias_(plain, self._kept_as[column])

    def _output(self, item: exp.Expr, part: int) -> exp.Expr:
        """Build an item of the SELECT list of the last part; a plain column keeps its name."""
        found = self._found(item) if isinstance(item, exp.Column) else None
        rewritten = self._rewritten(item, part)
        return exp.alias_(rewritten, item.this.copy()) if found and self._is_before(found, part) else rewritten

    def _rewritten(self, node: Node, part: int) -> Node:
        """Replace the columns that the previous part selects by their names in its result."""
        copy = node.copy()
        for column in list(copy.find_all(exp.Column)):
            found = self._found(column)
            if found is not None and self._is_before(found, part):
                for written, name in zip(column.parts, (self.names[part - 1], self._kept_as[found]), strict=False):
                    identifier = exp.to_identifier(name)
                    identifier.meta.update(written.meta)
                    written.replace(identifier)
        return copy

    def _is_before(self, column: Column, part: int) -> bool:
        return part > 0 and column[0] <= self._lasts[part - 1]

    def _in_own_words(self, text: str) -> str:
        aliases = "|".join(re.escape(side.alias) for side in sorted(self._sides, key=lambda side: -len(side.alias)))
        for name, last in reversed([*zip(self.names, self._lasts, strict=True)][:-1]):
            *others, final = (side.alias for side in self._sides[: last + 1])
            bare, written = re.escape(name), re.escape(as_written(exp.to_identifier(name)))
            text = re.sub(rf"(?<!\w){written}\.(`?)({aliases})__", r"\2.\1", text)
            text = re.sub(rf"(?<!\w){bare}(?=\.)", self._sides[0].alias, text)
            text = re.sub(rf"`{bare}`|(?<!\w){bare}(?!\w)", f"the join of {', '.join(others)} and {final}", text)
        return text


def _lasts(sides: Sequence[Side]) -> list[int]:
    """Return the index of the last input of each part: a further stream, or the last of consecutive tables."""
    ends = [index for index, (one, next_one) in enumerate(pairwise(sides)) if "stream" in (one.kind, next_one.kind)]
    return [*(index for index in ends if index), len(sides) - 1]
