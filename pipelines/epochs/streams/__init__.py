"""What both kinds of join with a stream share: planning, source progress, new rows and the state table."""
