"""
What keys a join of tables, inferred from ON and the keys of its sources, never declared.

    ON f.flight_id = s.flight_id    both are the whole key: flights and status key the result together
    ON f.tailnum = p.tailnum        only the right is: a foreign key, many rows of flights meet one of planes
    ON f.origin = w.station         neither is: a row of either side may meet many, and nothing keys the result

A stream comes first and needs no key: its rows look up one row of each table that follows. Two streams meet within
bounds of time, and need no key either.

Each JOIN is looked at in turn, with the inputs before it as one table that has the key found so far.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from pipelines.spec.names import nearest
from pipelines.spec.sql.dialect import as_written
from pipelines.spec.sql.objection import Objection
from pipelines.spec.statement.columns import ambiguous, coalesced, conjuncts, in_key, is_null_of_nulls, place_of
from pipelines.spec.statement.definition import How
from pipelines.spec.statement.inputs import Inputs
from pipelines.spec.statement.statement import Inferred, Keys, Link, Side, Step
from pipelines.spec.statement.windows import windowed

ALIKE = 0.8
"""How alike a column and a key column must be to be called a slip."""


def infer(
    inputs: Inputs, conditions: Sequence[exp.Expr], where: exp.Expr | None = None
) -> tuple[Inferred | None, list[Objection]]:
    """
    Find what keys the result of a statement.

    Args:
        inputs: The inputs.
        conditions: The whole condition of each JOIN.
        where: The condition of WHERE.

    Returns:
        What was found if nothing speaks against it, and what does. The first JOIN that fails ends the search.
    """
    misplaced = _misplaced(inputs)
    if misplaced is not None:
        return None, [misplaced]
    if inputs.sides[1].kind == "stream":
        return windowed(inputs, conditions[0], where)
    found = Inferred(inputs.sides[:1], (), Keys((0,), frozenset({frozenset({0})}), ()))
    absent: set[int] = set()
    for side, how, on in zip(inputs.sides[1:], inputs.hows, conditions, strict=True):
        doubts = list(ambiguous(on, "ON", (*found.sides, side)))
        if doubts:
            return None, doubts
        clause = _Clause((*found.sides, side), found.keys, how, on, frozenset(absent))
        after = clause.joined()
        if isinstance(after, Objection):
            return None, [after]
        sides, keys, further = after
        found = Inferred(sides, (*found.steps, Step(how, clause.on, further)), keys)
        absent |= set(range(clause.new)) if how in ("right", "full") else set()
        absent |= {clause.new} if how in ("left", "full") else set()
    return found, []


Joined = tuple[tuple[Side, ...], Keys, tuple[exp.Expr, ...]]
"""The inputs once a further one is joined, what keys them, and the conditions that take no part in that."""


class _Clause:
    """One JOIN: the inputs up to the one that it adds, what keys those before, and which of them a row may lack."""

    def __init__(self, sides: tuple[Side, ...], keys: Keys, how: How, on: exp.Expr, absent: frozenset[int]) -> None:
        self.sides = sides
        self.absent = absent
        self.keys = keys
        self.how = how
        self.new = len(sides) - 1
        self.on = self._plain(on)
        self.equalities = [conjunct for conjunct in conjuncts(self.on) if isinstance(conjunct, exp.EQ)]

    def _plain(self, on: exp.Expr) -> exp.Expr:
        """Write `<=>` as `=` where one end is never null: the new table's key, or that of the result so far."""
        parts = list(conjuncts(on))
        equal = [self._is_never_null(part) if isinstance(part, exp.NullSafeEQ) else False for part in parts]
        if not any(equal):
            return on
        copies = ((part.copy(), is_equal) for part, is_equal in zip(parts, equal, strict=True))
        written = (exp.EQ(**part.args) if is_equal else part for part, is_equal in copies)
        return exp.and_(*written, copy=False)

    def _is_never_null(self, equality: exp.Expr) -> bool:
        """Tell whether an end of an equality is never null: rows without a key take no part in a join of tables."""
        ends = (equality.this.unnest(), equality.expression.unnest())
        is_stream = self.sides[0].kind == "stream"
        return any(self._key_column(end) or (not is_stream and self._part_of_key(end)) for end in ends)

    def joined(self) -> Joined | Objection:
        """Join the new input, or say why that cannot be."""
        side = self.sides[self.new]
        answers = {column: self._expression_of(column) for column in side.key}
        if self.sides[0].kind == "stream":
            return self._as_looked_up(answers)
        if all(answer is not None for answer in answers.values()):
            pairs = self._paired()
            if pairs is not None:
                return self._as_member(pairs)
            if self.how == "right" and (reference := self._reference_to_the_key()) is not None:
                return self._as_root(reference)
            written = tuple(answer for answer in answers.values() if answer is not None)
            return self._as_referenced(Link(self.new, written))
        reference = self._reference_to_the_key()
        if reference is not None:
            return self._as_root(reference)
        return self._keyless()

    def _expression_of(self, column: str) -> exp.Expr | None:
        """Find what a key column of the new input equals: an expression over inputs before it, of one if it can be."""
        found = [
            other
            for one, other in self._ends()
            if self._is_column(one, self.new, column) and self.new not in self._over(other)
        ]
        of_one = (other for other in found if len(self._over(other)) == 1 and None not in self._over(other))
        return next(of_one, found[0] if found else None)

    def _paired(self) -> tuple[str, ...] | None:
        """Find the new input's key columns in the order of the result's key, if each equals one part of it."""
        pairs: dict[str, str] = {}
        first = self.sides[self.keys.members[0]]
        for one, other in self._ends():
            column = next((name for name in self.sides[self.new].key if self._is_column(one, self.new, name)), None)
            part = self._part_of_key(other)
            if column is not None and part is not None and part not in pairs and column not in pairs.values():
                pairs[part] = column
        if len(pairs) < len(first.key) or len(pairs) < len(self.sides[self.new].key):
            return None
        return tuple(pairs[part] for part in first.key)

    def _as_member(self, pairs: tuple[str, ...]) -> Joined | Objection:
        side = replace(self.sides[self.new], key=pairs)
        same = [place for place in self.keys.members if self.sides[place].source == side.source]
        if same:
            problem = f"ON: {side.source} is joined with itself on its key: a row would always meet itself"
            return Objection(problem, about=self.on)
        first = self.sides[self.keys.members[0]]
        wanted = set(zip(first.key, pairs, strict=True))
        further = self._besides(lambda one, other: (self._part_of_key(other), self._key_column(one)) in wanted)
        if self.how == "full" and further:
            return Objection(
                "ON: a FULL JOIN with a condition besides the key: a pair of rows that does not meet it would give two "
                "result rows for one key",
                "move the condition to WHERE or into the SELECT list",
                self.on,
            )
        alone = frozenset({self.new})
        complete = {
            "inner": self.keys.complete | {alone},
            "left": self.keys.complete,
            "right": frozenset({alone}),
            "full": frozenset(held | alone for held in self.keys.complete),
        }[self.how]
        keys = Keys((*self.keys.members, self.new), complete, self.keys.links)
        return (*self.sides[: self.new], side), keys, further

    def _as_referenced(self, link: Link) -> Joined | Objection:
        if self.how in ("right", "full"):
            return self._preserved(self.new, self.keys.members[0], link.expressions[0])
        over = set().union(*(self._over(expression) for expression in link.expressions))
        if (over & self.absent or None in over) and not any(map(is_null_of_nulls, link.expressions)):
            name = self.sides[self.new].source
            return Objection(
                f"ON: `{as_written(link.expressions[0])}` may refer to a row of {name} for a row that lacks the input "
                "it is taken from",
                "refer by a column, or by an expression that is null where its columns are",
                link.expressions[0],
            )
        written = dict(zip(self.sides[self.new].key, link.expressions, strict=True))
        further = self._besides(lambda one, other: other == written.get(self._key_column(one) or ""))
        return self.sides, replace(self.keys, links=(*self.keys.links, link)), further

    def _as_looked_up(self, answers: dict[str, exp.Expr | None]) -> Joined | Objection:
        """Look the new input up by its whole key, from a row of the stream or what that found before."""
        side, stream = self.sides[self.new], self.sides[0].source
        if self.how in ("right", "full"):
            return Objection(
                f"{self.how.upper()} JOIN keeps rows of {side.source} that no row of {stream} meets, now or later: a "
                "stream that looks up a table emits with its own rows alone",
                "JOIN, or LEFT JOIN to keep each row of the stream",
                self.on,
            )
        written = tuple(answer for answer in answers.values() if answer is not None)
        if len(written) == len(side.key):
            return self._as_referenced(Link(self.new, written))
        lacking = [column for column, answer in answers.items() if answer is None]
        missing = ", ".join(lacking)
        needed = " AND ".join(f"{self.sides[0].alias}.<column> = {side.alias}.{column}" for column in lacking)
        return Objection(
            f"ON: {side.source} is looked up by its whole key, ({', '.join(side.key)}), and nothing equals {missing}",
            f"add to ON: {needed}",
            self.on,
        )

    def _as_root(self, reference: dict[str, exp.Expr]) -> Joined | Objection:
        """Make the new input the one that keys the result: the inputs so far are what it refers to."""
        if self.how in ("left", "full"):
            return self._preserved(self.keys.members[0], self.new, next(iter(reference.values())))
        first = self.sides[self.keys.members[0]]
        links = []
        for place in self.keys.members:
            parts = dict(zip(self.sides[place].key, (reference[part] for part in first.key), strict=True))
            links.append(Link(place, tuple(parts[column] for column in self.sides[place].key)))
        keys = Keys((self.new,), frozenset({frozenset({self.new})}), (*self.keys.links, *links))
        further = self._besides(lambda one, other: other == reference.get(self._part_of_key(one) or ""))
        return self.sides, keys, further

    def _reference_to_the_key(self) -> dict[str, exp.Expr] | None:
        """Find for each part of the key so far the expression over the new input that equals it."""
        found: dict[str, exp.Expr] = {}
        for one, other in self._ends():
            part = self._part_of_key(one)
            over = self._over(other)
            if part is not None and over and over <= {self.new, None}:
                found.setdefault(part, other)
        return found if len(found) == len(self.sides[self.keys.members[0]].key) else None

    def _preserved(self, referenced: int, referring: int, reference: exp.Expr) -> Objection:
        kept = self.sides[referenced].source
        return Objection(
            f"ON: {self.how.upper()} JOIN keeps rows of {kept} that nothing refers to, and many rows may refer to one: "
            "nothing would key the result",
            _slip(reference, self.sides[referring])
            or f"an inner join, or one that keeps the rows with the reference and not those of {kept}",
            reference,
        )

    def _keyless(self) -> Objection:
        first, side = self.sides[self.keys.members[0]], self.sides[self.new]
        candidates = (self.keys.members[0], self.new)
        slips = [
            _slip(one, self.sides[place]) for one, _ in self._ends() for place in candidates if place in self._over(one)
        ]
        return Objection(
            f"ON: nothing keys the result: the whole key of {side.source}, ({', '.join(side.key)}), must equal columns "
            f"of the inputs before it, or the whole key of {first.source}, ({', '.join(first.key)}), columns of "
            f"{side.source}",
            next(filter(None, slips), "") or self._other_key(),
            self.on,
        )

    def _other_key(self) -> str:
        """Return what helps where rows of both sides may meet many: a key that ON compares, if it is one."""
        pairs = [
            (first, second)
            for first, second in self._ends()
            if self._place(first) == self.new and self._over(second) == {self.keys.members[0]}
        ]
        several = "rows that meet many to many are not yet supported"
        if not pairs:
            return f"compare a whole key by equalities; {several}"
        columns, source = ", ".join(first.name for first, _ in pairs), self.sides[self.new].source
        return f"where no two rows of {source} are equal in {columns}, declare that as its `key:`; {several}"

    def _besides(self, is_of_key: Callable[[exp.Expr, exp.Expr], bool]) -> tuple[exp.Expr, ...]:
        """Give the conditions of ON that are not an equality of the key, whichever way round it is written."""

        def of_key(node: exp.Expr) -> bool:
            if not isinstance(node, exp.EQ):
                return False
            one, other = node.this.unnest(), node.expression.unnest()
            return is_of_key(one, other) or is_of_key(other, one)

        return tuple(conjunct for conjunct in conjuncts(self.on) if not of_key(conjunct))

    def _ends(self) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """Give the two ends of each equality, both ways round."""
        for equality in self.equalities:
            one, other = equality.this.unnest(), equality.expression.unnest()
            yield one, other
            yield other, one

    def _part_of_key(self, node: exp.Expr) -> str | None:
        """Name the part of the key so far, as its first input calls it, that an expression always holds."""
        columns = coalesced(node)
        places = {self._place(column) for column in columns}
        first = self.sides[self.keys.members[0]]
        if not columns or not places <= set(self.keys.members):
            return None
        if not any(held <= places for held in self.keys.complete):
            return None
        for position, part in enumerate(first.key):
            if all(self._is_column(column, self._place(column), self._key_at(column, position)) for column in columns):
                return part
        return None

    def _key_at(self, column: exp.Expr, position: int) -> str:
        place = self._place(column)
        assert place is not None
        return self.sides[place].key[position]

    def _key_column(self, node: exp.Expr) -> str | None:
        return next((name for name in self.sides[self.new].key if self._is_column(node, self.new, name)), None)

    def _is_column(self, node: exp.Expr, place: int | None, name: str) -> bool:
        if not isinstance(node, exp.Column) or len(node.parts) > 2 or place is None:
            return False
        return self._place(node) == place and node.name.lower() == name.lower()

    def _over(self, node: exp.Expr) -> set[int | None]:
        """Give the places of the inputs whose columns an expression uses; None stands for one that is not known."""
        return {self._place(column) for column in node.find_all(exp.Column)}

    def _place(self, node: exp.Expr) -> int | None:
        return place_of(node, self.sides)


def _slip(node: exp.Expr, side: Side) -> str:
    """Name the key column that was meant, where a column is all but one."""
    if not isinstance(node, exp.Column) or in_key(node.name, side):
        return ""
    return nearest(node.name, side.key, at_least=ALIKE)


def _misplaced(inputs: Inputs) -> Objection | None:
    """Object to a stream that does not come first, and to a global table that no stream looks up."""
    first, *others = inputs.sides
    for side in others:
        if side.kind == "stream" and first.kind == "stream":
            if len(inputs.sides) > 2:
                problem = "FROM: a join of streams has two inputs; only a file that is loaded is split into such joins"
                return Objection(problem, about="FROM")
            continue
        if side.kind == "stream":
            hint = f"write it first: FROM {side.source} JOIN {first.source} ON ..."
            return Objection(f"FROM: `{side.source}` is a stream, which cannot be looked up", hint, "FROM")
    for side in inputs.sides:
        if side.kind == "global_table" and first.kind != "stream":
            problem = (
                f"FROM: `{side.source}` is a global table: its changes cause nothing, so only a stream can meet it"
            )
            return Objection(problem, "give the source `kind: table`", "FROM")
    return None
