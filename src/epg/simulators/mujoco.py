"""MuJoCo: models with a task written into them, and many of them stepped at once by its C engine."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np
from mujoco.rollout import Rollout

from epg.core.errors import BadInput, require
from epg.simulators.base import MujocoSource

FULL = int(mujoco.mjtState.mjSTATE_FULLPHYSICS)
CTRL = int(mujoco.mjtState.mjSTATE_CTRL)
MOCAP = int(mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT)
MAX_STATE = 1e6  # a generalized position or velocity beyond it counts as divergence, finite or not
MAX_CTRL = 1e10  # MuJoCo takes a ctrl beyond it for zero, and reports that only in its log
LIBRARIES = {"gymnasium": "envs/mujoco/assets", "gymnasium_robotics": "envs/assets"}
EXTRAS = {"gymnasium": "it", "gymnasium_robotics": "epg[robotics]"}

mujoco.set_mju_user_warning(lambda text: None)  # divergence is counted here, not in a log file of MuJoCo's


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


def load_spec(family: MujocoSource, visible: bool = False) -> Any:
    """Parse a family's model file and set its clock. Textures and materials are removed unless `visible`."""
    path = model_path(family.model)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise BadInput(f"MuJoCo cannot read {path}: {' '.join(str(error).split())}.") from None
    spec.option.timestep = family.fast.timestep
    spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{family.fast.integrator.upper()}")
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # divergence must be seen
    if not family.fast.separate:  # our robots are single islands: the same bits without the search for them
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


def build_model(family: MujocoSource, spec: Any, stock: Any, task: Any) -> Any:
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


def build_models(family: MujocoSource, tasks: Sequence[Any]) -> list[Any]:
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


def model_sizes(family: MujocoSource) -> tuple[int, int, int]:
    """Return the lengths of qpos, qvel and sensors."""
    model = compile_spec(load_spec(family))
    return model.nq, model.nv, model.nsensordata


class MujocoSimulator:
    """A batch of lifetimes in one thread: one model per distinct task, all rows stepped in one call."""

    def __init__(self, family: MujocoSource, models: list[Any]) -> None:
        self.family, self.models, self.sizes = family, models, family.sizes
        self.interval = family.fast.interval
        self.state = np.zeros((len(models), mujoco.mj_stateSize(models[0], FULL)))
        self._pose = slice(1, 1 + self.sizes.qpos + self.sizes.qvel)
        engine = SeparateEngine if family.fast.separate else BatchEngine
        self._engine = engine(models, family.fast.frame_skip)

    def repeat(self, times: int) -> MujocoSimulator:
        """Return a simulator of the same models, each `times` times."""
        return MujocoSimulator(self.family, [model for model in self.models for _ in range(times)])

    def replace(self, row: int, model: Any) -> None:
        """Give a row another model of the same size; it must begin anew."""
        self._engine.replace(row, model)  # in the list of models, which both share

    def prepare(self, states: np.ndarray) -> np.ndarray:
        """Append the sensor readings at each drawn state."""
        if not self.sizes.sensors:
            return states
        data, known = mujoco.MjData(self.models[0]), {}
        result = np.zeros((*states.shape[:-1], states.shape[-1] + self.sizes.sensors), states.dtype)
        result[..., : states.shape[-1]] = states
        for place in np.ndindex(states.shape[:-1]):
            model = self.models[place[-1]]
            name = id(model), states[place].tobytes()
            if name not in known:
                data.qpos[:], data.qvel[:] = states[place][: model.nq], states[place][model.nq :]
                mujoco.mj_forward(model, data)
                known[name] = data.sensordata.copy()
            result[place][states.shape[-1] :] = known[name]
        return result

    def begin(self, states: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Put every row, or those of the mask `rows`, at its state."""
        self.reset(np.ones(len(states), bool) if rows is None else rows, states)
        nq, nv, ns = self.sizes
        readout = np.zeros((len(states), 2 * nq + nv + ns + 1), np.float32)
        readout[:, : nq + nv], readout[:, 2 * nq + nv : -1] = states[:, : nq + nv], states[:, nq + nv :]
        readout[:, -1] = 1.0
        return readout

    def reset(self, rows: np.ndarray, states: np.ndarray) -> None:
        """Put the rows of the mask `rows` at their states."""
        nq, nv, _ = self.sizes
        self.state[rows] = 0.0
        self.state[rows, self._pose] = states[rows, : nq + nv]
        self._engine.forget(rows)

    def advance(self, ctrl: np.ndarray, reset_states: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Simulate one control interval. A row diverges by its state, or by controls that cannot be applied."""
        nq, nv, ns = self.sizes
        before = self.state[:, 1 : 1 + nq]
        after, sensors = self._engine.run(self.state, ctrl, rows)
        readout = np.empty((len(after), 2 * nq + nv + ns + 1), np.float32)
        with np.errstate(all="ignore"):
            readout[:, : nq + nv] = after[:, self._pose]
            readout[:, nq + nv : 2 * nq + nv] = (after[:, 1 : 1 + nq] - before) / self.interval
            readout[:, 2 * nq + nv : -1] = sensors
        readout[:, -1] = 1.0
        sensed = readout[:, 2 * nq + nv : -1]
        # Comparisons are false for NaN, so all of these fail if any number is.
        valid = np.abs(after).max() < MAX_STATE and np.abs(ctrl).max(initial=0.0) <= MAX_CTRL
        if not valid or (ns and not np.isfinite(sensed).all()):
            in_range = (np.abs(after) < MAX_STATE).all(axis=1) & (np.abs(ctrl) <= MAX_CTRL).all(axis=1)
            diverged = ~(in_range & np.isfinite(sensed).all(axis=1))
            readout[diverged] = 0.0  # also the flag that it is valid
            after[diverged] = self.state[diverged]
        self.state[:] = after
        return readout


class BatchEngine:
    """All rows in one call of `mujoco.rollout`: fast, but the solver starts from zero in every control interval."""

    def __init__(self, models: list[Any], frame_skip: int) -> None:
        model, rows = models[0], len(models)
        self.models, self.frame_skip = models, frame_skip
        self.spec = CTRL | MOCAP if model.nmocap else CTRL
        self.data = [mujoco.MjData(model)]
        self.rollout = Rollout(nthread=0).rollout_.rollout
        self.state = np.zeros((rows, frame_skip, mujoco.mj_stateSize(model, FULL)))
        self.sensors = np.zeros((rows, frame_skip, model.nsensordata))
        self.ctrl = np.zeros((rows, frame_skip, mujoco.mj_stateSize(model, self.spec)))

    def forget(self, rows: np.ndarray) -> None:
        """Forget nothing: nothing is carried from one control interval to the next."""

    def replace(self, row: int, model: Any) -> None:
        """Take another model."""
        self.models[row] = model

    def run(self, state: np.ndarray, ctrl: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return states and sensors after a control interval."""
        if rows is None or len(rows) == len(state):
            self.ctrl[:] = ctrl[:, None]
            self._roll(self.models, state, self.ctrl, self.state, self.sensors)
            return self.state[:, -1], self.sensors[:, -1]
        number = len(rows)
        self.ctrl[:number] = ctrl[rows, None]
        outputs = self.state[:number], self.sensors[:number]
        self._roll([self.models[row] for row in rows], state[rows], self.ctrl[:number], *outputs)
        after, sensors = state.copy(), np.zeros((len(state), self.sensors.shape[-1]))
        after[rows], sensors[rows] = outputs[0][:, -1], outputs[1][:, -1]
        return after, sensors

    def _roll(self, models: list[Any], state: np.ndarray, ctrl: np.ndarray, *out: np.ndarray) -> None:
        self.rollout(models, self.data, self.frame_skip, self.spec, state, None, ctrl, *out, None)


class SeparateEngine:
    """Each row stepped with its own data, as a single simulation is."""

    def __init__(self, models: list[Any], frame_skip: int) -> None:
        self.models, self.frame_skip = models, frame_skip
        self.data = [mujoco.MjData(model) for model in models]

    def replace(self, row: int, model: Any) -> None:
        """Take another model, with data of its own."""
        self.models[row], self.data[row] = model, mujoco.MjData(model)

    def forget(self, rows: np.ndarray) -> None:
        """Forget the solver's last solution."""
        for row in np.flatnonzero(rows):
            mujoco.mj_resetData(self.models[row], self.data[row])

    def run(self, state: np.ndarray, ctrl: np.ndarray, rows: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return states and sensors after a control interval."""
        after = state.copy()
        sensors = np.zeros((len(state), self.models[0].nsensordata))
        for row in range(len(state)) if rows is None else rows:
            model, data = self.models[row], self.data[row]
            mujoco.mj_setState(model, data, state[row], FULL)
            mujoco.mj_setState(model, data, ctrl[row], CTRL | MOCAP if model.nmocap else CTRL)
            mujoco.mj_step(model, data, nstep=self.frame_skip)
            mujoco.mj_getState(model, data, after[row], FULL)
            sensors[row] = data.sensordata
        return after, sensors
