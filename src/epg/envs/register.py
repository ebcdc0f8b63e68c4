"""Register our environments as soon as Gymnasium is there, and load it not a moment before: it takes half a second.

Gymnasium 1.0 gave up entry points of plugins: an environment exists once its package is imported. So `import epg`
must be enough, whichever of the two comes first.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ENVIRONMENTS = "epg.envs.env"  # importing it registers them


def announce() -> None:
    """Register the environments now if Gymnasium is imported already, else when it is."""
    if "gymnasium" in sys.modules:
        importlib.import_module(ENVIRONMENTS)
    elif not any(isinstance(finder, _Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hook())


class _Hook:
    """A finder of modules: lets the others find Gymnasium, and adds one line to the end of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return Gymnasium's spec with a loader that registers our environments; of nothing else any."""
        if fullname != "gymnasium":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if found is not None and found.loader is not None:
            self._extend(found.loader)
        return found

    def _extend(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            importlib.import_module(ENVIRONMENTS)

        loader.exec_module = execute_and_register
