"""Our families as Gymnasium environments, registered by this import. Gymnasium 1 has no entry point for plugins."""

from epg.envs import env as env
