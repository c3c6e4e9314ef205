"""The training loop of models whose parameters live in torch modules.

`generators` random numbers, `batches` rows as tensors, `loop` the epochs, `resume` what a checkpoint
holds, `modules` parameters as named arrays.
"""
