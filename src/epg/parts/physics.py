"""The door to MuJoCo: models with a task written into them, and many of them stepped at once by its C engine."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import mujoco
import numpy as np
from mujoco.rollout import Rollout

from epg.parts.families.base import Task
from epg.words.errors import BadInput
from epg.words.settings import require

if TYPE_CHECKING:
    from epg.parts.families.mujoco_family import MujocoFamily, Sizes

FULL = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)
CTRL = int(mujoco.mjtState.mjSTATE_CTRL)
MOCAP = int(mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT)
HUGE = 1e6  # a generalised position or velocity beyond it is an explosion, finite or not
STRONGEST = 1e10  # a control beyond it MuJoCo takes for zero, and tells nobody but its log
LIBRARIES = {"gymnasium": "envs/mujoco/assets", "gymnasium_robotics": "envs/assets"}
EXTRAS = {"gymnasium": "it", "gymnasium_robotics": "epg[robotics]"}

mujoco.set_mju_user_warning(lambda text: None)  # explosions are counted here, not told by MuJoCo in a file of its own


def model_path(model: str) -> Path:
    """Return the path of a model file; `library:NAME.xml` is looked up where that library is installed."""
    library, _, name = model.rpartition(":")
    if library not in LIBRARIES:
        path = Path(model)
    else:
        found = importlib.util.find_spec(library)  # does not import it
        require(
            found is not None and found.origin is not None,
            f"the model {name} comes with {library.replace('_', '-')}: install {EXTRAS[library]}.",
        )
        assert found is not None
        assert found.origin is not None
        path = Path(found.origin).parent / LIBRARIES[library] / name
    require(path.is_file(), f"there is no model file {path}.")
    return path


def load_spec(family: MujocoFamily, visible: bool = False) -> Any:
    """Parse a family's model file and set its clock. What only a camera sees is left out unless `visible`."""
    path = model_path(family.model)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise BadInput(f"MuJoCo cannot read {path}: {' '.join(str(error).split())}.") from None
    spec.option.timestep = family.fast.timestep
    spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{family.fast.integrator.upper()}")
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # an explosion must be seen
    if not family.fast.alone:  # our robots are single islands: the same bits without the search for them
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    if not visible:
        _strip(spec)
    if family.adapt is not None:
        family.adapt(spec)
    return spec


def _strip(spec: Any) -> None:
    """Remove textures and materials: 97 % of a small model's memory and most of the time to compile it."""
    for geom in (*spec.geoms, spec.default.geom):
        geom.material = ""
    for asset in (*spec.textures, *spec.materials):
        spec.delete(asset)


def compile_spec(spec: Any) -> Any:
    """Compile a specification, without the remark on how Gymnasium's half-cheetah states its mass."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="compiler attribute 'settotalmass'")
        return spec.compile()


def build_model(family: MujocoFamily, spec: Any, stock: Any, task: Task) -> Any:
    """Write a task into a copy of the model and compile it, so that inertia and all that follows agree."""
    spec = spec.copy()
    if family.edit is not None:
        family.edit(spec, task)
    model = compile_spec(spec)
    if family.scale is not None:
        family.scale(model, stock, task)
        mujoco.mj_setConst(model, mujoco.MjData(model))
        model.stat.meanmass = model.body_mass[1:].mean()  # these two it leaves as they were compiled,
        model.stat.meaninertia = model.dof_M0.mean()  # and the solver's tolerance is in units of this one
    return model


def build_models(family: MujocoFamily, tasks: Sequence[Task]) -> list[Any]:
    """Return a model per task; tasks that are alike, or that leave the model alone, share one."""
    spec = load_spec(family)
    stock = compile_spec(spec)
    if family.edit is None and family.scale is None:
        return [stock] * len(tasks)
    built: dict[bytes, Any] = {}
    models = []
    for task in tasks:
        name = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(task))
        if name not in built:
            built[name] = build_model(family, spec, stock, task)
        models.append(built[name])
    sizes = {(it.nq, it.nv, it.nu, it.nsensordata, it.nmocap) for it in (stock, *built.values())}
    require(len(sizes) == 1, f"the tasks of {family.name} must not change the size of the model.")
    return models


def sizes_of(family: MujocoFamily) -> Sizes:
    """Return the lengths of the model's vectors."""
    from epg.parts.families.mujoco_family import Sizes

    model = compile_spec(load_spec(family))
    return Sizes(model.nq, model.nv, model.nsensordata)


class MujocoSimulator:
    """A batch of lifetimes in one thread: one model per distinct task, all rows stepped in one call."""

    def __init__(self, family: MujocoFamily, models: list[Any]) -> None:
        self.family, self.models, self.sizes = family, models, family.sizes
        self.interval = family.fast.timestep * family.fast.substeps
        self.state = np.zeros((len(models), mujoco.mj_stateSize(models[0], FULL)))
        self._pose = slice(1, 1 + self.sizes.qpos + self.sizes.qvel)
        engine = Alone if family.fast.alone else Together
        self._engine = engine(models, family.fast.substeps)

    def repeat(self, times: int) -> MujocoSimulator:
        """Return a simulator of the same models, each `times` times."""
        return MujocoSimulator(self.family, [model for model in self.models for _ in range(times)])

    def prepare(self, fresh: np.ndarray) -> np.ndarray:
        """Append what the sensors say at each drawn state."""
        if not self.sizes.sensors:
            return fresh
        data, known = mujoco.MjData(self.models[0]), {}
        result = np.zeros((*fresh.shape[:-1], fresh.shape[-1] + self.sizes.sensors), fresh.dtype)
        result[..., : fresh.shape[-1]] = fresh
        for place in np.ndindex(fresh.shape[:-1]):
            model = self.models[place[-1]]
            name = id(model), fresh[place].tobytes()
            if name not in known:
                data.qpos[:], data.qvel[:] = fresh[place][: model.nq], fresh[place][model.nq :]
                mujoco.mj_forward(model, data)
                known[name] = data.sensordata.copy()
            result[place][fresh.shape[-1] :] = known[name]
        return result

    def begin(self, fresh: np.ndarray) -> np.ndarray:
        """Put every row at its fresh state."""
        everywhere = np.ones(len(fresh), bool)
        self.restart(everywhere, fresh)
        nq, nv, ns = self.sizes
        raw = np.zeros((len(fresh), 2 * nq + nv + ns + 1), np.float32)
        raw[:, : nq + nv], raw[:, 2 * nq + nv : -1], raw[:, -1] = fresh[:, : nq + nv], fresh[:, nq + nv :], 1.0
        return raw

    def restart(self, ended: np.ndarray, fresh: np.ndarray) -> None:
        """Put the rows of `ended` at their fresh states."""
        nq, nv, _ = self.sizes
        self.state[ended] = 0.0
        self.state[ended, self._pose] = fresh[ended, : nq + nv]
        self._engine.forget(ended)

    def advance(self, control: np.ndarray, fresh: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Simulate one control interval. A row explodes by where it gets to, or by controls that cannot be applied."""
        nq, nv, ns = self.sizes
        before = self.state[:, 1 : 1 + nq]
        after, sensors = self._engine.run(self.state, control, rows)
        raw = np.empty((len(after), 2 * nq + nv + ns + 1), np.float32)
        with np.errstate(all="ignore"):
            raw[:, : nq + nv] = after[:, self._pose]
            raw[:, nq + nv : 2 * nq + nv] = (after[:, 1 : 1 + nq] - before) / self.interval
            raw[:, 2 * nq + nv : -1] = sensors
        raw[:, -1] = 1.0
        felt = raw[:, 2 * nq + nv : -1]
        tame = np.abs(after).max() < HUGE and np.abs(control).max(initial=0.0) <= STRONGEST  # neither if any is NaN
        if not tame or (ns and not np.isfinite(felt).all()):
            sound = (np.abs(after) < HUGE).all(axis=1) & (np.abs(control) <= STRONGEST).all(axis=1)
            bad = ~(sound & np.isfinite(felt).all(axis=1))
            raw[bad] = 0.0  # also the flag that it is sound
            after[bad] = self.state[bad]
        self.state[:] = after
        return raw


class Together:
    """All rows in one call of `mujoco.rollout`: fast, but the solver starts anew in every control interval."""

    def __init__(self, models: list[Any], substeps: int) -> None:
        model, rows = models[0], len(models)
        self.models, self.substeps = models, substeps
        self.spec = CTRL | MOCAP if model.nmocap else CTRL
        self.data = [mujoco.MjData(model)]
        self.rollout = Rollout(nthread=0).rollout_.rollout
        self.state = np.zeros((rows, substeps, mujoco.mj_stateSize(model, FULL)))
        self.sensors = np.zeros((rows, substeps, model.nsensordata))
        self.control = np.zeros((rows, substeps, mujoco.mj_stateSize(model, self.spec)))

    def forget(self, rows: np.ndarray) -> None:
        """Forget nothing: nothing is carried from one control interval to the next."""

    def run(self, state: np.ndarray, control: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return states and sensors after a control interval."""
        if rows is None or len(rows) == len(state):
            self.control[:] = control[:, None]
            self._roll(self.models, state, self.control, self.state, self.sensors)
            return self.state[:, -1], self.sensors[:, -1]
        number = len(rows)
        self.control[:number] = control[rows, None]
        outputs = self.state[:number], self.sensors[:number]
        self._roll([self.models[row] for row in rows], state[rows], self.control[:number], *outputs)
        after, sensors = state.copy(), np.zeros((len(state), self.sensors.shape[-1]))
        after[rows], sensors[rows] = outputs[0][:, -1], outputs[1][:, -1]
        return after, sensors

    def _roll(self, models: list[Any], state: np.ndarray, control: np.ndarray, *out: np.ndarray) -> None:
        self.rollout(models, self.data, self.substeps, self.spec, state, None, control, *out, None)


class Alone:
    """Each row stepped with its own data, as a single simulation is."""

    def __init__(self, models: list[Any], substeps: int) -> None:
        self.models, self.substeps = models, substeps
        self.data = [mujoco.MjData(model) for model in models]

    def forget(self, rows: np.ndarray) -> None:
        """Forget the solver's last solution."""
        for row in np.flatnonzero(rows):
            mujoco.mj_resetData(self.models[row], self.data[row])

    def run(self, state: np.ndarray, control: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return states and sensors after a control interval."""
        after = state.copy()
        sensors = np.zeros((len(state), self.models[0].nsensordata))
        for row in range(len(state)) if rows is None else rows:
            model, data = self.models[row], self.data[row]
            mujoco.mj_setState(model, data, state[row], FULL)
            mujoco.mj_setState(model, data, control[row], CTRL | MOCAP if model.nmocap else CTRL)
            mujoco.mj_step(model, data, nstep=self.substeps)
            mujoco.mj_getState(model, data, after[row], FULL)
            sensors[row] = data.sensordata
        return after, sensors
