"""
The rules of the optimizer, by the names that a pipeline file may list; `pipelines.plan.sharing` describes each.

Rules are applied in this order. They never change a result, so they are not part of a join's definition.
"""

from typing import Literal, get_args

Rule = Literal["single_store_self_join", "share_change_reads"]

RULES: tuple[Rule, ...] = get_args(Rule)

ALL, NONE = "all", "none"
"""The values that replace a list in the pipeline file."""
