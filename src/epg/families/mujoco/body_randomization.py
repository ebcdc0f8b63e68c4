"""Tasks that differ in the body's physics: gravity, and mass, thickness and friction of each part."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key


class BodyParams(NamedTuple):
    """A task of random-hopper and random-walker: factors on the stock model."""

    gravity: Array  # m/s², downwards
    mass: Array  # [parts]
    thickness: Array  # [parts] of the capsule's radius
    friction: Array  # [parts + 1] of the sliding friction of each part and of the floor


def gravity_label(task: Any) -> str:
    """Say what a picture does not show."""
    return f"gravity {float(task.gravity):.2f} m/s²"


@dataclass(frozen=True)
class BodyRandomization:
    """The distribution of tasks of a model whose parts are capsules named NAME_geom."""

    parts: tuple[str, ...]
    """Names of the bodies."""

    @property
    def stock(self) -> BodyParams:
        """Return the stock model as a task."""
        ones = jnp.ones(len(self.parts))
        return BodyParams(jnp.float32(9.81), ones, ones, jnp.ones(len(self.parts) + 1))

    def sample(self, key: Key) -> BodyParams:
        """Draw a task."""
        gravity, mass, thickness, friction = jax.random.split(key, 4)
        parts = len(self.parts)
        return BodyParams(
            # Gravity: U(2, 20) m/s².
            gravity=jax.random.uniform(gravity, minval=2.0, maxval=20.0),
            # Mass of each part: stock times U(0.5, 2).
            mass=jax.random.uniform(mass, (parts,), minval=0.5, maxval=2.0),
            # Radius of each part: stock times U(0.5, 2).
            thickness=jax.random.uniform(thickness, (parts,), minval=0.5, maxval=2.0),
            # Sliding friction of each part and of the floor: stock times U(0.5, 2).
            friction=jax.random.uniform(friction, (parts + 1,), minval=0.5, maxval=2.0),
        )

    def edit(self, spec: Any, task: BodyParams) -> None:
        """Write gravity, thickness and friction into the model's specification."""
        spec.option.gravity[2] = -float(str(np.float32(task.gravity)))  # 9.81 in single precision is meant as 9.81
        for index, part in enumerate(self.parts):
            geom = spec.geom(f"{part}_geom")
            geom.size[0] *= float(task.thickness[index])
            geom.friction[0] *= float(task.friction[index])
        spec.geom("floor").friction[0] *= float(task.friction[-1])

    def scale(self, model: Any, stock: Any, task: BodyParams) -> None:
        """Give each part its stock mass times a factor; its inertia follows, at the thickness it has now."""
        for part, factor in zip(self.parts, task.mass, strict=True):
            body = model.body(part).id
            ratio = stock.body_mass[body] * float(factor) / model.body_mass[body]
            model.body_mass[body] *= ratio
            model.body_inertia[body] *= ratio
