"""
The rules of the optimiser, by the names that a pipeline file may list; `pipelines.optimizer` says what each does.

They are applied in this order. None changes a result, so they are no part of a join's definition.
"""

from typing import Literal, get_args

Rule = Literal["single_store_self_join", "share_change_reads"]

RULES: tuple[Rule, ...] = get_args(Rule)

ALL, NONE = "all", "none"
"""What a pipeline file writes in place of a list."""
