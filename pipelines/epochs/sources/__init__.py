"""Read the sources of an epoch: change feeds, look-ups, commits, and where rows wait until they are staged."""
