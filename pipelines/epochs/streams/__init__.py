"""What the two kinds of join with a stream share."""
