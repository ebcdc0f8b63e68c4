"""The camera: pictures of a MuJoCo family's states, drawn offscreen.

MuJoCo chooses how to draw when it is imported, from MUJOCO_GL, and that is too early here. So the drawing
contexts are made by hand: EGL (graphics card, or Mesa in software), else OSMesa (software).
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from epg.core.errors import BadInput, require
from epg.families.appearance import CameraPose
from epg.families.base import Task
from epg.simulators.mujoco import build_model, compile_spec, load_spec

if TYPE_CHECKING:
    from epg.families.mujoco.base import MujocoFamily

BACKENDS = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",)}
"""Ways to draw without a screen, best first; elsewhere MuJoCo's own way, through a window."""
CHOICES = ("egl", "osmesa", "glfw", "cgl")
NO_CAMERA = (
    "nothing can be drawn here, neither EGL nor OSMesa works: install one of them (Debian, Ubuntu: apt-get install "
    "libegl1 libgl1-mesa-dri, or libosmesa6), or set MUJOCO_GL to glfw if there is a screen."
)
_PROBE = "from mujoco.{} import GLContext as C; c = C(8, 8); c.make_current(); c.free()"
_PROBE_SECONDS = 60

GOAL_COLOUR, ARROW_COLOUR = (0.1, 0.65, 0.2, 0.9), (0.95, 0.35, 0.1, 1.0)


@lru_cache(maxsize=1)
def find_backend() -> str:
    """Return the first way to draw that works here, or MUJOCO_GL's, tried in a process of its own.

    A failed attempt leaves OpenGL unusable in the process that made it, and a bad driver may even end it.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    require(
        chosen not in ("disable", "disabled", "off", "false", "0"),
        f"nothing can be drawn because MUJOCO_GL={chosen}: unset it, or set it to egl or osmesa.",
    )
    names = (chosen,) if chosen in CHOICES else BACKENDS.get(platform.system(), ("glfw",))
    for name in names:
        environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
        probe = [sys.executable, "-c", _PROBE.format(name)]
        try:
            tried = subprocess.run(probe, env=environment, capture_output=True, timeout=_PROBE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return name
    raise BadInput(f"MUJOCO_GL={chosen} does not work here: unset it." if chosen in CHOICES else NO_CAMERA)


@contextmanager
def _drawing(size: tuple[int, int]) -> Iterator[None]:
    """Make an OpenGL context current. It is freed at once: at the end of Python EGL would complain of it."""
    name = find_backend()
    try:
        context = importlib.import_module(f"mujoco.{name}").GLContext(*size)
        context.make_current()
    except Exception as error:  # another library has set OpenGL up in its own way
        raise BadInput(f"drawing with {name} fails in this process: {error}.") from error
    try:
        yield
    finally:
        context.free()


def camera_pose(family: MujocoFamily, model: Any) -> CameraPose:
    """Return the family's camera pose, or a three-quarter view that holds all of the model."""
    known = family.appearance.camera
    if known is not None:
        return known
    moving = model.njnt > 0 and int(model.jnt_type[0]) in (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_SLIDE)
    x, y, z = map(float, model.stat.center)
    distance = 1.8 * float(model.stat.extent)
    return CameraPose(120, -25, distance, *(((0.0, 0.0, z), "xy") if moving else ((x, y, z), "")))


class Camera:
    """Draws states of a task's model. Made by `open_camera`, which frees what it holds."""

    def __init__(self, family: MujocoFamily, task: Task, size: tuple[int, int]) -> None:
        spec = load_spec(family, visible=True)
        _light(spec, size)
        self.model = build_model(family, spec, compile_spec(spec), task)
        _see_through(self.model)
        self.data, self.size = mujoco.MjData(self.model), size
        self.pose, self.marks = camera_pose(family, self.model), family.appearance.marks(task)
        self._context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene, self._options = mujoco.MjvScene(self.model, maxgeom=2000), mujoco.MjvOption()
        self._options.sitegroup[:] = 0  # Fetch's own target is a site that nobody moves
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0  # most of the time in software, and they tear far away

    def shoot(self, qpos: np.ndarray) -> np.ndarray:
        """Draw the model at these positions, [height, width, 3] bytes."""
        self.data.qpos[:] = qpos
        mujoco.mj_forward(self.model, self.data)
        body = self.data.xpos[1]
        mujoco.mjv_updateScene(
            self.model,
            self.data,
            self._options,
            None,
            self._aim(body),
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        self._mark(body)
        area, picture = mujoco.MjrRect(0, 0, *self.size), np.zeros((self.size[1], self.size[0], 3), np.uint8)
        mujoco.mjr_render(area, self._scene, self._context)
        mujoco.mjr_readPixels(picture, None, area, self._context)
        return picture[::-1].copy()  # OpenGL begins at the bottom

    def close(self) -> None:
        """Free what the graphics driver holds."""
        self._context.free()

    def _aim(self, body: np.ndarray) -> Any:
        eye = mujoco.MjvCamera()
        eye.azimuth, eye.elevation, eye.distance = self.pose.azimuth, self.pose.elevation, self.pose.distance
        followed = np.array([axis in self.pose.track for axis in "xyz"])
        eye.lookat[:] = np.array(self.pose.lookat) + np.where(followed, body, 0.0)
        return eye

    def _mark(self, body: np.ndarray) -> None:
        if self.marks.goal is not None:
            self._add(mujoco.mjtGeom.mjGEOM_SPHERE, [self.marks.radius] * 3, self.marks.goal, np.eye(3), GOAL_COLOUR)
        if self.marks.direction is not None:
            way = self.marks.direction if self.marks.goal is None else self.marks.goal[:2] - body[:2]
            heading = np.array([*way, 0.0]) / max(float(np.linalg.norm(way)), 1e-6)
            # On the floor before a body that moves in the plane of the picture, else above it.
            planar = self.pose.track == "x"
            start = np.array([body[0], -0.55, 0.06]) - 0.35 * heading if planar else body + np.array([0.0, 0.0, 0.45])
            across = np.cross([0.0, 0.0, 1.0], heading)
            frame = np.stack([across, np.cross(heading, across), heading], axis=1)
            self._add(mujoco.mjtGeom.mjGEOM_ARROW, (0.04, 0.04, 1.4 if planar else 2.0), start, frame, ARROW_COLOUR)

    def _add(self, kind: Any, size: Any, place: np.ndarray, frame: np.ndarray, colour: Any) -> None:
        scene = self._scene
        mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom], kind.value, np.array(size), place, frame.ravel(), np.array(colour, np.float32)
        )
        scene.ngeom += 1


@contextmanager
def open_camera(family: MujocoFamily, task: Task, size: tuple[int, int] = (320, 240)) -> Iterator[Camera]:
    """Set up a camera before a task's model, `size` being width and height of its pictures."""
    with _drawing(size):
        camera = Camera(family, task, size)
        try:
            yield camera
        finally:
            camera.close()


def _light(spec: Any, size: tuple[int, int]) -> None:
    """Make room for the picture, and light the scene as for print: pale sky and floor, no mirrors."""
    spec.visual.global_.offwidth, spec.visual.global_.offheight = size
    for material in spec.materials:
        material.reflectance = 0.0
    spec.visual.headlight.ambient[:], spec.visual.headlight.diffuse[:] = 0.35, 0.45
    skies = [it for it in spec.textures if it.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX]
    if not skies:
        skies = [spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=64, height=384)]
        skies[0].builtin = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
    for sky in skies:
        sky.rgb1[:], sky.rgb2[:] = (0.80, 0.88, 0.96), (0.96, 0.98, 1.0)
    for floor in spec.textures:
        if floor.builtin == mujoco.mjtBuiltin.mjBUILTIN_CHECKER:
            floor.rgb1[:], floor.rgb2[:] = (0.55, 0.58, 0.60), (0.75, 0.78, 0.80)


def _see_through(model: Any) -> None:
    """Make Fetch's table a pane of glass: targets may lie inside it or behind it."""
    table = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "table0")
    for geom in np.flatnonzero(model.geom_bodyid == table) if table >= 0 else ():
        model.geom_rgba[geom, 3] = model.mat_rgba[model.geom_matid[geom], 3] = 0.35
