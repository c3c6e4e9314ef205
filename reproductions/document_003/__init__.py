"""Document 003: X. Yang, *Learning density models via structured latent variables*."""
