"""
Sizes at which lakejoin takes another way: between a few rows and many, a small table and a large one.

Every limit is a number with a unit. None changes the rows of a result; most weigh one cost against another. Where a
measurement chose the number, it is given, on two cores with local files; "by judgement" says that none is on record.
Read a limit as `limits.NAME`, so that one place sets it for all readers.
"""

# What the driver takes over from Spark.

CHANGES_VIA_DRIVER = 10_000
"""Rows. Up to so many changed rows of an epoch pass through the driver; more go through the stage. By judgement."""

ROWS_ON_DRIVER = 100_000
"""Rows. A frame that proves to have more is not materialized on the driver. By judgement."""

BYTES_ON_DRIVER = 64 * 2**20
"""Bytes. Neither is a frame of more bytes, however few its rows are. By judgement."""

JUDGED_IN_PROCESS = 100_000
"""Rows. The gate judges up to so many in this process, which took a tenth of the time of Spark's queries."""

INTERPRETED_BYTES = 32 * 2**20
"""Bytes. Queries over files of so many bytes are interpreted: compiling them takes longer. By judgement."""

NOT_ADAPTIVE_ROWS = 1_000_000
"""Rows. Plans of two streams for so many rows do not change while they run. By judgement."""

# What is read whole, and what by key.

SMALL_BYTES = 4 * 2**20
"""Bytes. A table of so many is read whole: finding out which of its rows are needed costs more. By judgement."""

LITERAL_BYTES = 32 * 2**20
"""Bytes. The gate names the keys of larger sources by literals, which skip files; plans without them run faster."""

SCANNED_BYTES = 128 * 2**20
"""
Bytes. The gate scans the key columns of tables up to this size, to see that literals find what a join on the key finds.
A table of 117 MiB with 3 million keys took 1 s, beside the other reads of the gate.
"""

BROADCAST_BYTES = 8 * 2**20
"""Bytes. A table of so many is sent to the rows of a stream; a larger one is shuffled, as the rows are."""

BROADCAST_CHANGES = 100_000
"""Rows. So many changes of a table are sent to the rows of a stream as well. By judgement."""

REWRITTEN_STATE_BYTES = 64 * 2**20
"""Bytes. A state that has no more, with what came, is rewritten as a whole instead of merged. By judgement."""

# How Delta is read and written.

VERSIONS_PER_READ = 10
"""
Versions. A change feed is read in ranges of so many: with deletion vectors the cost of one read grows faster than the
number of versions.
"""

COMMITS_AT_ONCE = 20
"""Commits. So many of a table's history are read with the first look at it. By judgement."""

LEDGER_ROWS = 200
"""Rows. So many of a join's newest rows are read from the ledger at first. By judgement."""

DISTORTED_COMMITS = 50
"""Commits. Rows that a feed distorts are looked up one commit at a time up to so many; each takes two scans."""

DISTORTED_COLUMNS = 4
"""Columns. These scans skip files by the values of so many columns. By judgement."""

LISTED_KEYS = 10_000
"""Keys. Up to so many are listed as literals in a predicate; more are covered by ranges. By judgement."""

KEY_RANGES = 50
"""Ranges. A predicate that covers keys has so many at most. By judgement."""

KEY_BUCKETS = 2_000
"""Buckets. So many are counted to find the widest gaps between keys. By judgement."""

BYTES_PER_FILE = 32 * 2**20
"""
Bytes of the sources for one file of a loaded result. A later epoch reads the files that hold a changed key, three times
in MERGE: small sorted files keep what it reads close to what changed.
"""

BYTES_PER_SLICE = 2**30
"""Bytes. A sliced backfill has a slice for so many bytes of the result and its sources. By judgement."""

MOST_SLICES = 1_000
"""Slices of one backfill."""

# How much the gate checks again.

RECOMPUTED_ROWS = 50_000
"""Rows of a change set that the gate computes again from the sources; of a larger one a share of about so many."""

LEFT_OUT_ROWS = 10_000
"""
Rows of the result that the gate searches for missing changes. Each changed source has an equal share, so that one with
many changes does not crowd out another.
"""

SAMPLED_KEYS = 20
"""Keys whose rows the gate looks up without literals as well."""

LOADED_KEYS = 100
"""Keys of a first load whose rows the gate computes again, and as many of each input with the result's key."""

LOOKUPS_CHECKED = 100_000
"""Rows of a stream that the gate looks up again; of more, about so many."""

MOST_LOOKUPS = 1_000_000
"""Rows. Of an epoch with more new rows none is looked up again: it would take as long as the epoch."""

MEETINGS_CHECKED = 20_000
"""Rows. Up to so many new and buffered rows of two streams the gate joins all of them again."""

MEETINGS_SAMPLED = 10_000
"""Rows. Of more it joins about so many again, the same ones each time."""

MOST_MEETINGS = 100_000
"""Rows. Of an epoch with more none is joined again: it would take as long as the epoch."""

# How joins of streams are cut up.

BUCKET_WIDTHS = 4
"""Times the width of the bound: one bucket of time, where ON has an equality too. Wider ones put fewer rows in two."""

TIME_PARTS = 64
"""Parts. The times of a large epoch of two streams are cut into so many, a task for each. By judgement."""

CONSTANT_POSITIONS = 200
"""Positions at which limits rise that are written into a query as constants. By judgement."""

NULL_KEY_SPREAD = 1024
"""Values over which the rows with a null key are spread, so that one task does not get them all. By judgement."""

# What pages show.

EPOCHS_SHOWN = 500
"""Epochs of each join that the pages of `lakejoin docs` list, the newest first."""
