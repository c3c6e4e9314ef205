"""Pictures of models and data (extra `plots`)."""

from latently.plots.images import image_grid

__all__ = ["image_grid"]
