"""Built-in loggers: classes with the methods of callbacks that write results elsewhere.

csv_file     `progress.csv`
tensorboard  points for TensorBoard
mlflow       MLflow; `artifacts`: the files that it and `wandb` can send
wandb        Weights & Biases

A logger lives in the root's process. One that raises is dropped with a warning, and the run goes on.
"""
