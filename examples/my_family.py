"""A family of your own: a cart that must come to rest in the middle of its rail, in a wind that it cannot see."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import epg


class Cart(NamedTuple):
    position: jax.Array
    velocity: jax.Array


def sample(key):  # a task is data: here the wind, U(-1, 1)
    return jax.random.uniform(key, minval=-1.0, maxval=1.0)


def reset(key, wind):
    return Cart(jax.random.uniform(key, minval=-1.0, maxval=1.0), jnp.zeros(()))


def step(cart, action, wind):
    push = 2.0 * jnp.clip(action[0], -1.0, 1.0)
    velocity = cart.velocity + 0.1 * (push + wind - cart.velocity)
    position = cart.position + 0.1 * velocity
    return Cart(position, velocity), 1.0 - jnp.abs(position), jnp.array(False)


WINDY_CART = epg.JaxFamily(
    name="windy-cart", version=1, summary="a cart in unknown wind", spaces=epg.Spaces(observation=2, action=1),
    horizon=32, sample=sample, reset=reset, observe=lambda cart, wind: jnp.stack(cart), step=step,
)  # fmt: skip

if __name__ == "__main__":
    for check in epg.check("my_family:WINDY_CART"):
        print("ok  " if check.passed else "FAIL", check.name, check.problem or "")
    print("loss in", epg.evolve("my_family:WINDY_CART", preset="smoke", executor="inline").run)
