"""When a node of a graph runs, by the ends of the nodes before it."""

from typing import Literal, get_args

TriggerRule = Literal["all_success", "one_success", "none_failed_min_one_success", "all_done"]
TRIGGER_RULES: tuple[TriggerRule, ...] = get_args(TriggerRule)
