"""Document 003: a thesis on joint learning of mixtures and latent factors."""
