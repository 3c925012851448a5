"""What remains of a run: episodes, metrics, checkpoints, TensorBoard files, in one folder."""
