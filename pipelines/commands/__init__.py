"""What each command does, the same for every kind of join. Nothing here knows the command line."""
