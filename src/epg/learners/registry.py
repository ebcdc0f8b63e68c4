"""Learners by name. A registered one is a tested one (tests/test_learners.py)."""

from collections.abc import Callable

from epg.core.errors import require
from epg.core.spaces import Spaces
from epg.learners.base import Learner
from epg.learners.guided import GuidedLearner
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.learners.reinforce import Reinforce
from epg.policies.base import Policy
from epg.settings import Settings

POLICY_GRADIENTS: dict[str, Callable[[Settings, Spaces, Policy], PPO | Reinforce]] = {
    "ppo": lambda settings, spaces, policy: PPO(settings.ppo, policy, spaces),
    "reinforce": lambda settings, spaces, policy: Reinforce(settings.ppo, policy),
}


def policy_gradient(name: str, settings: Settings, spaces: Spaces, policy: Policy) -> PPO | Reinforce:
    """Build PPO or REINFORCE by name."""
    require(name in POLICY_GRADIENTS, f"unknown learner {name!r}: choose one of {', '.join(POLICY_GRADIENTS)}.")
    return POLICY_GRADIENTS[name](settings, spaces, policy)


def evolution_learner(settings: Settings, spaces: Spaces, policy: Policy) -> Learner:
    """Build the learner that evolution trains with: the learned loss, guided if the settings say so, or PPO (PPO+I)."""
    if not settings.has_loss:
        return policy_gradient("ppo", settings, spaces, policy)
    learned = LearnedLoss(settings.loss, policy, spaces, settings.lifetime.replay)
    if settings.guidance.learner == "none":
        return learned
    return GuidedLearner(learned, policy_gradient(settings.guidance.learner, settings, spaces, policy))
