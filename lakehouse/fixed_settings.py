"""
The settings of Spark and Delta that can change a value, or the form of a table that lakejoin keeps.

A session of our own inherits the configuration of the application, so that each of these settings is fixed here. Two
runs under different applications then give the result of one.
"""

from collections.abc import Mapping

MEANING_OF_TEXT = {
    # A key `${name}` in a literal would become the value of a variable, mostly the empty string.
    "spark.sql.variable.substitute": "false",
    # `'x\\y'` is a text of three characters.
    "spark.sql.parser.escapedStringLiterals": "false",
    # A name in backticks is a name, not a regular expression.
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.interval.enabled": "false",
    "spark.sql.legacy.fromDayTimeString.enabled": "false",
    "spark.sql.legacy.bangEqualsNot": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.ansi.relationPrecedence": "false",
    "spark.sql.caseSensitive": "false",
    # `TIMESTAMP'...'` and a cast to TIMESTAMP are in the time zone of the pipeline file.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""How Spark reads SQL. Every value that becomes a literal depends on the first two: without them no run goes on."""

MEANING_OF_EXPRESSIONS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.chunkBase64String.enabled": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.json.enableExactStringParsing": "true",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.jsonGenerator.writeNullIfWithDefaultValue": "true",
    "spark.sql.mergeNestedTypeCoercion.enabled": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "false",
    "spark.sql.legacy.allowNullComparisonResultInArraySort": "false",
    "spark.sql.legacy.allowZeroIndexInFormatString": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "false",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.legacy.collationAwareHashFunctions": "false",
    "spark.sql.legacy.createEmptyCollectionUsingStringType": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.disableMapKeyNormalization": "false",
    "spark.sql.legacy.doLooseUpcast": "false",
    "spark.sql.legacy.duplicateBetweenInput": "false",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "true",
    "spark.sql.legacy.javaCharsets": "false",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": "false",
    "spark.sql.legacy.lpadRpadAlwaysReturnString": "false",
    "spark.sql.legacy.negativeIndexInArrayInsert": "false",
    "spark.sql.legacy.nullInEmptyListBehavior": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.legacy.truncateForEmptyRegexSplit": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
}
"""What an expression of a statement evaluates to."""

READING_AND_WRITING = {
    # CHAR(n) is read as the padded text that it is.
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.charAsVarchar": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.legacy.noCharPaddingInPredicate": "false",
    # The change feed passes through Java's classes: the old ones have no 1582-10-10.
    "spark.sql.datetime.java8API.enabled": "true",
    # Milliseconds would cut times, and not every reader knows INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.table.parquetV2.timestampOutputType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    # An overwrite replaces all rows, not those of the partitions that it holds.
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.merge.preserveNullSourceStructs": "true",
    "spark.databricks.delta.insert.preserveNullSourceStructs": "true",
    # The newest version is the newest, not one that was the newest a while ago.
    "spark.databricks.delta.stalenessLimit": "0ms",
    # Delta refuses to read a change feed across a change of columns that it cannot show.
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled": "false",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "endVersion",
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "false",
    # The counts of a commit are compared with what was staged for it.
    "spark.databricks.delta.history.metricsEnabled": "true",
}
"""What is read from files and written to them."""

SHAPE_OF_PLANS = {
    # A grouped frame has the columns that it is grouped by.
    "spark.sql.retainGroupColumns": "true",
    # Tables and stages are named by their paths.
    "spark.sql.runSQLOnFiles": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # From "this column is a copy of that one" Spark derives every mixture of the two: their number doubles with each
    # column, and a plan of twenty columns takes minutes.
    "spark.sql.constraintPropagation.enabled": "false",
    # The source of our MERGE is a stage on disk: it is stable, so that Delta need not copy it once more.
    "spark.databricks.delta.merge.materializeSource": "none",
    # That rule removes what was observed of a stream where the other stream proves empty.
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}
"""What the plans of lakejoin rely on."""

FIXED: Mapping[str, str] = {**MEANING_OF_TEXT, **MEANING_OF_EXPRESSIONS, **READING_AND_WRITING, **SHAPE_OF_PLANS}
"""Every fixed setting, by name."""

INDISPENSABLE = ("spark.sql.variable.substitute", "spark.sql.parser.escapedStringLiterals")
"""Settings without which a value can become another one on its way into a statement."""

UNSET = (
    # Set for an application, these would mark each write of ours, and let Delta skip all but the first.
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
    # They override the properties of tables.
    "spark.databricks.delta.autoCompact.enabled",
    "spark.databricks.delta.optimizeWrite.enabled",
    # A table of ours that has it would forget which epochs were written to it.
    "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration",
)
"""Settings that a session of ours must not have."""

TABLE_PROPERTIES = {
    "delta.appendOnly": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.dataSkippingNumIndexedCols": "32",
    "delta.enableTypeWidening": "false",
}
"""Properties of the tables that lakejoin creates: an application's `properties.defaults` would set others."""
