"""When a failed step of a definition is retried."""

from __future__ import annotations

from nerve.core.policy import Retry
from nerve.core.result import Result
from nerve.lazy_dataclass import dataclass
from nerve.spec import models

MAX_STDERR_CHARS = 2000
"""Characters at the end of the standard error of a command that are searched."""


@dataclass(frozen=True, slots=True)
class TextCondition:
    """Decides by the type and the text of a failure whether its step is retried."""

    types: tuple[str, ...]
    texts: tuple[str, ...]
    fatal_texts: tuple[str, ...]

    def __call__(self, result: Result) -> bool:
        stderr = result.attributes.get("stderr")
        text = f"{result.error}\n{stderr[-MAX_STDERR_CHARS:] if isinstance(stderr, str) else ''}".lower()
        if self.types and result.error_type not in self.types:
            return False
        if any(each in text for each in self.fatal_texts):
            return False
        return not self.texts or any(each in text for each in self.texts)


def retry_of_spec(spec: models.RetrySpec) -> Retry:
    """Return the retry policy of a step."""
    timing = spec.model_dump(exclude={"on", "on_text", "not_on_text"})
    types = tuple(spec.on)
    if not spec.on_text and not spec.not_on_text:
        return Retry(**timing, on=types)
    texts, fatal_texts = (tuple(each.lower() for each in given) for given in (spec.on_text, spec.not_on_text))
    return Retry(**timing, on=TextCondition(types, texts, fatal_texts))
