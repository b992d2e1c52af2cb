"""
Infer the key of a join of tables from ON and the keys of its sources. The key is never declared.

    ON f.flight_id = s.flight_id    both sides are the whole key: flights and status key the result together
    ON f.tailnum = p.tailnum        only the right side is a key: a foreign key, many flights match one plane
    ON f.origin = w.station         neither side is a key: each row may match many, and a pair of rows has both keys

A stream must be the first input and needs no key: each of its rows looks up one row of every table. Two streams are
joined within time bounds, and need no key either.

Each JOIN is inferred in turn; the inputs before it count as one table with the key found so far.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from pipelines.language.sql.dialect import as_item, as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import EQUAL, ambiguous, coalesced, conjuncts, index_of, is_null_without
from pipelines.language.statement.definition import How
from pipelines.language.statement.pairing import paired
from pipelines.language.statement.statement import (
    Inferred,
    Inputs,
    JoinClause,
    Keys,
    ReferenceClause,
    Side,
    absent_after,
)
from pipelines.language.statement.windows import windowed


def infer(
    inputs: Inputs, conditions: Sequence[exp.Expr], where: exp.Expr | None
) -> tuple[Inferred | None, list[Objection]]:
    """Infer the key of the result from the whole condition of each JOIN, up to the first JOIN with objections."""
    objection = _misplaced(inputs)
    if objection is not None:
        return None, [objection]
    if len(inputs.sides) > 1 and inputs.sides[1].kind == "stream":
        return windowed(inputs, conditions[0], where)
    found = Inferred(inputs.sides[:1], (), Keys((0,), frozenset({frozenset({0})}), ()))
    for side, how, on, written_in in zip(inputs.sides[1:], inputs.hows, conditions, inputs.clauses, strict=True):
        doubts = list(ambiguous(on, written_in, (*found.sides, side)))
        if doubts:
            return None, doubts
        absent = absent_after(step.how for step in found.steps)
        clause = _Clause((*found.sides, side), found.keys, how, on, absent)
        after = clause.joined()
        if isinstance(after, Objection):
            return None, [after.moved_to(written_in)]
        sides, keys, further = after
        found = Inferred(sides, (*found.steps, JoinClause(how, clause.on, further, written_in)), keys)
    return found, []


Joined = tuple[tuple[Side, ...], Keys, tuple[exp.Expr, ...]]
"""The inputs after a JOIN, the key of their result, and the conditions that are not part of the key."""


class _Clause:
    """One JOIN: the inputs including the new one, the key of those before it, and the inputs that may be absent."""

    def __init__(self, sides: tuple[Side, ...], keys: Keys, how: How, on: exp.Expr, absent: frozenset[int]) -> None:
        self.sides = sides
        self.absent = absent
        self.keys = keys
        self.how = how
        self.new = len(sides) - 1
        self.on = self._plain(on)
        self.equalities = [conjunct for conjunct in conjuncts(self.on) if isinstance(conjunct, EQUAL)]

    def _plain(self, on: exp.Expr) -> exp.Expr:
        """Replace `<=>` by `=` where an operand is never null: the key of the new table, or of the result so far."""
        parts = list(conjuncts(on))
        equal = [self._is_never_null(part) if isinstance(part, exp.NullSafeEQ) else False for part in parts]
        if not any(equal):
            return on
        copies = ((part.copy(), is_equal) for part, is_equal in zip(parts, equal, strict=True))
        written = (exp.EQ(**part.args) if is_equal else part for part, is_equal in copies)
        return exp.and_(*written, copy=False)

    def _is_never_null(self, equality: exp.Expr) -> bool:
        """Return whether an operand is never null: rows with a null key take no part, unless a side may be absent."""
        ends = (equality.this.unnest(), equality.expression.unnest())
        if not self.sides[self.new].may_be_absent and any(map(self._key_column, ends)):
            return True
        has_key = self.sides[0].kind != "stream" and not self._has_absent_keys
        return has_key and any(map(self._part_of_key, ends))

    @property
    def _has_absent_keys(self) -> bool:
        return any(self.sides[index].may_be_absent for index in self.keys.members)

    def joined(self) -> Joined | Objection:
        side = self.sides[self.new]
        answers = {column: self._expression_of(column) for column in side.key}
        if self.sides[0].kind == "stream":
            return self._as_looked_up(answers)
        if self.keys.is_many_to_many and self.how in ("right", "full"):
            how, name = self.how.upper(), as_item(exp.Identifier(this=side.source, quoted=False))
            return Objection(
                f"ON: {how} JOIN after a join that matches many rows would keep unmatched rows of {side.source}",
                f"write two joins of the file: the first without {side.source}, and the second one reads its result: "
                f"FROM <first> {how} JOIN {name} ON ...",
                self.on,
            )
        if all(answer is not None for answer in answers.values()):
            pairs = self._paired()
            if pairs is not None:
                return self._as_member(pairs)
            if self.how == "right" and (reference := self._reference_to_the_key()) is not None:
                return self._as_root(reference)
            return self._as_referenced(self._link(answers))
        reference = self._reference_to_the_key()
        return self._as_pair() if reference is None else self._as_root(reference)

    def _expression_of(self, column: str) -> exp.Expr | None:
        """Find the expression over previous inputs that equals a key column; prefer an expression over one input."""
        found = [
            other
            for one, other in self._ends()
            if self._is_column(one, self.new, column) and self.new not in self._over(other)
        ]
        of_one = (other for other in found if len(self._over(other)) == 1 and None not in self._over(other))
        return next(of_one, found[0] if found else None)

    def _link(self, answers: dict[str, exp.Expr | None]) -> ReferenceClause:
        written = {column: answer for column, answer in answers.items() if answer is not None}
        plain = [(self._key_column(one), other) for one, other in self._ends(exp.EQ)]
        safe = (index for index, answer in enumerate(written.items()) if answer not in plain)
        return ReferenceClause(self.new, tuple(written.values()), tuple(safe))

    def _paired(self) -> tuple[str, ...] | None:
        """Return the new key columns in the order of the result's key, if each equals one part of it; else None."""
        pairs: dict[str, str] = {}
        first = self.sides[self.keys.members[0]]
        for one, other in self._ends():
            column, part = self._key_column(one), self._part_of_key(other)
            if column is not None and part is not None and part not in pairs and column not in pairs.values():
                pairs[part] = column
        if len(pairs) < len(first.key) or len(pairs) < len(self.sides[self.new].key):
            return None
        return tuple(pairs[part] for part in first.key)

    def _as_member(self, pairs: tuple[str, ...]) -> Joined | Objection:
        side = self.sides[self.new].keyed_by(pairs)
        alike = (self.sides[index] for index in self.keys.members if self.sides[index].source == side.source)
        if side.groups is None and any(other.queries == side.queries for other in alike):
            problem = f"ON: {side.source} is joined with itself on its key: a row would always match itself"
            return Objection(problem, about=self.on)
        first = self.sides[self.keys.members[0]]
        wanted = set(zip(first.key, pairs, strict=True))
        further = self._other_conditions(lambda one, other: (self._part_of_key(other), self._key_column(one)) in wanted)
        if self.how == "full" and further:
            return self._as_pair()  # a pair that does not satisfy the condition gives two rows for one key
        if self.how == "full" and side.may_be_absent and self._has_absent_keys:
            found = {(self._part_of_key(other), self._key_column(one)) for one, other in self._ends(exp.EQ)}
            if found & wanted:
                return self._unequal_nulls(min(found & wanted, key=lambda pair: first.key.index(pair[0] or "")))
        new_member = frozenset({self.new})
        complete = {
            "inner": self.keys.complete | {new_member},
            "left": self.keys.complete,
            "right": frozenset({new_member}),
            "full": frozenset(members | new_member for members in self.keys.complete),
        }[self.how]
        keys = Keys((*self.keys.members, self.new), complete, self.keys.links)
        return (*self.sides[: self.new], side), keys, further

    def _unequal_nulls(self, pair: tuple[str | None, str | None]) -> Objection:
        """Return the objection to a FULL JOIN in which the same key with a null on both sides gives two rows."""
        part, column = pair
        first, side = self.sides[self.keys.members[0]], self.sides[self.new]
        return Objection(
            f"ON: `=` matches no null, and parts of the keys of both sides may be null: FULL JOIN {side.source} would "
            "have two rows for one key",
            f"compare all parts of the keys by `<=>`, as in `{first.alias}.{part} <=> {side.alias}.{column}`",
            self.on,
        )

    def _as_referenced(self, link: ReferenceClause) -> Joined | Objection:
        if self.how in ("right", "full"):
            return self._as_pair()
        wrong = self._refers_without_row(link)
        if wrong is not None:
            name = self.sides[self.new].source
            return Objection(
                f"ON: `{as_written(wrong)}` may refer to a row of {name} although the input of its columns is absent",
                "refer by a column, or by an expression that is null if its columns are null",
                wrong,
            )
        written = dict(zip(self.sides[self.new].key, link.expressions, strict=True))
        further = self._other_conditions(lambda one, other: other == written.get(self._key_column(one) or ""))
        return self.sides, replace(self.keys, links=(*self.keys.links, link)), further

    def _refers_without_row(self, link: ReferenceClause) -> exp.Expr | None:
        """Return an expression of a reference that may not be null although its input, which may be, is absent."""
        over = [self._over(expression) for expression in link.expressions]
        is_over_one = len(set().union(*over)) == 1
        for index in (*sorted(self.absent), None):
            # The columns of an unknown input may be those of any other part. A constant is not null beside nulls alone.
            parts = [
                part
                for part, indexes in enumerate(over)
                if index in indexes or index is None or (is_over_one and not indexes)
            ]
            if index in set().union(*over) and not is_null_without(link, parts):
                return link.expressions[parts[0]]
        return None

    def _as_looked_up(self, answers: dict[str, exp.Expr | None]) -> Joined | Objection:
        side, stream = self.sides[self.new], self.sides[0].source
        if self.how in ("right", "full"):
            return Objection(
                f"{self.how.upper()} JOIN keeps unmatched rows of {side.source}, but a stream that looks up a table "
                f"emits only for its own rows, those of {stream}",
                "use JOIN, or LEFT JOIN to keep each row of the stream",
                self.on,
            )
        if all(answer is not None for answer in answers.values()):
            return self._as_referenced(self._link(answers))
        lacking = [column for column, answer in answers.items() if answer is None]
        missing = ", ".join(lacking)
        needed = " AND ".join(f"{self.sides[0].alias}.<column> = {side.alias}.{column}" for column in lacking)
        return Objection(
            f"ON: {side.source} is looked up by its whole key, ({', '.join(side.key)}), but no equality has {missing}",
            f"add to ON: {needed}",
            self.on,
        )

    def _as_root(self, reference: dict[str, exp.Expr]) -> Joined | Objection:
        """Make the new input the key of the result; it refers to the inputs so far."""
        if self.how in ("left", "full"):
            return self._as_pair()
        first = self.sides[self.keys.members[0]]
        plain = [(self._part_of_key(one), other) for one, other in self._ends(exp.EQ)]
        safe = tuple(index for index, part in enumerate(first.key) if (part, reference[part]) not in plain)
        # All members have their keys in the same order.
        links = [
            ReferenceClause(index, tuple(reference[part] for part in first.key), safe) for index in self.keys.members
        ]
        keys = Keys((self.new,), frozenset({frozenset({self.new})}), (*self.keys.links, *links))
        further = self._other_conditions(lambda one, other: other == reference.get(self._part_of_key(one) or ""))
        return self.sides, keys, further

    def _reference_to_the_key(self) -> dict[str, exp.Expr] | None:
        """Find, for each part of the key so far, the expression over the new input that equals it."""
        found: dict[str, exp.Expr] = {}
        for one, other in self._ends():
            part = self._part_of_key(one)
            over = self._over(other)
            if part is not None and over and over <= {self.new, None}:
                found.setdefault(part, other)
        return found if len(found) == len(self.sides[self.keys.members[0]].key) else None

    def _as_pair(self) -> Joined | Objection:
        found = paired(self.sides, self.keys, self.how, self.on, self._index, self.absent)
        if isinstance(found, Objection):
            return found
        pairing, further = found
        return self.sides, Keys((pairing.left, pairing.right), frozenset(), self.keys.links, pairing), further

    def _other_conditions(self, is_of_key: Callable[[exp.Expr, exp.Expr], bool]) -> tuple[exp.Expr, ...]:
        """Return the conditions of ON that are not an equality of the key, in either order of its operands."""

        def of_key(node: exp.Expr) -> bool:
            if not isinstance(node, EQUAL):
                return False
            one, other = node.this.unnest(), node.expression.unnest()
            return is_of_key(one, other) or is_of_key(other, one)

        return tuple(conjunct for conjunct in conjuncts(self.on) if not of_key(conjunct))

    def _ends(self, kind: type[exp.Expr] | tuple[type[exp.Expr], ...] = EQUAL) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """Yield the two operands of each equality, in both orders; those by `=` alone if `kind` says so."""
        for equality in self.equalities:
            if not isinstance(equality, kind):
                continue
            one, other = equality.this.unnest(), equality.expression.unnest()
            yield one, other
            yield other, one

    def _part_of_key(self, node: exp.Expr) -> str | None:
        """Return the part of the key so far, named as in its first member, that an expression always holds."""
        found = [(column, self._index(column)) for column in coalesced(node)]
        indexes = {index for _, index in found}
        if (
            not found
            or not indexes <= set(self.keys.members)
            or not any(members <= indexes for members in self.keys.complete)
        ):
            return None
        owned = [(column, index) for column, index in found if index is not None]
        for position, part in enumerate(self.sides[self.keys.members[0]].key):
            if all(self._is_column(column, index, self.sides[index].key[position]) for column, index in owned):
                return part
        return None

    def _key_column(self, node: exp.Expr) -> str | None:
        return next((name for name in self.sides[self.new].key if self._is_column(node, self.new, name)), None)

    def _is_column(self, node: exp.Expr, index: int, name: str) -> bool:
        is_plain = isinstance(node, exp.Column) and len(node.parts) <= 2
        return is_plain and self._index(node) == index and node.name.lower() == name.lower()

    def _over(self, node: exp.Expr) -> set[int | None]:
        """Return the indexes of the inputs whose columns an expression uses; None stands for an unknown input."""
        return {self._index(column) for column in node.find_all(exp.Column)}

    def _index(self, node: exp.Expr) -> int | None:
        return index_of(node, self.sides)


def _misplaced(inputs: Inputs) -> Objection | None:
    """Return an objection to a stream that is not the first input, or to a global table that no stream looks up."""
    first, *others = inputs.sides
    streams = [side for side in others if side.kind == "stream"]
    if streams and first.kind == "stream" and len(others) > 1:
        problem = "FROM: a join of streams has two inputs; longer ones are split when a file is loaded"
        return Objection(problem, about="FROM")
    if streams and first.kind != "stream":
        hint = f"write it first: FROM {streams[0].source} JOIN {first.source} ON ..."
        return Objection(f"FROM: `{streams[0].source}` is a stream, which cannot be looked up", hint, "FROM")
    for side in inputs.sides if first.kind != "stream" else ():
        if side.kind == "global_table":
            problem = (
                f"FROM: `{side.source}` is a global table: its changes trigger no epoch, so only a stream can join it"
            )
            return Objection(problem, "give the source `kind: table`", "FROM")
    return None
