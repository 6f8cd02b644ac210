"""What starts runs on its own: schedules, webhooks, files, facts and the ends of other runs."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.triggers.runner import run_triggers
    from nerve.triggers.service import TriggerService, triggers_of

__all__ = ["TriggerService", "run_triggers", "triggers_of"]


def __getattr__(name: str) -> Any:
    """Import on first use: the signatures of webhooks need no engine."""
    if name not in __all__:
        raise AttributeError(f"module 'nerve.triggers' has no attribute '{name}'")
    from nerve.triggers import runner, service

    return getattr(runner if name == "run_triggers" else service, name)
