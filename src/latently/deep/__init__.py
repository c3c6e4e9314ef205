"""Deep density models; those that are networks need torch and are loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from latently.deep.dmcfa import DMCFA
from latently.deep.dmfa import DMFA

if TYPE_CHECKING:
    from latently.deep.dagmm import DAGMM
    from latently.deep.dbn import DBN
    from latently.deep.joint_autoencoder import JointAutoencoder
    from latently.deep.rbm import RBM
    from latently.deep.vae import VAE

__all__ = ["DAGMM", "DBN", "DMCFA", "DMFA", "RBM", "VAE", "JointAutoencoder"]

_NETWORKS = {  # so that `import latently.deep` needs no torch
    "DAGMM": "dagmm",
    "DBN": "dbn",
    "JointAutoencoder": "joint_autoencoder",
    "RBM": "rbm",
    "VAE": "vae",
}


def __getattr__(name: str) -> Any:
    if name not in _NETWORKS:
        raise AttributeError(f"module 'latently.deep' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"latently.deep.{_NETWORKS[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install 'latently[deep]'") from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
