"""Regular expressions from clients, in RE2's syntax, matched in linear time."""

from penstock.regex.matcher import Regex
from penstock.regex.parser import InvalidRegex

__all__ = ["InvalidRegex", "Regex"]
