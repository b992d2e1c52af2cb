"""The types of the keys, values and columns of a join, as the columns of its tables determine them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from lakehouse.errors.errors import Fault, PipelineFileError
from lakehouse.tables.table import Table
from lakehouse.values.compare import char_type, common_type, incomparable
from pipelines.binding.bound import rows_of
from pipelines.binding.workspace import Workspace
from pipelines.joins.meaning import meaning
from pipelines.language import Input, Link, Pairing, ResolvedQuery
from pipelines.language.names import PREFIX
from pipelines.language.sql.padding import column_parts, padded_comparisons

KEYED = ("table", "global_table")
"""The kinds of sources whose key may have parts that are null."""
EXACT_SUMS = (
    ByteType, ShortType, IntegerType, LongType, DecimalType, DayTimeIntervalType, YearMonthIntervalType,
)  # fmt: skip
"""The types whose sums do not depend on the order of the values; averages of BIGINT are sums of DOUBLE."""
WITHOUT_IT = "leave the column out or extract what you need"
NULLABLE = (
    "the table is the result of a join in which a row may lack a side: parts of its key may be null",
    "write `nullable_key: true` if such rows are rows like others, or `nullable_key: false` to skip them",
)


@dataclass(frozen=True)
class JoinTypes:
    """A join and the tables of its inputs, by source: the types of its keys, its values and its columns."""

    workspace: Workspace
    join: ResolvedQuery
    tables: Mapping[str, Table]

    @property
    def _path(self) -> str:
        return f"joins.{self.join.name}.sql"

    def refuse(self, faults: Iterable[Fault]) -> None:
        """Raise `PipelineFileError` with all faults, if any exist."""
        if every := list(faults):
            raise PipelineFileError(self.workspace.file.pipeline, every)

    def key_types(self) -> tuple[tuple[DataType, ...], ...]:
        """Return the types in which keys are compared, for each input; the inputs that key the result have the same."""
        join = self.join
        faults = [*self.column_faults(), *self._incomparable_values()]
        compared = _Compared(self._path)
        own = self._key_of(join.members[0])
        for label, data_type in own:
            if common_type(data_type, data_type) is None:
                problem = f"{label} is {data_type.simpleString()}, which cannot be a key"
                faults.append(Fault(self._path, problem, "choose another key"))
        member_types = tuple(data_type for _, data_type in own)
        for index in join.sharing:
            before = [(label, data_type) for (label, _), data_type in zip(own, member_types, strict=True)]
            member_types = compared.types(before, self._key_of(index))
        types = dict.fromkeys(join.members, member_types)
        for index in join.members[1:]:
            if index not in join.sharing:  # it has a part of the key of its own
                part = self._key_of(index)
                types[index] = compared.types(part, part)
        for link in join.links:
            labels = [label.replace("`", "") for label in link.expressions]
            references = [*zip(labels, self._reference_types(link), strict=True)]
            types[link.input] = compared.types(references, self._key_of(link.input))
        self.refuse([*faults, *compared.faults])
        return tuple(types.get(index, ()) for index in range(len(join.inputs)))

    def value_types(self, pairing: Pairing) -> tuple[DataType, ...]:
        """Return the types in which the values of a pairing are compared."""
        sides = []
        for link, values in zip(pairing.links, pairing.values, strict=True):
            labels = [value.replace("`", "") for value in values]
            sides.append([*zip(labels, self._expression_types(link.over, values), strict=True)])
        compared = _Compared(self._path, "their values", "cast one of them to the type of the other")
        types = compared.types(*sides)
        self.refuse(compared.faults)
        return tuple(
            StructType([StructField("value", data_type)]) if is_null_safe else data_type
            for data_type, is_null_safe in zip(types, pairing.null_safe, strict=True)
        )

    def result_schema(self) -> StructType:
        """Return the columns of the SELECT list."""
        try:
            schema = meaning([self._rows_of(item) for item in self.join.inputs], self.join).schema
        except AnalysisException as error:
            raise self._refused_by_spark(error) from error
        problem = "has a type that cannot be compared"
        self.refuse(Fault(self._path, f"SELECT: {name} {problem}", "cast it") for name in incomparable(schema))
        return schema

    def _incomparable(self) -> Iterator[Fault]:
        for item in self._ungrouped:
            for column in item.columns if item.query is None else ():
                field = self.tables[item.source].schema[column]
                if incomparable(StructType([field])):
                    shown = f"{item.alias}.{column} is {field.dataType.simpleString()}"
                    yield Fault(self._path, f"{shown}, which cannot be compared", WITHOUT_IT)

    def _incomparable_values(self) -> Iterator[Fault]:
        """Yield a fault for each column of a subquery that cannot be compared; only Spark knows their types."""
        for item in self._ungrouped:
            names = () if item.query is None else incomparable(self._schema_of(item))
            values = self._values_of(item)
            for name in names:
                called = values[name].replace("`", "") if name.startswith(PREFIX) else f"{item.alias}.{name}"
                problem = f"FROM: {called} has a type that cannot be compared"
                yield Fault(self._path, problem, WITHOUT_IT)

    def column_faults(self) -> list[Fault]:
        """Return the faults that each column has by itself."""
        return [*self._incomparable(), *self._padding_faults(), *self._null_faults(), *self._sums_in_any_order()]

    def _padding_faults(self) -> Iterator[Fault]:
        chars: dict[tuple[str, ...], str] = {}
        for item in self._ungrouped:
            of_source = self._chars_of(item)
            if item.query is None:
                chars |= of_source
                continue
            pairs = zip(item.columns, item.query.values, strict=True)
            chars |= {
                (item.alias, name): of_source[column]
                for name, value in pairs
                if (column := column_parts(value)) in of_source
            }
            filters = [] if item.query.where is None else [item.query.where]
            yield from self._padded([("FROM", sql) for sql in (*item.query.values, *filters)], of_source)
        yield from self._collected_chars(chars)
        yield from self._grouped_chars(chars)
        clauses = [
            *(("SELECT", output.expression) for output in self.join.outputs),
            *(("ON", step.on) for step in self.join.steps),
            *([] if self.join.where is None else [("WHERE", self.join.where)]),
        ]
        yield from self._padded(clauses, chars)

    def _sums_in_any_order(self) -> Iterator[Fault]:
        """Yield a fault for each sum and average that Spark takes of DOUBLE values, which depends on their order."""
        for item in self.join.inputs:
            grouping = item.grouping
            summed = () if grouping is None else (*grouping.summed, *grouping.averaged)
            rows = self._schema_of(item.ungrouped) if summed else StructType()
            values = self._values_of(item)
            for name in dict.fromkeys(summed):
                data_type = rows[name].dataType
                is_exact = isinstance(data_type, EXACT_SUMS)
                if grouping is not None and name in grouping.averaged:
                    is_exact = is_exact and not isinstance(data_type, LongType)
                if not is_exact:
                    value, called = values[name].replace("`", ""), data_type.simpleString().upper()
                    problem = (
                        f"SELECT: a sum or average of {value}, which is {called}, depends on the order of the rows"
                    )
                    yield Fault(self._path, problem, "take it of a CAST to DECIMAL")

    @staticmethod
    def _values_of(item: Input) -> dict[str, str]:
        """Return the columns of an input, or of the rows that it groups, each with its value over the source."""
        rows = item.ungrouped
        return dict(zip(rows.columns, rows.columns if rows.query is None else rows.query.values, strict=True))

    def _collected_chars(self, chars: Mapping[tuple[str, ...], str]) -> Iterator[Fault]:
        """Yield a fault for each CHAR column that a further condition of a semi join compares: its padding is lost."""
        for item in self.join.inputs:
            for name in item.grouping.collected if item.grouping is not None else ():
                if (item.alias, name) in chars:
                    problem = f"a condition besides the equalities of `{item.alias}` compares a CHAR column"
                    yield Fault(self._path, problem, "compare rtrim(...) of it")

    def _grouped_chars(self, chars: Mapping[tuple[str, ...], str]) -> Iterator[Fault]:
        """Yield a fault for each comparison of a CHAR column by an expression over groups."""
        for item in self.join.inputs:
            if item.grouping is not None:
                own = {parts[1:]: declared for parts, declared in chars.items() if parts[0] == item.alias}
                clauses = [("SELECT", sql) for _, sql in item.grouping.values]
                clauses += [("HAVING", item.grouping.having)] if item.grouping.having else []
                yield from self._padded(clauses, own)

    def _chars_of(self, item: Input) -> dict[tuple[str, ...], str]:
        fields = self.tables[item.source].schema
        return {(item.alias, field.name): declared for field in fields if (declared := char_type(field)) is not None}

    def _padded(self, clauses: Sequence[tuple[str, str]], chars: Mapping[tuple[str, ...], str]) -> Iterator[Fault]:
        for clause, sql in clauses if chars else ():
            for found in padded_comparisons(sql, chars):
                yield Fault(self._path, f"{clause}: {found.problem}", found.hint)

    def _null_faults(self) -> Iterator[Fault]:
        """Yield a fault for each source whose key may have nulls if the file does not say what they mean."""
        for name, table in self.tables.items():
            source = self.workspace.file.sources.get(name)
            if source is None or source.nullable_key is not None or source.kind not in KEYED:
                continue
            if {column.lower() for column in table.nullable_key}.intersection(column.lower() for column in source.key):
                yield Fault(f"sources.{name}", *NULLABLE)

    @property
    def _ungrouped(self) -> list[Input]:
        return [item.ungrouped for item in self.join.inputs]

    def _key_of(self, index: int) -> list[tuple[str, DataType]]:
        item = self.join.inputs[index]
        if item.grouping is not None:
            rows, values = self._schema_of(item), self._values_of(item)
            return [(values[name].replace("`", ""), rows[name].dataType) for name in item.key]
        types = [self.tables[item.source].schema[name].dataType for name in item.source_key]
        return [(f"{item.alias}.{name}", of) for name, of in zip(item.key, types, strict=True)]

    def _reference_types(self, link: Link) -> list[DataType]:
        if not link.overs:
            return self._expression_types(link.over, link.expressions)
        parts = zip(link.overs, link.expressions, strict=True)
        return [self._expression_types(index, [part])[0] for index, part in parts]

    def _expression_types(self, index: int, expressions: Sequence[str]) -> list[DataType]:
        item = self.join.inputs[index]
        try:
            rows = self._rows_of(item).alias(item.alias)
            return [field.dataType for field in rows.select(*map(F.expr, expressions)).schema]
        except AnalysisException as error:
            raise self._refused_by_spark(error) from error

    def _rows_of(self, item: Input) -> DataFrame:
        table = self.tables[item.source]
        return rows_of(self.workspace, item, table, table.version)

    def _schema_of(self, item: Input) -> StructType:
        try:
            return self._rows_of(item).schema
        except AnalysisException as error:
            raise self._refused_by_spark(error) from error

    def _refused_by_spark(self, error: AnalysisException) -> PipelineFileError:
        fault = Fault(self._path, f"Spark rejects the statement: {str(error).strip().splitlines()[0]}")
        return PipelineFileError(self.workspace.file.pipeline, [fault])


class _Compared:
    """Compares the types of keys; `faults` has a fault for each pair of types that have no common type."""

    def __init__(
        self,
        path: str,
        what: str = "keys",
        hint: str = "give both the same type in their tables, or cast the reference to the type of the key",
    ) -> None:
        self._path, self._what, self._hint = path, what, hint
        self.faults: list[Fault] = []

    def types(self, one: Sequence[tuple[str, DataType]], other: Sequence[tuple[str, DataType]]) -> tuple[DataType, ...]:
        """Return the types in which values of one key, or of a reference, and of another key are compared."""
        types = []
        for (here, mine), (there, theirs) in zip(one, other, strict=True):
            common = common_type(mine, theirs)
            types.append(common or theirs)
            if common is None:
                problem = f"ON: {here} is {mine.simpleString()} and {there} is {theirs.simpleString()}: values"
                problem = f"{problem} of these types do not compare one to one, as {self._what} must"
                self.faults.append(Fault(self._path, problem, self._hint))
        return tuple(types)
