"""What building the package needs is what it says it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMPORTED = """
import sys
import dsl.parser.tables
print(*{module.partition(".")[0] for module in sys.modules} - sys.stdlib_module_names)
"""


def test_making_the_tables_imports_what_the_build_requires():
    """pip builds in an environment that has these packages and no others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    required = {re.split(r"[<>=!~]", one)[0] for one in project["build-system"]["requires"]}
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{IMPORTED}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {one for one in done.stdout.split() if not one.startswith("_")}
    assert "lark" in found
    # Lark takes the first three if they are there; the last are ours.
    own = {"dsl", "sitecustomize", "cython_runtime"}
    assert found - {"regex", "interegular", "typing_extensions"} - own <= required
