"""The engine: rows in blocks, sweeps that sum statistics, drivers that update parameters."""
