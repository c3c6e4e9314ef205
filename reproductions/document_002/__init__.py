"""Document 002: P. Tabaghi, *Mixture of factor models for joint dimensionality reduction ...* (2016)."""
