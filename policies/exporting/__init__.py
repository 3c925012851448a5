"""Networks of trained policies as plain tensor modules, and the engines that run them.

network    `exported()` of the algorithms: a module from observations to outputs, and how actions follow from them
engines    runs such a module eagerly, and writes it as an ONNX file; imported by `arena export` alone
"""
