"""The base of handlers in upstream Nerve."""

from functools import partial

from nerve.upstream_names import find_upstream_name

__getattr__ = partial(find_upstream_name, __name__)
