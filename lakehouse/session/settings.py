"""
The settings of lakejoin's Spark session, and of the Spark that it starts on this machine.

The session inherits the configuration of the application, so each setting that can change a value, or the form of a
table that lakejoin maintains, is fixed here. Runs under different applications then produce the same result.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from lakehouse import limits

FIXED: Mapping[str, str] = {
    # How Spark parses SQL. Every literal depends on the first two settings: a run stops if they cannot be set.
    # With substitution, `${name}` in a literal becomes the value of a variable, usually the empty string.
    "spark.sql.variable.substitute": "false",
    # `'x\\y'` is a string of three characters.
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
    # `TIMESTAMP'...'` and a cast to TIMESTAMP use the time zone of the pipeline file.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    #
    # The values of expressions.
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
    #
    # How files are read and written.
    # CHAR(n) is read as padded text.
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.charAsVarchar": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.legacy.noCharPaddingInPredicate": "false",
    # The change feed passes through Java classes, of which the old ones lack the date 1582-10-10.
    "spark.sql.datetime.java8API.enabled": "true",
    # Milliseconds would truncate times, and not every reader supports INT96.
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
    # An overwrite replaces all rows, not only the rows of the partitions that it writes.
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.merge.preserveNullSourceStructs": "true",
    "spark.databricks.delta.insert.preserveNullSourceStructs": "true",
    # A read of the newest version never returns a cached, older version.
    "spark.databricks.delta.stalenessLimit": "0ms",
    # Delta refuses to read a change feed across a change of columns that the feed cannot represent.
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled": "false",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "endVersion",
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "false",
    # lakejoin compares the metrics of a commit with the rows staged for it.
    "spark.databricks.delta.history.metricsEnabled": "true",
    #
    # What the query plans of lakejoin rely on.
    # A grouped frame contains the grouping columns.
    "spark.sql.retainGroupColumns": "true",
    # Statements address tables and stages by path.
    "spark.sql.runSQLOnFiles": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # If columns are copies of others, Spark derives every combination of them: the number doubles with each column, and
    # a plan of twenty columns takes minutes.
    "spark.sql.constraintPropagation.enabled": "false",
    # The source of a MERGE is a stage on disk, which does not change, so Delta need not copy it.
    "spark.databricks.delta.merge.materializeSource": "none",
    # This rule removes the observed metrics of a stream if the other stream is empty.
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}

INDISPENSABLE = ("spark.sql.variable.substitute", "spark.sql.parser.escapedStringLiterals")
"""Settings without which a value can change when it is written into a statement as a literal."""

UNSET = (
    # If an application sets these, they mark each write of lakejoin, and Delta skips all writes but the first.
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
    # These override table properties.
    "spark.databricks.delta.autoCompact.enabled",
    "spark.databricks.delta.optimizeWrite.enabled",
    # A lakejoin table with this property would forget which epochs were written to it.
    "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration",
)
"""Settings that the session of lakejoin must not have."""

TABLE_PROPERTIES = {
    "delta.appendOnly": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.dataSkippingNumIndexedCols": "32",
    "delta.enableTypeWidening": "false",
}
"""Properties of the tables that lakejoin creates; they override an application's `properties.defaults`."""

COSTS = {
    # Java interprets a generated method of more bytes instead of compiling it, so that Spark had better not generate
    # it. A scan of 2 million rows of 13 columns under 50 ranges of a key took 4.7 s with such a method, 1.5 s without.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The gate samples the rows that a change of a source affects before they are shuffled, not after.
    "spark.sql.optimizer.windowGroupLimitThreshold": str(limits.SEARCHED_ROWS),
}
"""Settings of lakejoin's session that change only what a query costs."""

_QUIET = Path(__file__).with_name("log4j2.properties")

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

EXTENSIONS = "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

CLUSTER_SETTINGS = {
    EXTENSIONS: DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={_QUIET}"',
    "spark.ui.showConsoleProgress": "false",
    # An epoch runs about 160 generated classes; with the default of 100 entries the next epoch finds none of them.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Joins that run side by side share the cores.
    "spark.scheduler.mode": "FAIR",
}
"""Settings of a Spark that lakejoin starts on a cluster."""

LOCAL_SETTINGS = {
    **CLUSTER_SETTINGS,
    "spark.ui.enabled": "false",
    JAVA_OPTIONS: f"{CLUSTER_SETTINGS[JAVA_OPTIONS]} -XX:+UseParallelGC",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.databricks.delta.snapshotPartitions": "2",
    # The number of tasks in which VACUUM lists files; the default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(os.cpu_count() or 2),
    "spark.locality.wait": "0s",
    # The UI is off, and the retained plans of a thousand queries would fill the driver's memory.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
}
"""Settings of a Spark that lakejoin starts on this machine."""
