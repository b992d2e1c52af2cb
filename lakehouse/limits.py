"""
Sizes at which lakejoin changes its method, such as between few and many rows or a small and a large table.

Every limit is a number with a unit. No limit changes the rows of a result; most weigh one cost against another. If a
measurement chose the number, the docstring gives it, taken on two cores with local files. "By judgement" means that no
measurement is on record. Read a limit as `limits.NAME`, so that one place sets it for all readers.
"""

# Work on the driver and small queries.

CHANGES_VIA_DRIVER = 10_000
"""Rows. Up to this many changed rows of an epoch pass through the driver; more pass through the stage. By judgement."""

ROWS_ON_DRIVER = 100_000
"""
Rows. A frame with more rows is not collected to the driver; that many changes of a small table are broadcast with it.
The gate checks up to this many rows in this process, which took a tenth of the time of Spark queries.
"""

BYTES_ON_DRIVER = 64 * 2**20
"""Bytes. A larger frame is not collected to the driver, even if it has few rows. By judgement."""

INTERPRETED_BYTES = 4 * 2**20
"""
Bytes. Queries over files of up to this size are interpreted. Over two tables with a million rows each in 25 MB an epoch
of one change took 5.6 s with interpreted and 3.8 s with compiled queries, once the session was warm. A staged part of
up to this size is read by the driver when it is merged, unless it has more than `ROWS_ON_DRIVER` rows.
"""

QUICKLY_COMPILED_BYTES = 64 * 2**20
"""
Bytes of the tables of a pipeline. The JVM of a command over up to this size uses its first compiler only. A command
with six changed rows took 53 to 67 s of processor time with both compilers, 40 s with the first alone, and 33 s with
the archive of classes, too. Up to which size this is so was not measured: by judgement.
"""

# Tables that are read whole, and tables that are read by key.

SMALL_BYTES = 4 * 2**20
"""Bytes. A table of up to this size is read whole: finding the required rows costs more. By judgement."""

WHOLE_BYTES = 512 * 2**10
"""
Bytes. A small table of up to this size to which others refer is copied to the driver whole even in a small epoch, since
its keys need not be computed first. A star with four such tables took 14.2 s, and 16.5 s with each of them by key.
"""

LITERAL_BYTES = 32 * 2**20
"""Bytes. For larger sources the gate writes keys as literals, which skip files; plans without them run faster."""

SCANNED_BYTES = 128 * 2**20
"""
Bytes. The gate scans the key columns of tables of up to this size, to check that literals find the same rows as a join
on the key. A table of 117 MiB with 3 million keys took 1 s, in parallel with the other reads of the gate. Sources of up
to this size together are joined at once, without literals, if the tables that others refer to fit `BROADCAST_BYTES`.
"""

BROADCAST_BYTES = 8 * 2**20
"""
Bytes. A table of up to this size is broadcast to the rows of a stream; a larger table and the rows are shuffled. Tables
of up to this size together are broadcast to the rows of a load, or of the gate, that look them up. The gate of a star
with 2 million facts took 8 to 10 s so, and 13 to 14 s with look-ups level by level.
"""

STAGED_STREAM_BYTES = 32 * 2**20
"""
Bytes of the new files of a stream. The rows that more bytes make are not staged, but computed twice: once to count them
for the gate, and once where they are appended. By judgement.
"""

REWRITTEN_STATE_BYTES = 64 * 2**20
"""Bytes. A state that has up to this size together with the new rows is rewritten, not merged. By judgement."""

# Reads and writes of Delta tables.

VERSIONS_PER_READ = 10
"""
Versions. A change feed is read in ranges of this many versions: with deletion vectors the cost of one read grows faster
than the number of versions.
"""

COMMITS_AT_ONCE = 20
"""Commits. The first look-up in the history of a table reads this many. By judgement."""

LEDGER_ROWS = 200
"""Rows. The first read of the ledger returns this many of the newest rows of a join, or about runs. By judgement."""

LEDGER_FILES = 50
"""Files. With more files than this, an append to the ledger compacts them into one, as Delta's auto compaction does."""

DISTORTED_COMMITS = 50
"""Commits. Rows that a feed distorts are looked up in each of up to this many commits; each look-up takes two scans."""

LISTED_KEYS = 10_000
"""
Keys. A predicate lists up to this many keys as literals; ranges cover more keys. If more of the 65,536 parts of two
tables differ, all rows are compared. By judgement.
"""

KEY_RANGES = 30
"""
Ranges. A predicate that covers keys has at most this many ranges. With 30 a scan of 2 million rows of 13 columns took
0.7 s, with 50 it took 1.5 s, because Spark no longer generated code for it.
"""

BYTES_PER_FILE = 32 * 2**20
"""
Bytes of the sources for each file of a loaded result. A later epoch reads the files that contain a changed key, three
times in MERGE: with small, sorted files it reads few unchanged rows.
"""

LOAD_RANGES = 100
"""
Ranges. A load with more files sorts its rows after the join: the expression that finds the range of each key would be
so long that Spark no longer generates code for the scan. By judgement.
"""

BYTES_PER_SLICE = 2**30
"""Bytes of the sources for each slice of a backfill. By judgement."""

MOST_SLICES = 1_000
"""Slices. A backfill has at most this many slices."""

# Rows that the gate checks.

RECOMPUTED_ROWS = 50_000
"""
Rows of a change set that the gate recomputes from the sources, or rows of a stream that it looks up again. Of more than
twice as many it samples, at least about this many.
"""

SEARCHED_ROWS = 10_000
"""
Rows in which the gate searches for what a change set leaves out. Of a result of tables each changed source has an equal
share, so that a source with many changes does not crowd out another. Of two streams it joins new and buffered rows
again, of twice as many or more a sample of about this many.
"""

SAMPLED_KEYS = 100
"""
Keys of which at least so many are also looked up without literals by the gate, others in each run; or all keys. Of a
first load the gate recomputes the rows of so many keys, and of so many more of each input with the result's key.
"""

LARGE_STREAM_ROWS = 1_000_000
"""
Rows. In an epoch with more new rows of a stream the gate looks up none again, which would take as long as the epoch,
and the join of two streams is planned adaptively.
"""

MOST_MEETINGS = 100_000
"""Rows. In an epoch with more rows the gate joins none again: it would take as long as the epoch."""

# Partitions of joins of streams.

BUCKET_WIDTHS = 4
"""Widths of the bound in one bucket of time, if ON has an equality too. In wider buckets fewer rows are in two."""

CONSTANT_POSITIONS = 200
"""Positions. Up to this many positions at which limits rise are constants in the query. By judgement."""
