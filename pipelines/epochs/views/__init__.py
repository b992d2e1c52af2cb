"""What tables and pairs share: a result that is always the join of its sources, as a materialized view is."""
