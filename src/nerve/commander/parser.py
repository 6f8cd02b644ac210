"""The parser of typed lines under the name that the design documents import."""

from nerve.commander.core.input_parser import InputType, ParsedInput, parse_input

__all__ = ["InputType", "ParsedInput", "parse_input"]
