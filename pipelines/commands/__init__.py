"""What each command does, the same for every kind of join. No module here depends on the command line."""
