"""The pipeline file: its keys, options and rules. No statement is parsed here."""
