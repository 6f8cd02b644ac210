"""Gateways between APIs of models of upstream Nerve, which are not here: importing the module says what to use."""

from nerve.upstream_names import refuse_module

refuse_module(__name__)
