"""Directives that list the verbs and options of `fedrec` from the code that parses them, so that neither drifts."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, ClassVar

from docutils import nodes  # type: ignore[import-untyped, unused-ignore]
from docutils.parsers.rst import Directive  # type: ignore[import-untyped, unused-ignore]
from sphinx.application import Sphinx

from fedrec_unlearn.cli.command import VERBS
from fedrec_unlearn.cli.options import SHORT
from fedrec_unlearn.cli.parser import CommandParser
from fedrec_unlearn.config_file import options
from fedrec_unlearn.config_options import Option, options_by_name


class OptionTable(Directive):  # type: ignore[misc, unused-ignore]
    """``{fedrec-options} SECTION``: every option of a section of the configuration; no argument: those at the top."""

    optional_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Build the table."""
        section = self.arguments[0] if self.arguments else ""
        listed = [option for option in options() if option.section == section]
        if not listed:
            raise self.error(f"no section {section!r} in fedrec_unlearn.config")
        rows = [[_name(option), _default(option), nodes.paragraph(text=_meaning(option))] for option in listed]
        return [_table(("option", "default", "meaning"), (32, 18, 50), rows)]


class VerbArguments(Directive):  # type: ignore[misc, unused-ignore]
    """``{fedrec-verb} VERB``: usage of a verb and the arguments that are not options of the configuration."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Build the usage line and the table."""
        verb = self.arguments[0]
        if verb not in VERBS:
            raise self.error(f"fedrec has no verb {verb!r}")
        parser = CommandParser(verb, VERBS[verb])
        import_module(f"fedrec_unlearn.cli.{verb}").configure(parser)
        lines = parser.format_usage().removeprefix("usage: ").splitlines()
        usage = "\n".join(line.strip() for line in lines if line.strip())
        known = options_by_name()
        skipped = {"help", "quiet", "debug"}
        rows = [
            [_flags(action), nodes.paragraph(text=(action.help or "").replace("%%", "%"))]
            for action in parser._actions
            # `report` and `download` have an --output of their own, which has a default
            if not (action.dest in known and action.default is argparse.SUPPRESS) and action.dest not in skipped
        ]
        shown: list[nodes.Node] = [nodes.literal_block(usage, usage, language="text")]
        return [*shown, _table(("argument", "meaning"), (32, 68), rows)] if rows else shown


def _name(option: Option) -> nodes.paragraph:
    text = nodes.paragraph(ids=[f"option-{option.name.replace('.', '-').replace('_', '-')}"])
    text += nodes.literal(text=option.name)
    for flag in SHORT.get(option.name, ()):
        text += nodes.Text(", ")
        text += nodes.literal(text=flag)
    return text


def _default(option: Option) -> nodes.paragraph:
    value: Any = option.default
    if value is None or value == ():
        return nodes.paragraph(text="unset" if value is None else "none")
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = nodes.paragraph()
    text += nodes.literal(text=shown.lower() if isinstance(value, bool) else shown)
    return text


def _meaning(option: Option) -> str:
    # what the docstring spells out choice by choice need not be listed again
    missing = [choice for choice in option.choices if choice not in option.doc]
    return f"{option.doc} Other values: {', '.join(missing)}." if missing else option.doc


def _flags(action: argparse.Action) -> nodes.paragraph:
    text = nodes.paragraph()
    for place, name in enumerate(action.option_strings or [str(action.metavar or action.dest)]):
        text += nodes.Text(", " if place else "")
        text += nodes.literal(text=name)
    return text


def _table(titles: tuple[str, ...], widths: tuple[int, ...], rows: list[list[nodes.paragraph]]) -> nodes.table:
    group = nodes.tgroup(cols=len(titles))
    group += [nodes.colspec(colwidth=width) for width in widths]
    head, body = nodes.thead(), nodes.tbody()
    head += _row([nodes.paragraph(text=title) for title in titles])
    body += [_row(cells) for cells in rows]
    group += [head, body]
    table = nodes.table()
    table += group
    return table


def _row(cells: list[nodes.paragraph]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        entry += cell
        row += entry
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both directives."""
    app.add_directive("fedrec-options", OptionTable)
    app.add_directive("fedrec-verb", VerbArguments)
    return {"parallel_read_safe": True, "version": "1"}
