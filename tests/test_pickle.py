"""Pickle is unreachable: no module of ours can name it, and no load path runs it, whatever a file holds."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from epg.evolution.loop import evolve_run
from epg.evolution.runs import create_run
from epg.recipes import preset

SRC = Path(__file__).parents[1] / "src"

UNPICKLING = {  # what unpickles, by the name it is imported or called by
    "pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "numpy.load", "np.load", "torch.load",
    "jnp.load", "jax.numpy.load", "pandas.read_pickle", "recv", "allow_pickle",
}  # fmt: skip


def suspects(source: str) -> list[str]:
    """Return what in a module could unpickle: imports, calls such as np.load and Connection.recv, allow_pickle."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                found += [alias.name for alias in names if alias.name.split(".")[0] in UNPICKLING]
            case ast.ImportFrom(module, names):
                found += [str(module)] * (str(module).split(".")[0] in UNPICKLING)
                found += [alias.name for alias in names if f"{module}.{alias.name}" in UNPICKLING]
            case ast.Attribute(attr="recv"):
                found.append("recv")
            case ast.Attribute(ast.Name(name), attr) if f"{name}.{attr}" in UNPICKLING:
                found.append(f"{name}.{attr}")
            case ast.keyword("allow_pickle"):
                found.append("allow_pickle")
    return found


def test_no_module_names_what_unpickles() -> None:
    found = {path: suspects(path.read_text()) for path in sorted(SRC.glob("epg/**/*.py"))}
    assert len(found) > 50
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "from numpy import load",
        "import numpy as np\nnp.load('x')",
        "connection.recv()",
        "f(allow_pickle=True)",
        "import cloudpickle.x",
    ],
)
def test_the_search_would_have_found(source: str) -> None:
    assert len(suspects(source)) == 1


# In a process of its own, as nothing can take an audit hook out again. Every way in which this package reads a file
# or a message is tried with the right content, then with a pickle that would leave a mark, under the same name.
LOADING = """
import os, sys
from pathlib import Path

run, mark = Path(sys.argv[1]), Path(sys.argv[2])

from epg.core.runtime import use_single_thread
use_single_thread()
import pickle, _pickle, marshal
import numpy as np
from epg.evaluation.fitting import fitting_learner
from epg.evolution.loop import Evolution
from epg.evolution.runs import open_run
from epg.executors import wire
from epg.storage.files import read_json, read_tensors
from epg.storage.metrics import read_metrics
from epg.storage.policy_artefact import load_policy, save_policy
from epg.warm_starts import load_warm_start
from epg.zoo import list_losses, load_loss
from epg.viz.run_reader import read_epochs
from epg.core.errors import BadInput

class Bomb:
    def __reduce__(self):
        return os.mkdir, (str(mark),)

bomb = pickle.dumps(Bomb())
opened, settings = open_run(run)
state = Evolution(settings)  # JAX has what it needs from here on
manifest = {"family_version": 1, "spaces": load_loss(run).manifest["spaces"], "env_steps": 1, "trained_by": "nobody"}
(run / "policy").mkdir()
save_policy(run / "policy", {"weights": np.zeros((2, 5))}, {**manifest, "family": "point-goal", "policy": {}})
used = []

def watch(event, arguments):
    if armed and event.startswith(("pickle.", "marshal.load", "os.system", "subprocess.")):
        used.append((event, str(arguments)[:80]))

def forbid(name):
    def forbidden(*arguments, **named):
        used.append((name, ""))
        raise RuntimeError(name)
    return forbidden

armed = False
sys.addaudithook(watch)
for module in (pickle, _pickle):
    for name in ("load", "loads", "Unpickler"):
        setattr(module, name, forbid(f"{module.__name__}.{name}"))
np.load = forbid("np.load")

loads = {
    "loss.json": [lambda: fitting_learner(load_loss(run), "point-goal"), lambda: list(list_losses(run))],
    "loss.safetensors": [lambda: load_loss(run), lambda: read_tensors(run / "loss.safetensors")],
    "policy/policy.json": [lambda: load_policy(run / "policy"), lambda: load_warm_start(run / "policy", settings)],
    "policy/policy.safetensors": [lambda: load_policy(run / "policy")],
    "config.json": [lambda: open_run(run), lambda: read_json(run / "config.json")],
    "metrics.jsonl": [lambda: read_metrics(run / "metrics.jsonl"), lambda: read_epochs(run)],
    "checkpoints/epoch-000004.safetensors": [lambda: state.restore(opened.load_checkpoint(), run)],
    "checkpoints/epoch-000003.safetensors": [lambda: opened.load_checkpoint()],
}
def try_all():
    tried = refused = 0
    for content in (None, bomb, b"\\x80\\x04" + bomb, len(bomb).to_bytes(8, "little") + bomb, bomb + b"\\n"):
        for name, paths in loads.items():
            whole = (run / name).read_bytes()
            if content is not None:
                (run / name).write_bytes(content)
            for load in paths:
                tried += 1
                try:
                    load()
                except BadInput:
                    refused += 1
            (run / name).write_bytes(whole)
        try:
            wire.decode(content or wire.encode(wire.RESULT, {"x": np.zeros(2)}, ticket="1"))
        except BadInput:
            pass
    return tried, refused

try_all()  # once unwatched: Python imports what it has not yet, and reads its own compiled modules for it
armed = True
tried, refused = try_all()
armed = False
assert (tried, refused > 20) == (65, True), (tried, refused)
assert not mark.exists()
assert used == [], used
try:  # and the watch would have noticed
    armed = True
    pickle.loads(bomb)
except RuntimeError:
    pass
assert used == [("pickle.loads", "")], used
print("unreachable")
"""


def test_no_load_path_unpickles(tmp_path: Path) -> None:
    settings = preset("point-goal", "smoke")
    evolve_run(create_run(settings, tmp_path / "run"), settings, "inline")
    command = [sys.executable, "-c", LOADING, str(tmp_path / "run"), str(tmp_path / "mark")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "unreachable\n"), done.stderr
