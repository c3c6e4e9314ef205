"""The engine: rows in blocks, sweeps that add statistics up, drivers that move parameters."""
