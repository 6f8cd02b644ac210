"""The core: nodes, workflows and values. It decides what is executed; only leaves have side effects."""

from functools import partial

from nerve.upstream_names import find_upstream_name

__getattr__ = partial(find_upstream_name, __name__)
