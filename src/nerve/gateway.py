"""Gateways between APIs of models of upstream Nerve: importing it says what to use here."""

from nerve.upstream_names import refuse_module

refuse_module(__name__)
