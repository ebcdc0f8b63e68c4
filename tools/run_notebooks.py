"""Run the notebooks of the docs, each in an empty directory, and keep their outputs.

python tools/run_notebooks.py            # in place: `make notebooks`
python tools/run_notebooks.py --to DIR   # elsewhere, as the tests do
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SECONDS = 900  # a cell may take


def run(path: Path, to: Path) -> None:
    """Run a notebook in a fresh kernel; an error of a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        NotebookClient(
            notebook, timeout=SECONDS, coalesce_streams=True, resources={"metadata": {"path": place}}
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run: another time would be another file
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, to)


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, help="directory for the notebooks with their outputs")
    parser.add_argument("names", nargs="*", help="which ones; by default all")
    given = parser.parse_args()
    for path in NOTEBOOKS:
        if not given.names or path.stem in given.names:
            run(path, (given.to or path.parent) / path.name)


if __name__ == "__main__":
    main()
