"""
What a user can do about an error, as a value: a sentence with actions, which each kind of join names by its commands.

An error is raised where nobody knows the kind of the join that it stops. So it names actions, and the driver gives it
the commands of the kind. Until then it has those of a join of tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Commands = Mapping[str, str]
"""The clause for each action; `{select}` in it stands for the option that selects the join."""

TAKING_SUCH_ROWS = (
    "let the statement take such rows, by `try_divide(a, b)`, `a / NULLIF(b, 0)`, `try_cast(a AS type)` or "
    "`try_add(a, b)`"
)
"""What to do about a row for which the statement raises."""

OF_TABLES: Commands = {
    "run": "run `lakejoin run{select}`",
    "load": "run `lakejoin backfill{select}` for the first load",
    "reconcile": "run `lakejoin backfill{select}` to reconcile the result with the sources as they are now",
    "take over": "run `lakejoin backfill{select}` to reconcile the table",
    "abandon": "run `lakejoin backfill{select}`, which abandons the epoch and reconciles the result",
    "adopt": "run `lakejoin verify{select}` to compare it with the join, or `lakejoin backfill{select}` to adopt it",
    "mend": f"correct the row in its source, then run `lakejoin run{{select}}`; or {TAKING_SUCH_ROWS}, then run "
    "`lakejoin backfill{select}`",
    "mend past row": "run `lakejoin backfill{select}` to reconcile the result with the sources as they are now",
    "redefine": "`lakejoin backfill --dry-run{select}` counts the rows that a backfill would rewrite; "
    "without `--dry-run` it writes them",
}
"""The commands for a join of tables."""


@dataclass(frozen=True)
class Remedy:
    """
    What to do about an error.

    Args:
        text: A sentence in which `{action}` stands for an action of `OF_TABLES`.
        join: The join to select; empty until it is known.
    """

    text: str
    join: str = ""

    def by(self, commands: Commands) -> str:
        """Return the sentence with the commands of a kind of join."""
        select = f" --select {self.join}" if self.join else ""
        sentence = self.text
        for action, command in commands.items():
            sentence = sentence.replace(f"{{{action}}}", command.replace("{select}", select))
        return sentence
