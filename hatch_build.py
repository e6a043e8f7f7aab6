"""Makes the grammar's tables when the package is built or installed; see dsl/parser/tables.py."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GrammarTables(BuildHookInterface):
    """Writes dsl/grammar.tables and puts it into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's
        """See hatchling."""
        sys.path.insert(0, self.root)
        from dsl.parser.tables import FILE, write_tables  # noqa: PLC0415 - needs the path above

        path = Path(self.root) / "dsl" / FILE
        write_tables(path)
        build_data["force_include"][str(path)] = f"dsl/{FILE}"
