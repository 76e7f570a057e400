"""LaTeX of this machine, for tests that compile what the program writes; without what they need, they are skipped."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(body: str, packages: str, folder: Path, columns: str = "twocolumn") -> str:
    """Compile a document of two columns, or of one; returns what pdflatex printed.

    Args:
        packages: that it uses, with commas in between.
    """
    if why := lacking(packages):
        pytest.skip(why)
    head = f"\\documentclass[{columns}]{{article}}\\usepackage{{{packages}}}\\begin{{document}}\n"
    (folder / "t.tex").write_text(f"{head}{body}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if absent := re.search(r"File `([\w.-]+\.(?:sty|cls|def|fd))' not found", finished.stdout):
        pytest.skip(f"LaTeX is installed without {absent[1]}")  # that a package needs
    assert finished.returncode == 0, finished.stdout[-2000:]
    return finished.stdout


def lacking(packages: str) -> str:
    """What LaTeX lacks here to use these packages; empty if nothing."""
    if shutil.which("pdflatex") is None:
        return "pdflatex is not installed"
    missing = [name for name in packages.split(",") if not _is_installed(name)]
    return f"LaTeX is installed without {' and '.join(missing)}" if missing else ""


def needed(source: str) -> str:
    """The packages that a table says it needs, in its first line."""
    found = re.match(r"% needs \\usepackage\{([\w,]+)\}\n", source)
    assert found, source[:80]
    return found[1]


def _is_installed(package: str) -> bool:
    return subprocess.run(["kpsewhich", f"{package}.sty"], capture_output=True).returncode == 0
