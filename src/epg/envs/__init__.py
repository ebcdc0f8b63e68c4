"""Our families as Gymnasium environments."""
